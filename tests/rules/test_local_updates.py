"""Workers that go on with what they did themselves: three ways, and the way back."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf.rules.local_updates import LocalUpdates
from slimdp_tf.testing import MemoryContract
from slimdp_tf.types import Entries, edited


class TestLocalUpdates(MemoryContract):
    """It keeps everything, but in two places: the contract of one residual is not its own."""

    keeps_everything = False

    def rules(self):
        return [LocalUpdates(combine, 0.5, 3) for combine in ("sum", "replace", "error")]


def run_round(memory, state, update, sent, pulled):
    """A round of two entries: `sent` of entry 0, `pulled` to be subtracted from both -> local, state."""
    local = state["anchor"] - tf.constant(update, tf.float32)
    index = tf.constant([0])
    edits = memory.keep(
        state, local, Entries(index, memory.recall(state, local, index)), Entries(index, tf.constant([sent]))
    )
    local = edits.pop("local")
    state = edited(state, edits)
    before, after = Entries(None, local), Entries(None, local - tf.constant(pulled, tf.float32))
    return after.value, edited(state, memory.rebase(state, after.value, before, after, after))


@pytest.mark.parametrize(
    ("combine", "local", "residual"),
    [
        # L = (4, 2), S = (4, 0), G = (2, 1); e' = (0, 2). Twice, from (10, 10); then L + e = (4, 4), e' = (0, 4).
        ("sum", [[4.0, 7.0], [-2.0, 4.0]], [0.0, 4.0]),  # less G + L = (6, 3)
        ("replace", [[8.0, 7.0], [6.0, 4.0]], [0.0, 4.0]),  # less G + L - S = (2, 3)
        ("error", [[8.0, 7.0], [6.0, 4.0]], [0.0, 0.0]),  # less G + e' = (2, 3): it is used up, so e' = (0, 2) again
    ],
)
def test_by_hand(combine, local, residual):
    memory = LocalUpdates(combine)
    state, found = memory.init(tf.constant([10.0, 10.0])), []
    for _ in range(2):
        block, state = run_round(memory, state, [4.0, 2.0], 4.0, [2.0, 1.0])
        found.append(block.numpy().tolist())
    assert (found, state["residual"].numpy().tolist()) == (local, residual)
    assert state["agreed"].numpy().tolist() == [6.0, 8.0]  # 10 less twice G, in every way


@pytest.mark.parametrize("combine", ["sum", "replace", "error"])
def test_the_way_back(combine):
    memory = LocalUpdates(combine, average=2)
    state = memory.init(tf.constant([10.0, 10.0]))
    apart, state = run_round(memory, state, [4.0, 2.0], 4.0, [2.0, 1.0])
    own = {"sum": [4.0, 2.0], "replace": [0.0, 2.0], "error": [0.0, 2.0]}[combine]
    np.testing.assert_array_equal(state["agreed"] - apart, own)
    local, state = run_round(memory, state, [0.0, 0.0], 0.0, [0.0, 0.0])
    assert local.numpy().tolist() == [8.0, 9.0]  # the agreed ones
    assert state["residual"].numpy().tolist() == own  # and what lay between waits


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"combine": "partial"}, "combine must be 'sum', 'replace' or 'error'. Received: 'partial'"),
        ({"share": -1.0}, "share, of the own update, must be a number of at least 0. Received: -1.0"),
        ({"average": 0}, "average, in rounds, must be an integer of at least 1. Received: 0"),
    ],
)
def test_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        LocalUpdates(**options)
