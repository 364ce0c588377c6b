"""HOW values are written: as they are, or quantised."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from slimdp_tf.chunks import ENTRIES, by_chunks
from slimdp_tf.types import Payload


@dataclasses.dataclass(frozen=True)
class Raw:
    """32-bit floats, as they are: 4 bytes per value."""

    def encode(self, value: tf.Tensor, seed: tf.Tensor) -> Payload:
        return {"value": value}

    def decode(self, payload: Payload, count: tf.Tensor | int) -> tf.Tensor:
        return payload["value"]

    def lengths(self, count: tf.Tensor | int) -> dict[str, tf.Tensor | int]:
        return {"value": count}


@dataclasses.dataclass(frozen=True)
class Qsgd:
    """QSGD: stochastic rounding to s = 2^(bits-1) - 1 levels of either sign, one scale per bucket.

    With N the scale of value v's bucket and u uniform in [0, 1): level = floor(v / N * s + u) and Q(v) = N * level / s,
    so that E[Q(v)] = v. A bucket of zeros is written as zeros. Levels of up to 8 bits travel as one byte each, so
    fewer bits do not save bytes here.

    The dither u has 16 bits and stays 1e-4 away from 0 and 1, so that E[Q(v)] is within 1e-4 of a level of v. One
    random word dithers two values. Chunks of a long vector share their words, each bucket turns them by a word of
    its own (exclusive or): any two values have independent dithers, so sums have the mean and variance they should.

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
        rows = max(1, ENTRIES // self.bucket)  # of a chunk
        buckets, seeds = self._rows(tf.size(value)), tf.random.experimental.stateless_split(seed, 2)
        words = _draw_words([tf.minimum(buckets, rows), (self.bucket + 1) // 2], seeds[0])
        keys = _draw_words([buckets, 1], seeds[1])

        def encode(number: tf.Tensor, part: tf.Tensor) -> list[tf.Tensor]:
            table = self._table(part)
            count = tf.shape(table)[0]
            word = tf.bitwise.bitwise_xor(words[:count], keys[number * rows :][:count])
            level, scale = self._quantise(table, _dither(word)[:, : self.bucket])
            return [tf.reshape(level, [-1])[: tf.size(part)], scale]

        level, scale = by_chunks(encode, [value], [tf.int8, tf.float32], rows * self.bucket)
        return {"level": level, "scale": scale}

    def decode(self, payload: Payload, count: tf.Tensor | int) -> tf.Tensor:
        level = tf.cast(self._table(payload["level"]), tf.float32)
        scale = payload["scale"] * (1.0 / self.levels)  # no division: tf.function would round it in another way
        return tf.reshape(level * scale[:, None], [-1])[:count]

    def lengths(self, count: tf.Tensor | int) -> dict[str, tf.Tensor | int]:
        return {"level": count, "scale": self._rows(count)}

    def _quantise(self, table: tf.Tensor, dither: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """f32[rows, bucket] and a dither of that shape -> levels i8[rows, bucket], scales f32[rows]."""
        scale = self._scale(table)
        level = tf.floor(table * tf.math.divide_no_nan(float(self.levels), scale)[:, None] + dither)
        return tf.cast(level, tf.int8), scale

    def _rows(self, count: tf.Tensor | int) -> tf.Tensor | int:
        return (count + self.bucket - 1) // self.bucket

    def _table(self, value: tf.Tensor) -> tf.Tensor:
        """A row per bucket; the last one is filled up with zeros."""
        if self.bucket == 1:
            return value[:, None]
        missing = -tf.size(value) % self.bucket
        return tf.reshape(tf.pad(value, [[0, missing]]), [-1, self.bucket])

    def _scale(self, table: tf.Tensor) -> tf.Tensor:
        scale = tf.maximum(tf.reduce_max(table, 1), -tf.reduce_min(table, 1))
        scale = tf.where(scale > 0.0, tf.maximum(scale, _LEAST), scale)  # or the factor of the levels is infinite
        if self.norm == "l2":  # of table / max, whose squares neither overflow nor vanish
            scale *= tf.norm(tf.math.divide_no_nan(table, scale[:, None]), axis=1)
        return tf.where(tf.math.is_finite(scale), scale, float("nan"))  # what is no number must not become one


_LEAST = 1e-36
_EDGE = 1e-4  # of a level: keeps the greatest value of a bucket at its level whatever the rounding


def _draw_words(shape: list, seed: tf.Tensor) -> tf.Tensor:
    return tf.random.stateless_uniform(shape, seed, minval=None, maxval=None, dtype=tf.int32)


def _dither(word: tf.Tensor) -> tf.Tensor:
    """Random words i32[rows, m] -> two numbers of each, uniform in (0, 1), f32[rows, 2 m]."""
    half = tf.cast(tf.bitcast(word, tf.uint16), tf.float32) * ((1.0 - 2.0 * _EDGE) / 65535.0) + _EDGE
    return tf.reshape(half, [tf.shape(word)[0], -1])
