"""Residual loses nothing, whatever the codec; MomentumCorrection is DGC's u and v."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf.rules.columns import OneBit, Proportion
from slimdp_tf.rules.halves import Half
from slimdp_tf.rules.layers import LloydMax
from slimdp_tf.rules.quanta import Quantum
from slimdp_tf.rules.residuals import MomentumCorrection, Residual
from slimdp_tf.testing import MemoryContract
from slimdp_tf.testing.contract import draw_normal, make_seed
from slimdp_tf.types import Entries, edited


class TestResidual(MemoryContract):
    def rules(self):
        return [Residual()]


class TestWithoutMomentum(MemoryContract):
    """Without momentum and clipping it is error feedback."""

    def rules(self):
        return [MomentumCorrection(0.0), MomentumCorrection(0.0, nesterov=True)]


class TestMomentumCorrection(MemoryContract):
    keeps_everything = False

    def rules(self):
        return [MomentumCorrection(0.5, clip=1e6)]


def push(memory, state, update, index, sent):
    """One push of an `update`, of which `sent` arrives at `index` -> what was recalled of all, and the state."""
    local = state["anchor"] - tf.constant(update, tf.float32)
    index = tf.constant(index, tf.int32)
    recalled = memory.recall(state, local, None)
    wanted = memory.recall(state, local, index)
    edits = memory.keep(state, local, Entries(index, wanted), Entries(index, tf.constant(sent, tf.float32)))
    np.testing.assert_array_equal(edits.pop("local"), state["anchor"])  # the block is the agreed one again
    return recalled.numpy().tolist(), edited(state, edits)


def test_residual_by_hand():
    state = Residual().init(tf.constant([10.0, 20.0, 30.0]))
    recalled, state = push(Residual(), state, [1.0, 2.0, -3.0], [2, 0], [-2.5, 1.0])
    assert recalled == [1.0, 2.0, -3.0]
    recalled, state = push(Residual(), state, [1.0, 1.0, 1.0], [1], [3.0])
    assert recalled == [1.0, 3.0, 0.5]
    assert state["residual"].numpy().tolist() == [1.0, 0.0, 0.5]


def test_a_pull_moves_the_anchor_and_not_the_residual():
    state = dict(Residual().init(tf.zeros([2])), residual=tf.constant([1.0, 2.0]))
    pulled = Entries(tf.constant([1]), tf.constant([5.0]))
    state = edited(state, Residual().rebase(state, tf.constant([0.0, 5.0]), pulled, pulled, pulled))
    assert [state[name].numpy().tolist() for name in ("anchor", "residual")] == [[0.0, 5.0], [1.0, 2.0]]


@pytest.mark.parametrize(
    "codec", [OneBit(), Proportion(4), LloydMax(1), Half(), Quantum(0.2)], ids=lambda c: type(c).__name__
)
def test_all_that_was_sent_and_the_residual_are_all_that_was_done(codec):
    done = sent = np.zeros(200)
    state = Residual().init(tf.zeros([200]))
    for number in range(12):
        update = draw_normal(200, number)
        local = state["anchor"] - update
        wanted = Entries(None, Residual().recall(state, local, None))
        decoded = Entries(None, codec.decode(codec.encode(wanted.value, make_seed(number)), 200))
        edits = Residual().keep(state, local, wanted, decoded)
        edits.pop("local")
        state, done, sent = edited(state, edits), done + update.numpy(), sent + decoded.value.numpy()
    np.testing.assert_allclose(sent + state["residual"], done, atol=1e-4)


def test_momentum_correction_by_hand():
    # m = 1/2. g = (2, 4): u = v = (2, 4). Entry 1 is sent: u, v = (2, 0). g = (2, 2): u = (3, 2), v = (5, 2).
    memory = MomentumCorrection(0.5)
    recalled, state = push(memory, memory.init(tf.zeros([2])), [2.0, 4.0], [1], [4.0])
    assert recalled == [2.0, 4.0]
    assert [state[name].numpy().tolist() for name in ("momentum", "residual")] == [[2.0, 0.0], [2.0, 0.0]]
    recalled, _ = push(memory, state, [2.0, 2.0], [0], [5.0])
    assert recalled == [5.0, 2.0]


def test_nesterov_by_hand():
    # u = m (u + g) = (1, 2), v = v + u + g = (3, 6). Entry 1 sent. Then u = (1.5, 1), v = 3 + 1.5 + 2 = 6.5, 1 + 2 = 3.
    memory = MomentumCorrection(0.5, nesterov=True)
    recalled, state = push(memory, memory.init(tf.zeros([2])), [2.0, 4.0], [1], [6.0])
    assert recalled == [3.0, 6.0]
    assert push(memory, state, [2.0, 2.0], [0], [6.5])[0] == [6.5, 3.0]


def test_all_sent_is_sgd_without_momentum_and_none_is_momentum():
    memory, updates = MomentumCorrection(0.9), [draw_normal(3, number).numpy() for number in range(5)]
    every, none = memory.init(tf.zeros([3])), memory.init(tf.zeros([3]))
    velocity = total = np.zeros(3)
    for update in updates:
        local = every["anchor"] - update
        recalled, every = push(memory, every, update, [0, 1, 2], memory.recall(every, local, None))
        np.testing.assert_allclose(recalled, update, rtol=1e-6)
        recalled, none = push(memory, none, update, [], [])
        velocity = 0.9 * velocity + update
        total = total + velocity
        np.testing.assert_allclose(recalled, total, rtol=1e-5)


def test_what_a_codec_leaves_out_stays():
    memory = MomentumCorrection(0.5)
    _, state = push(memory, memory.init(tf.zeros([2])), [2.0, 4.0], [1], [3.0])
    assert state["residual"].numpy().tolist() == [2.0, 1.0]


def test_the_update_is_cut_to_its_norm():
    memory = MomentumCorrection(0.0, clip=1.0)
    np.testing.assert_allclose(push(memory, memory.init(tf.zeros([2])), [3.0, 4.0], [], [])[0], [0.6, 0.8], rtol=1e-6)
    assert push(memory, memory.init(tf.zeros([2])), [0.3, 0.4], [], [])[0] == pytest.approx([0.3, 0.4])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"momentum": 1.0}, r"momentum must be a number within \[0, 1\). Received: 1.0"),
        ({"momentum": "0.9"}, "momentum must be a number .* Received: '0.9'"),
        ({"nesterov": 1}, "nesterov must be True or False. Received: 1"),
        ({"clip": -1.0}, "clip, the greatest norm of an update, must be at least 0. Received: -1.0"),
    ],
)
def test_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        MomentumCorrection(**options)
