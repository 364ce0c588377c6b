"""HOW values are written, column by column: a column is what leads to one output unit, or a bias.

`pieces` says which entries of the block are whose (`slimdp_tf.pieces`); without it the block is one column.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from slimdp_tf.pieces import column_numbers, columns_of, count_columns, flat
from slimdp_tf.rules.bits import are_gaps, pack, packed_length, read_gaps, unpack, write_gaps
from slimdp_tf.types import Payload, Pieces


@dataclasses.dataclass(frozen=True)
class OneBit:
    """One bit per value, and two means per column: of the values at or above zero, and of those below.

    bit = [v >= 0]; decoded: mean{v >= 0} or mean{v < 0} of the column (0 where there are none).

    Args:
        pieces: what the block holds of the variables.

    Reference: Seide et al. 2014, as in CNTK's ColumnQuantizer with its threshold at zero. Biased: what it leaves out is
    for a memory to keep. A column that is cut between two servers has two means on each.
    """

    pieces: Pieces | None = None

    def encode(self, value: tf.Tensor, seed: tf.Tensor) -> Payload:
        bits, means = [], []
        for column in columns_of(value, self.pieces):
            is_above = column >= 0.0
            bits.append(is_above)
            means.append(tf.stack([_mean(column, ~is_above), _mean(column, is_above)], 1))
        return {"bit": pack(flat(bits), 1), "mean": flat(means)}

    def decode(self, payload: Payload, count: tf.Tensor | int) -> tf.Tensor:
        bit = tf.cast(unpack(payload["bit"], count, 1), tf.bool)
        bits, values, start = columns_of(bit, self.pieces), [], 0
        means = tf.reshape(payload["mean"], [-1, 2])
        for is_above in bits:
            mean = means[start : start + is_above.shape[1]]
            values.append(tf.where(is_above, mean[:, 1], mean[:, 0]))
            start += is_above.shape[1]
        return flat(values)

    def lengths(self, count: tf.Tensor | int) -> dict[str, tf.Tensor | int]:
        return {"bit": packed_length(count, 1), "mean": 2 * count_columns(self.pieces)}


@dataclasses.dataclass(frozen=True)
class Proportion:
    """The greatest 1/pi of the values of either sign, each written as the mean of its sign in its column.

    With P the values above zero of a column and k = max(1, floor(|P| / pi)): tau = k-th greatest of P, mu = mean of the
    k greatest; every v >= tau is sent and decoded as mu. The same for those below zero. Columns of more than `sample`
    rows take tau and mu from so many of them. Positions are Golomb-Rice codes of the gaps between them.

    Args:
        pi: one of so many values is sent, at least 1.
        sample: rows that tau and mu are taken from.
        pieces: what the block holds of the variables.

    Reference: Dryden et al. 2016, the variant per column. We differ: zeros are of neither sign and never sent; the
    gaps run through the block, row by row, over all columns.
    """

    pi: int = 64
    sample: int = 128
    pieces: Pieces | None = None
    _WIDTH = 7  # the paper's M = 128

    def __post_init__(self):
        for name, value in (("pi", self.pi), ("sample", self.sample)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be an integer of at least 1. Received: {value!r}")

    def encode(self, value: tf.Tensor, seed: tf.Tensor) -> Payload:
        chosen, means = [], []
        for column in columns_of(value, self.pieces):
            rows = tf.shape(column)[0]
            stride, start = (
                tf.maximum(rows // self.sample, 1),
                tf.random.stateless_uniform([], seed, 0, 2**30, tf.int32),
            )
            taken = (start + stride * tf.range(tf.minimum(rows, self.sample))) % tf.maximum(rows, 1)
            sample = tf.transpose(tf.gather(column, taken))
            (above, high), (below, low) = self._greatest(sample), self._greatest(-sample)
            is_finite = tf.reduce_all(tf.math.is_finite(column), 0)
            chosen.append((column >= above) | (column <= -below) | ~tf.math.is_finite(column))
            means.append(tf.where(is_finite[:, None], tf.stack([-low, high], 1), float("nan")))
        index = tf.cast(tf.where(flat(chosen))[:, 0], tf.int32)
        is_above = tf.gather(value, index) > 0.0
        return {**write_gaps(index, is_above, self._WIDTH), "mean": flat(means)}

    def decode(self, payload: Payload, count: tf.Tensor | int) -> tf.Tensor:
        index, sign = read_gaps(payload, self._WIDTH)
        value = tf.gather(payload["mean"], 2 * column_numbers(index, self.pieces) + sign)
        return tf.scatter_nd(index[:, None], value, tf.reshape(count, [1]))

    def lengths(self, count: tf.Tensor | int) -> dict[str, tf.Tensor | int]:
        return {"mean": 2 * count_columns(self.pieces)}

    def is_readable(self, payload: Payload, count: tf.Tensor | int) -> tf.Tensor:
        return are_gaps(payload, self._WIDTH, count)

    def _greatest(self, sample: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """f32[columns, m] -> tau and mu of the values above zero, f32[columns]; tau is inf where there are none."""
        m = tf.shape(sample)[1]
        positives = tf.reduce_sum(tf.cast(sample > 0.0, tf.int32), 1)
        k = tf.minimum(tf.maximum(positives // self.pi, 1), positives)
        greatest = tf.math.top_k(sample, tf.minimum(tf.maximum(m // self.pi, 1), m)).values
        is_counted = tf.sequence_mask(k, tf.shape(greatest)[1])
        tau = tf.reduce_min(tf.where(is_counted, greatest, float("inf")), 1)
        total = tf.reduce_sum(tf.where(is_counted, greatest, 0.0), 1)
        return tau, tf.math.divide_no_nan(total, tf.cast(k, tf.float32))


def _mean(column: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Mean of the masked values of every column, 0 where there are none. f32[columns]"""
    total = tf.reduce_sum(tf.where(mask, column, 0.0), 0)
    return tf.math.divide_no_nan(total, tf.reduce_sum(tf.cast(mask, tf.float32), 0))
