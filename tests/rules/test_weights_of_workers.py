"""Workers count by their steps, or by their loss."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf.rules.merges import Average
from slimdp_tf.rules.weights_of_workers import ByData, ByLoss
from slimdp_tf.testing import MergeContract
from slimdp_tf.types import Entries, Note, edited, summed


class TestByData(MergeContract):
    def rules(self):
        return [ByData()]


class TestByLoss(MergeContract):
    def rules(self):
        return [ByLoss(Average()), ByLoss(Average("contributors"), 2.0, 0.5, 2.0)]


def step(rule, state, pushes, losses=None, steps=None, present=None):
    """What is subtracted from one entry, and the state after it."""
    count = len(pushes)
    notes = [
        Note(tf.constant(p), tf.constant(loss, tf.float32), tf.constant(n))
        for p, loss, n in zip(present or [True] * count, losses or [1.0] * count, steps or [1] * count)
    ]
    incoming = [Entries(None, tf.constant([push], tf.float32)) for push in pushes]
    increments, edits = rule.merge(state, tf.zeros([1]), incoming, notes)
    return float(summed(increments, tf.zeros([1]))[0]), edited(state, edits)


def test_steps_count():
    # 3 of 4 batches were the first worker's: 3/4 * 4 + 1/4 * 8 = 5.
    assert step(ByData(), {}, [4.0, 8.0], steps=[3, 1])[0] == 5.0
    assert step(ByData(), {}, [4.0, 8.0, 0.0], steps=[3, 1, 9], present=[True, True, False])[0] == 5.0
    assert step(ByData(), {}, [0.0], steps=[0])[0] == 0.0


def test_loss_counts():
    # Mean loss 1.5: weights 1.5 (of 1) and 0.75 (of 2): (1.5 * 4 + 0.75 * 8) / 2 = 6.
    rule = ByLoss(Average())
    found, state = step(rule, rule.init(tf.zeros([1])), [4.0, 8.0], [1.0, 2.0])
    assert found == 6.0
    # Next round: mean of (1, 2, 0.5, 0.5) = 1, weights 2, cut to 1.5.
    assert step(rule, state, [4.0, 8.0], [0.5, 0.5])[0] == 9.0


def test_bounds_and_kappa():
    for kappa, expected in ((0.0, 1.0), (1.0, 1.5), (0.5, 1.5)):
        rule = ByLoss(Average(), kappa)
        # Mean 50.5; weights 50.5 and 0.505 are cut to [0.1, 1.5].
        found, _ = step(rule, rule.init(tf.zeros([1])), [1.0, 0.0], [1.0, 100.0])
        assert found == expected / 2
    rule = ByLoss(Average(), 1.0, 0.1)
    assert step(rule, rule.init(tf.zeros([1])), [0.0, 1.0], [1.0, 100.0])[0] == pytest.approx(0.505 / 2)


def test_who_does_not_know_its_loss_counts_as_one():
    rule = ByLoss(Average())
    found, state = step(rule, rule.init(tf.zeros([1])), [2.0, 4.0], [float("nan"), 3.0])
    assert found == 3.0
    assert state["losses"].numpy().tolist() == [3.0, 1.0]
    assert np.isfinite(step(rule, state, [2.0, 4.0], [0.0, float("inf")])[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kappa": -1.0}, "kappa must be a number of at least 0. Received: -1.0"),
        ({"least": 0.0}, "least and most must be 0 < least <= most. Received: 0.0, 1.5"),
        ({"least": 2.0}, "least and most must be .* Received: 2.0, 1.5"),
    ],
)
def test_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        ByLoss(Average(), **options)
