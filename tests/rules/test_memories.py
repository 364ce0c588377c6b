"""Forget loses what is not sent, as the paper does; Carry keeps it, a codec's error included."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from slimdp_tf.rules.codecs import Qsgd
from slimdp_tf.rules.memories import Carry, Forget
from slimdp_tf.testing import MemoryContract
from slimdp_tf.types import Entries, edited, written


class TestForget(MemoryContract):
    keeps_everything = False

    def rules(self):
        return [Forget()]


class TestCarry(MemoryContract):
    def rules(self):
        return [Carry()]


def entries(index, value) -> Entries:
    return Entries(tf.constant(index, tf.int32), tf.constant(value, tf.float32))


def run_round(memory) -> tuple[list[float], list[float]]:
    """One round by hand -> what is recalled after it, and the local weights.

    Start: w = (10, 20, 30). Training: w = (9, 18, 33), so the update is (1, 2, -3). Entries 2 and 0 are sent: -3 and
    1, and arrive as -2.5 and 1. The server answers with 31 and 9.5.
    """
    state = memory.init(tf.constant([10.0, 20.0, 30.0]))
    local = tf.constant([9.0, 18.0, 33.0])
    wanted = Entries(tf.constant([2, 0]), memory.recall(state, local, tf.constant([2, 0])))
    assert wanted.value.numpy().tolist() == [-3.0, 1.0]
    state = edited(state, memory.keep(state, local, wanted, entries([2, 0], [-2.5, 1.0])))
    before, after = entries([2, 0], [33.0, 9.0]), entries([2, 0], [31.0, 9.5])
    local = written(local, after)
    state = edited(state, memory.rebase(state, local, before, after, after))
    return memory.recall(state, local, None).numpy().tolist(), local.numpy().tolist()


def test_forget_by_hand():
    assert run_round(Forget()) == ([0.0, 0.0, 0.0], [9.5, 18.0, 31.0])


def test_carry_by_hand():
    # Entry 1 was not sent: 2 is kept. Entry 2 arrived as -2.5 of -3: -0.5 is kept. Entry 0 arrived whole.
    assert run_round(Carry()) == ([0.0, 2.0, -0.5], [9.5, 18.0, 31.0])


def test_carry_touches_only_what_was_sent():
    state = Carry().init(tf.zeros([5]))
    sent = entries([3], [0.5])
    edits = [Carry().keep(state, state["anchor"], sent, sent), Carry().rebase(state, tf.zeros([5]), sent, sent, sent)]
    assert [edit["anchor"].index.numpy().tolist() for edit in edits] == [[3], [3]]


def test_carry_sends_at_last_what_a_codec_rounds_away():
    # Nothing is added after the first push: what Qsgd left out (at most N / s of each) goes with the next ones.
    memory, codec = Carry(), Qsgd(8, 16)
    state, local = memory.init(tf.zeros([16])), tf.random.stateless_normal([16], [1, 2])
    arrived = np.zeros(16, np.float32)
    for number in range(4):
        wanted = memory.recall(state, local, None)
        decoded = codec.decode(codec.encode(wanted, tf.constant([number, 0])), 16)
        arrived = arrived + decoded.numpy()
        state = edited(state, memory.keep(state, local, Entries(None, wanted), Entries(None, decoded)))
    np.testing.assert_allclose(arrived, -local, atol=1e-6)
