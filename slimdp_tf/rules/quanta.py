"""Strom's threshold: WHICH entries have grown to a quantum, and HOW one is written."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from slimdp_tf.rules.bits import pack, packed_length, unpack
from slimdp_tf.types import Payload, State, is_number


@dataclasses.dataclass(frozen=True)
class Threshold:
    """The entries with |v| >= tau; there may be none. Their keys travel.

    Args:
        tau: above 0, in the unit of an update (learning rate times gradient).

    Reference: Strom 2015.
    """

    tau: float = 0.01
    keyed = True
    blind = False

    def __post_init__(self):
        _check(self.tau)

    def pick(self, value: tf.Tensor | None, agreed: State, seed: tf.Tensor) -> tf.Tensor:
        is_grown = ~(tf.abs(value) < self.tau)  # so that nan is sent, and seen
        return tf.cast(tf.where(is_grown)[:, 0], tf.int32)


@dataclasses.dataclass(frozen=True)
class Quantum:
    """One bit per value: +tau or -tau, however much greater it is; the rest is for a memory to keep.

    Args:
        tau: above 0.

    Reference: Strom 2015. We differ: the sign is a bit beside the key (the paper: a bit of the key's word), and 4
    bytes say whether all values are finite.
    """

    tau: float = 0.01

    def __post_init__(self):
        _check(self.tau)

    def encode(self, value: tf.Tensor, seed: tf.Tensor) -> Payload:
        is_finite = tf.reduce_all(tf.math.is_finite(value))
        return {"sign": pack(value > 0.0, 1), "quantum": tf.where(is_finite, tf.constant([self.tau]), float("nan"))}

    def decode(self, payload: Payload, count: tf.Tensor | int) -> tf.Tensor:
        sign = 2.0 * tf.cast(unpack(payload["sign"], count, 1), tf.float32) - 1.0
        return sign * payload["quantum"]

    def lengths(self, count: tf.Tensor | int) -> dict[str, tf.Tensor | int]:
        return {"sign": packed_length(count, 1), "quantum": 1}


def _check(tau: object) -> None:
    if not is_number(tau) or tau <= 0.0:
        raise ValueError(f"tau, the quantum, must be a number above 0. Received: {tau!r}")
