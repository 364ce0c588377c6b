"""HOW values are written: as they are, or quantised."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from slimdp_tf.types import Payload


@dataclasses.dataclass(frozen=True)
class Raw:
    """32-bit floats, as they are: 4 bytes per value."""

    def encode(self, value: tf.Tensor, seed: tf.Tensor) -> Payload:
        return {"value": value}

    def decode(self, payload: Payload, count: tf.Tensor | int) -> tf.Tensor:
        return payload["value"]


@dataclasses.dataclass(frozen=True)
class Qsgd:
    """QSGD: stochastic rounding to s = 2^(bits-1) - 1 levels of either sign, one scale per bucket.

    With N the scale of value v's bucket: a = |v| / N * s, level = floor(a) + [u < a - floor(a)] with u uniform in
    [0, 1), and Q(v) = N * sign(v) * level / s, so that E[Q(v)] = v. A bucket of zeros is written as zeros.
    Levels of up to 8 bits travel as one byte each, so fewer bits do not save bytes here.

    Args:
        bits: bits per level, its sign included, 2 to 8.
        bucket: values per scale, at least 1; the last bucket may be shorter.
        norm: "max" (N = max|v|, the smaller variance) or "l2" (N = ||v||_2, the theorem's).

    Reference: Alistarh et al. 2017, arXiv 1610.02132, section 3.1. We differ in the default norm ("max").
    """

    bits: int = 8
    bucket: int = 512
    norm: str = "max"

    def __post_init__(self):
        if isinstance(self.bits, bool) or not isinstance(self.bits, int) or not 2 <= self.bits <= 8:
            raise ValueError(f"bits must be an integer from 2 to 8 (the sign included). Received: {self.bits!r}")
        if isinstance(self.bucket, bool) or not isinstance(self.bucket, int) or self.bucket < 1:
            raise ValueError(f"bucket must be an integer of at least 1. Received: {self.bucket!r}")
        if self.norm not in ("max", "l2"):
            raise ValueError(f"norm must be 'max' or 'l2'. Received: {self.norm!r}")

    @property
    def levels(self) -> int:
        """s, the number of levels above zero."""
        return 2 ** (self.bits - 1) - 1

    def encode(self, value: tf.Tensor, seed: tf.Tensor) -> Payload:
        count = tf.size(value)
        rows = self._rows(count)
        padded = tf.pad(value, [[0, rows * self.bucket - count]])
        buckets = tf.reshape(padded, [rows, self.bucket])
        scale = self._scale(buckets)
        signed = tf.math.divide_no_nan(buckets, scale[:, None]) * float(self.levels)
        dither = tf.random.stateless_uniform(tf.shape(buckets), seed, alg="philox")
        level = tf.sign(signed) * tf.floor(tf.abs(signed) + dither)
        level = tf.clip_by_value(level, -float(self.levels), float(self.levels))
        return {"level": tf.cast(tf.reshape(level, [-1])[:count], tf.int8), "scale": scale}

    def decode(self, payload: Payload, count: tf.Tensor | int) -> tf.Tensor:
        rows = self._rows(count)
        level = tf.pad(tf.cast(payload["level"], tf.float32), [[0, rows * self.bucket - count]])
        scale = payload["scale"] * (1.0 / self.levels)  # no division: tf.function would round it in another way
        return tf.reshape(tf.reshape(level, [rows, self.bucket]) * scale[:, None], [-1])[:count]

    def _rows(self, count: tf.Tensor | int) -> tf.Tensor | int:
        return (count + self.bucket - 1) // self.bucket

    def _scale(self, buckets: tf.Tensor) -> tf.Tensor:
        scale = tf.reduce_max(tf.abs(buckets), axis=1)
        if self.norm == "l2":  # of buckets / max, whose squares neither overflow nor vanish
            scale *= tf.norm(tf.math.divide_no_nan(buckets, scale[:, None]), axis=1)
        is_finite = tf.reduce_all(tf.math.is_finite(buckets), axis=1)
        return tf.where(is_finite, scale, float("nan"))  # a value that is no number must not be rounded to one
