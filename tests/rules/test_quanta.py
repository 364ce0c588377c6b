"""Strom: one quantum of tau for every entry that has grown to it, and the rest waits."""

from __future__ import annotations

import pytest
import tensorflow as tf

from slimdp_tf.exchange import payload_bytes
from slimdp_tf.rules.quanta import Quantum, Threshold
from slimdp_tf.testing import CodecContract, SelectorContract

SEED = tf.constant([1, 2], tf.int32)


class TestThreshold(SelectorContract):
    is_random = False

    def rules(self):
        return [Threshold(0.5), Threshold(100.0), Threshold(1e-9)]


class TestQuantum(CodecContract):
    is_unbiased = False
    is_random = False
    keeps_zeros = False

    def rules(self):
        return [Quantum(0.5)]


def test_by_hand():
    value = tf.constant([0.1, -0.5, 0.49, 2.0, -3.0])
    picked = Threshold(0.5).pick(value, {}, SEED)
    assert picked.numpy().tolist() == [1, 3, 4]
    payload = Quantum(0.5).encode(tf.gather(value, picked), SEED)
    assert Quantum(0.5).decode(payload, 3).numpy().tolist() == [-0.5, 0.5, -0.5]  # one quantum, however much it is
    assert [int(b) for b in payload_bytes(payload)] == [1 + 4, 0]


def test_what_is_no_number_is_picked():
    assert Threshold(0.5).pick(tf.constant([0.0, float("nan"), float("inf")]), {}, SEED).numpy().tolist() == [1, 2]


@pytest.mark.parametrize("rule", [Threshold, Quantum])
@pytest.mark.parametrize("tau", [0.0, -1.0, float("nan"), "0.1", True])
def test_refuses(rule, tau):
    with pytest.raises(ValueError, match="tau, the quantum, must be a number above 0. Received: "):
        rule(tau)
