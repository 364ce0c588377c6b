"""The server's own steps: block momentum, an outer optimizer, AdaGrad after the aggregation, a scale."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf.rules.merges import Average
from slimdp_tf.rules.server_steps import AdaGrad, BlockMomentum, OuterNesterov, Scaled
from slimdp_tf.testing import MergeContract
from slimdp_tf.types import Entries, Note, edited, reduced


class TestScaled(MergeContract):
    def rules(self):
        return [Scaled(Average(), 0.9), Scaled(Average("contributors"), 2.0)]


class TestBlockMomentum(MergeContract):
    def rules(self):
        return [BlockMomentum(Average()), BlockMomentum(Average("contributors"), nesterov=True)]


class TestOuterNesterov(MergeContract):
    def rules(self):
        return [OuterNesterov(Average()), OuterNesterov(BlockMomentum(Average()))]  # one inside the other


class TestAdaGrad(MergeContract):
    def rules(self):
        return [AdaGrad(Average())]


def run(rule, value, rounds) -> list[list[float]]:
    """The block after each of the rounds; a round is the updates of all workers, or (index, updates)."""
    value = tf.constant(value, tf.float32)
    state, found = rule.init(value), []
    for updates in rounds:
        incoming = [
            Entries(tf.constant(u[0]), tf.constant(u[1], tf.float32))
            if isinstance(u, tuple)
            else Entries(None, tf.constant(u, tf.float32))
            for u in updates
        ]
        notes = [Note(tf.constant(True), tf.constant(1.0), tf.constant(1))] * len(incoming)
        increments, edits = rule.merge(state, value, incoming, notes)
        state = edited(state, edits)
        for increment in increments:
            value = reduced(value, increment)
        found.append(value.numpy().tolist())
    return found


def test_scaled_is_the_elastic_centre():
    # centre 10, workers at 8 and 4 push 2 and 6: (1 - .5) 10 + .5 * 6 = 8.
    assert run(Scaled(Average(), 0.5), [10.0], [([2.0], [6.0])]) == [[8.0]]


def test_block_momentum_by_hand():
    # bm = 1/2, blr = 1. G = (2 + 4) / 2 = 3: V = 3, w = 10 - 3. G = 1: V = 2.5, w = 7 - 2.5.
    rounds = [([2.0], [4.0]), ([1.0], [1.0])]
    assert run(BlockMomentum(Average(), 0.5), [10.0], rounds) == [[7.0], [4.5]]
    # Nesterov: start = w - bm V. 10 - 3 - 1.5 = 5.5; V = 2.5: 5.5 - 2.5 - 1.25.
    assert run(BlockMomentum(Average(), 0.5, nesterov=True), [10.0], rounds) == [[5.5], [1.75]]
    # blr = 2: V = 6; V = 3 + 2 = 5.
    assert run(BlockMomentum(Average(), 0.5, 2.0), [10.0], rounds) == [[4.0], [-1.0]]


def test_outer_nesterov_by_hand():
    # mu = 1/2, rate 1: m = 3, step 3 + 1.5; m = 1.5 + 1 = 2.5, step 1 + 1.25.
    assert run(OuterNesterov(Average(), 1.0, 0.5), [10.0], [([3.0],), ([1.0],)]) == [[5.5], [3.25]]


@pytest.mark.parametrize("rule", [BlockMomentum(Average(), 0.0, 1.0), OuterNesterov(Average(), 1.0, 0.0)])
def test_without_momentum_it_is_averaging(rule):
    rounds = [([0.3, 1.0], [0.1, -2.0]), ([(0)] * 2, [5.0, 7.0])]
    assert run(rule, [1.0, 2.0], rounds) == run(Average(), [1.0, 2.0], rounds)


def test_ada_grad_by_hand():
    # a = 9: step 3 / 3; a = 25: step 4 / 5. The scale drops out.
    found = run(AdaGrad(Average(), 1.0, 1e-9), [10.0], [([3.0],), ([4.0],)])
    np.testing.assert_allclose(found, [[9.0], [8.2]], rtol=1e-6)
    scaled = run(AdaGrad(Average(), 1.0, 1e-9), [10.0], [([300.0],), ([400.0],)])
    np.testing.assert_allclose(scaled, found, rtol=1e-6)


def test_sparse_pushes_are_folded_first():
    # Entry 1: 4/2 of one, 2/2 of the other; entry 2: 6/2.
    rounds = [((([1, 2], [4.0, 6.0])), ([1], [2.0]))]
    assert run(BlockMomentum(Average(), 0.5), [0.0, 0.0, 0.0], rounds) == [[0.0, -3.0, -3.0]]


@pytest.mark.parametrize("rule", [Scaled, BlockMomentum, OuterNesterov, AdaGrad])
@pytest.mark.parametrize("rate", [0.0, -1.0, "1", None, float("inf")])
def test_refuses_rate(rule, rate):
    with pytest.raises(ValueError, match="rate must be a number above 0. Received: "):
        rule(Average(), rate=rate)


@pytest.mark.parametrize("rule", [BlockMomentum, OuterNesterov])
@pytest.mark.parametrize("momentum", [1.0, -0.1, True])
def test_refuses_momentum(rule, momentum):
    with pytest.raises(ValueError, match=r"momentum must be a number within \[0, 1\). Received: "):
        rule(Average(), momentum=momentum)
