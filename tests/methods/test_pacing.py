"""Pacing is an option of every factory, which is otherwise as it was written."""

from __future__ import annotations

import inspect

import pytest

from slimdp_tf import methods
from slimdp_tf.method import Method
from slimdp_tf.methods.pacing import paced
from slimdp_tf.rules.triggers import Every


@paced
def mine(H: int = 3) -> Method:
    """Mine.

    Args:
        H: steps.
    """
    return Method("mine", trigger=Every(H))


def test_adds_two_options_that_are_given_by_name():
    assert list(inspect.signature(mine).parameters) == ["H", "pacing", "staleness"]
    assert mine(2, pacing="async", staleness=1) == Method("mine", trigger=Every(2), pacing="async", staleness=1)
    assert mine() == Method("mine", trigger=Every(3))
    with pytest.raises(TypeError):
        mine(2, "async")


def test_says_so():
    assert mine.__name__ == "mine"
    assert "H: steps." in mine.__doc__ and "pacing: " in mine.__doc__ and "staleness: " in mine.__doc__


@pytest.mark.parametrize("name", methods.names())
def test_every_method_has_them(name):
    options = methods.options(name)
    assert options["staleness"] == 4 and options.get("pacing", "async") == getattr(methods, name)().pacing


@pytest.mark.parametrize("received", [-1, 1.5, True, "2"])
def test_staleness_is_a_count(received):
    with pytest.raises(ValueError, match="staleness, in rounds, must be an integer of at least 0. Received: "):
        mine(pacing="async", staleness=received)


def test_pacing_is_one_of_those_there_are():
    with pytest.raises(ValueError, match="pacing must be 'sync' or 'async'. Received: 'later'"):
        mine(pacing="later")
