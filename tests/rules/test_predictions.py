"""Both ends predict alike, and what is sent beside the prediction adds up to all that was done."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf.rules.merges import Average
from slimdp_tf.rules.predictions import Predicted, Unpredicted
from slimdp_tf.testing import MemoryContract, MergeContract
from slimdp_tf.testing.contract import draw_normal
from slimdp_tf.types import Entries, Note, edited, reduced


class TestUnpredicted(MemoryContract):
    def rules(self):
        return [Unpredicted(gamma=0.0)]


class TestUnpredictedWithPrediction(MemoryContract):
    keeps_everything = False

    def rules(self):
        return [Unpredicted(0.5, 1.0)]


class TestPredicted(MergeContract):
    def rules(self):
        return [Predicted(Average()), Predicted(Average("contributors"), 0.5, 1.0)]


class Pair:
    """A worker and its server."""

    def __init__(self, smoothing, gamma, size):
        self.memory, self.rule = Unpredicted(smoothing, gamma), Predicted(Average(), smoothing, gamma)
        self.value = tf.zeros([size])
        self.worker, self.server = self.memory.init(self.value), self.rule.init(self.value)

    def run(self, update, index):
        """One round; returns what was sent."""
        local = self.worker["anchor"] - update
        wanted = Entries(index, self.memory.recall(self.worker, local, index))
        edits = self.memory.keep(self.worker, local, wanted, wanted)
        local = edits.pop("local")
        self.worker = edited(self.worker, edits)
        note = Note(tf.constant(True), tf.constant(1.0), tf.constant(1))
        increments, edits = self.rule.merge(self.server, self.value, [wanted], [note])
        self.server = edited(self.server, edits)
        for increment in increments:
            self.value = reduced(self.value, increment)
        before, after = Entries(None, local), Entries(None, self.value)
        self.worker = edited(self.worker, self.memory.rebase(self.worker, self.value, before, after, after))
        return wanted.value.numpy()


def test_by_hand():
    # a = 1/2, gamma = 1, updates of 2. Sent 2: s = 1. Then 2 - 1 = 1 is sent, 2 subtracted: s = 1.5. Then 0.5.
    pair = Pair(0.5, 1.0, 1)
    assert [pair.run(tf.constant([2.0]), None).tolist() for _ in range(3)] == [[2.0], [1.0], [0.5]]
    assert pair.value.numpy().tolist() == [-6.0]


def test_nothing_is_lost_and_nothing_is_counted_twice():
    pair, done = Pair(0.3, 0.9, 20), np.zeros(20)
    for number in range(25):
        update = 1.0 + 0.1 * draw_normal(20, number)
        pair.run(update, tf.constant([number % 20, (number + 7) % 20], tf.int32))
        done += update.numpy()
        np.testing.assert_array_equal(pair.worker["smooth"], pair.server["smooth"])  # to the bit
        np.testing.assert_allclose(pair.worker["residual"] - pair.value, done, atol=1e-4)


def test_a_worker_that_begins_anew_comes_near():
    pair = Pair(0.5, 1.0, 1)
    for _ in range(5):
        pair.run(tf.constant([2.0]), None)
    pair.worker = pair.memory.init(pair.value)
    gaps = []
    for _ in range(5):
        pair.run(tf.constant([2.0]), None)
        gaps.append(float(tf.abs(pair.worker["smooth"] - pair.server["smooth"])[0]))
    np.testing.assert_allclose(np.divide(gaps[1:], gaps[:-1]), 0.5, rtol=1e-4)


@pytest.mark.parametrize("make", [Unpredicted, lambda *options: Predicted(Average(), *options)])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((0.0, 0.9), r"smoothing must be a number within \(0, 1\]"),
        ((0.1, 1.1), r"gamma must be a number within \[0, 1\]"),
    ],
)
def test_refuses(make, options, message):
    with pytest.raises(ValueError, match=message):
        make(*options)
