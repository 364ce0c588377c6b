"""Every: the paper's communication frequency p."""

from __future__ import annotations

import pytest

from slimdp_tf.rules.triggers import Every
from slimdp_tf.types import Signal, Trigger


def test_every_says_its_period():
    assert Every().period == 1
    assert Every(16).period == 16
    assert isinstance(Every(4), Trigger)
    assert Every(4) == Every(period=4) != Every(5)


@pytest.mark.parametrize("period", [0, -1, True, 1.0, "4", None, float("nan")])
def test_refuses_period(period):
    with pytest.raises(
        ValueError, match=r"p, the mini-batches per round, must be an integer of at least 1\. Received: "
    ):
        Every(period)


def test_every_round_is_planned_alike():
    assert [Every(4).plan(Signal(number, 4 * number, 4)) for number in range(3)] == [4, 4, 4]
