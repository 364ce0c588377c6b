"""The drift that makes a push due, by hand."""

from __future__ import annotations

import pytest
import tensorflow as tf

from slimdp_tf.rules.events import Drift
from slimdp_tf.types import Signal, Trigger


def is_due(rule: Drift, drift: float, weight: float, waited: int) -> bool:
    return bool(rule.is_due(tf.constant(drift), tf.constant(weight), waited))


def test_numbers_by_hand():
    rule = Drift(tau=0.5, period=3, most=4)
    assert isinstance(rule, Trigger) and rule.plan(Signal()) == 3
    assert is_due(rule, 4.0, 16.0, 1)  # |w - z| = 2 = 0.5 * 4
    assert not is_due(rule, 3.9, 16.0, 3)
    assert is_due(rule, 0.0, 16.0, 4)
    assert is_due(Drift(tau=0.0), 0.0, 1.0, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tau": -0.1}, "tau, the drift relative to the weights, must be at least 0. Received: -0.1"),
        ({"period": 0}, "p, the mini-batches between two checks, must be an integer of at least 1. Received: 0"),
        ({"most": 1.5}, "most, in checks, must be an integer of at least 1. Received: 1.5"),
    ],
)
def test_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        Drift(**options)
