"""WHEN an exchange takes place, where each worker sees for itself: when it has gone far enough from what it pulled."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from slimdp_tf.types import Signal, is_number


@dataclasses.dataclass(frozen=True)
class Drift:
    """A push is due when |w - z| >= tau |z|, z what the worker last pulled; at the latest after `most` checks.

    Args:
        tau: at least 0; 0 is a push after every check.
        period: local mini-batches between two checks, at least 1.
        most: checks after which a push is due anyway, at least 1.

    Inspired by the event trigger of SaPus (Zhang et al. 2021), whose formula is not at hand: the drift relative to the
    weights is ours, so that tau has no unit.
    """

    tau: float = 0.01
    period: int = 1
    most: int = 64

    def __post_init__(self):
        if not is_number(self.tau) or self.tau < 0.0:
            raise ValueError(f"tau, the drift relative to the weights, must be at least 0. Received: {self.tau!r}")
        for name, value in (("p, the mini-batches between two checks,", self.period), ("most, in checks,", self.most)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be an integer of at least 1. Received: {value!r}")

    def plan(self, signal: Signal) -> int:
        return self.period

    def is_due(self, drift: tf.Tensor, weight: tf.Tensor, waited: tf.Tensor | int) -> tf.Tensor:
        """Whether to push, bool[].

        Args:
            drift, weight: |w - z|^2 and |z|^2 over all blocks, f32[].
            waited: checks since the last push, this one included.
        """
        return (drift >= self.tau**2 * weight) | (waited >= self.most)
