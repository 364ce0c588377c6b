"""tools/count_lines.py counts what runs."""

from __future__ import annotations

import runpy

from slimdp_tf import methods
from slimdp_tf.rules.schedules import After
from slimdp_tf.rules.triggers import Every
from tests import sources

TOOL = runpy.run_path(str(sources.ROOT / "tools" / "count_lines.py"))


def three_lines(x):
    """Not a line of code."""
    # nor this

    if x:
        x += 1


def test_counts_neither_docstrings_nor_comments():
    assert TOOL["count_code"](three_lines) == 3


def test_finds_the_rules_of_a_method():
    rules = list(TOOL["rules_of"](methods.post_local_sgd()))
    assert After in rules and Every not in rules


def test_a_line_for_every_method(capsys):
    TOOL["print_table"]()
    lines = capsys.readouterr().out.splitlines()[2:]
    assert [line.split("`")[1] for line in lines] == methods.names()
