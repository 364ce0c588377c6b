"""Rounds that become longer, or shorter, in the course of training."""

from __future__ import annotations

import pytest

from slimdp_tf.rules.schedules import After, WithLoss
from slimdp_tf.types import Signal, Trigger


def plan_rounds(trigger, losses) -> list[int]:
    """The steps of each round, when the rounds have these losses."""
    signal, planned = Signal(), []
    for loss in losses:
        planned.append(trigger.plan(signal))
        signal = signal.after(planned[-1], signal.steps + planned[-1], loss)
    return planned


def test_after_so_many_steps_rounds_are_longer():
    assert plan_rounds(After(3, 4), [1.0] * 6) == [1, 1, 1, 4, 4, 4]
    assert plan_rounds(After(0, 4), [1.0] * 2) == [4, 4]
    assert After().period == 1 and isinstance(After(), Trigger)


def test_with_the_loss_rounds_become_shorter():
    # tau_0 = 10, every 2 rounds. F/F_0 = 1/4 of 4: ceil(sqrt(1/4) 10) = 5. Again 1: 5 is not fewer: half, 2. Then
    # 0.04 / 4: ceil(0.1 * 10) = 1. And never less than 1.
    assert plan_rounds(WithLoss(10, 2), [4.0, 1.0, 1.0, 1.0, 2.0, 0.04, 9.0, 9.0, 9.0]) == [10, 10, 5, 5, 2, 2, 1, 1, 1]


def test_an_unknown_loss_changes_nothing():
    nan = float("nan")
    assert plan_rounds(WithLoss(10, 1), [nan, 1.0, 1.0]) == [10, 10, 10]  # nothing to compare with
    assert plan_rounds(WithLoss(10, 1), [4.0, nan, 1.0]) == [10, 5, 5]
    assert plan_rounds(WithLoss(10, 1), [0.0, 1.0]) == [10, 10]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: After(-1), "steps, until rounds become longer, must be an integer of at least 0. Received: -1"),
        (lambda: After(1, 0), "then, the mini-batches per round, must be an integer of at least 1. Received: 0"),
        (lambda: WithLoss(1.5), "period, the mini-batches per round, .* Received: 1.5"),
        (lambda: WithLoss(2, True), "every, in rounds, .* Received: True"),
    ],
)
def test_refuses(make, message):
    with pytest.raises(ValueError, match=message):
        make()
