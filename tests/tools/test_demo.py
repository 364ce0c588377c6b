"""The demo as it is written: what it hands to tools/compare can be trained."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from slimdp_tf import methods
from slimdp_tf.cli import config_flag
from slimdp_tf.cli.method_list import read_methods
from slimdp_tf.training.experiment import build_method
from tests import sources


@pytest.fixture
def arguments(tmp_path):
    """What tools/demo gives to tools/compare, beside one argument of the user's."""
    (tmp_path / "tools").mkdir()
    shutil.copy(sources.ROOT / "tools" / "demo", tmp_path / "tools")
    compare = tmp_path / "tools" / "compare"
    compare.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    compare.chmod(0o755)
    run = [tmp_path / "tools" / "demo", "--config.epochs=7"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=20, env={"PATH": os.environ["PATH"]}, check=True)
    return done.stdout.splitlines()


def test_every_method_of_the_demo_can_be_made(arguments):
    given = dict(argument.removeprefix("--").split("=", 1) for argument in arguments)
    path = config_flag.find_config(given.pop("config"))
    calls = read_methods(given.pop("methods"), methods.names())
    assert [call.label for call in calls] == ["plump", "quant", "slim", "slim_carry"]
    overrides = {name.removeprefix("config."): int(value) for name, value in given.items()}
    assert overrides == {"workers": 4, "ps": 2, "epochs": 7}
    for call in calls:
        config = config_flag.make_config(path, call.name, call.options, overrides)
        assert build_method(config).name == call.name
        assert (config.options.p, config.epochs) == (4, 7)
