"""The greatest of many entries that lie in blocks on several servers: exact, and for a few passes over memory."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable

import tensorflow as tf

from slimdp_tf.chunks import ENTRIES, by_chunks
from slimdp_tf.types import On

_DIGITS = ((20, 11), (10, 10), (0, 10))  # (lowest bit, bits): the 31 bits of a float that is not negative
_SAMPLE = 1 << 17  # entries of all blocks by which a lower bound of the threshold is guessed


def greatest(blocks: list[list[tf.Tensor]], score: Callable[..., tf.Tensor], wanted: int, on: On) -> list[tf.Tensor]:
    """Positions of the `wanted` entries of greatest score, i32[m_j] per block, ascending; ties to the lower index.

    A sample gives a score that slightly more than `wanted` entries reach; those that do are ranked exactly, and all of
    them where the guess was too high. Only counts move between blocks, 8 kB per block and digit, to block 0 and back.

    Args:
        blocks: the vectors of each block, f32[n_j] each, of known length.
        score: entries of a block's vectors -> f32 of the same length, not negative.
        wanted: how many over all blocks.
        on: where each block lives.
    """
    if wanted == 0:
        return [tf.zeros([0], tf.int32) for _ in blocks]

    def bits_of(*vectors: tf.Tensor) -> tf.Tensor:
        return tf.bitcast(score(*vectors), tf.int32)  # not negative, so floats are ordered as their bits are

    bound = _guess(blocks, bits_of, wanted, on)
    found, counts = [], []
    for j, vectors in enumerate(blocks):
        with on(j):
            found.append(_reaching(vectors, bits_of, tf.identity(bound)))
            counts.append(tf.size(found[j][0]))
    with on(0):
        is_enough = tf.add_n(counts) >= wanted
    for j, vectors in enumerate(blocks):
        with on(j):
            everything = lambda v=vectors: _reaching(v, bits_of, tf.constant(0))  # noqa: E731
            found[j] = tf.cond(tf.identity(is_enough), lambda j=j: found[j], everything)
    return _pick(found, wanted, on)


def greatest_here(score: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """Positions of the `wanted` greatest entries of one vector, i32[wanted], ascending; ties to the lower index.

    Args:
        score: f32[n], not negative.
        wanted: i32[], at most n.
    """
    here = contextlib.nullcontext()
    return _pick([(tf.range(tf.size(score)), tf.bitcast(score, tf.int32))], wanted, lambda j: here)[0]


def _guess(blocks, bits_of, wanted: int, on: On) -> tf.Tensor:
    """Bits that probably some more than `wanted` entries reach, i32[]."""
    total = sum(int(vectors[0].shape[0]) for vectors in blocks)
    stride = -(-total // _SAMPLE)
    sampled = wanted / stride
    sampled = math.ceil(sampled + 4.0 * math.sqrt(sampled)) + 1
    if stride == 1 or sampled * stride >= total:
        return tf.constant(0)
    samples = []
    for j, vectors in enumerate(blocks):
        with on(j):
            samples.append(bits_of(*[vector[::stride] for vector in vectors]))
    return _threshold(samples, tf.constant(sampled), on)[0]


def _reaching(vectors: list[tf.Tensor], bits_of, bound: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Positions and bits of the entries of a block that reach `bound`, i32[m] each."""

    def select(number: tf.Tensor, *chunk: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        bits = bits_of(*chunk)
        index = tf.where(bits >= bound)
        return tf.cast(index[:, 0], tf.int32) + number * ENTRIES, tf.gather_nd(bits, index)

    return tuple(by_chunks(select, vectors, [tf.int32, tf.int32], ENTRIES))


def _pick(found: list[tuple[tf.Tensor, tf.Tensor]], wanted: int | tf.Tensor, on: On) -> list[tf.Tensor]:
    threshold, ties_left = _threshold([bits for _, bits in found], tf.convert_to_tensor(wanted), on)
    picked = []
    for j, (index, bits) in enumerate(found):
        with on(j):
            tied = tf.cast(tf.equal(bits, threshold), tf.int32)
            rank = tf.cumsum(tied)
            is_picked = (bits > threshold) | ((tied > 0) & (rank <= ties_left))
            picked.append(tf.gather_nd(index, tf.where(is_picked)))
            ties_left = ties_left - tf.minimum(tf.reduce_sum(tied), ties_left)
    return picked


def _threshold(bits: list[tf.Tensor], wanted: tf.Tensor, on: On) -> tuple[tf.Tensor, tf.Tensor]:
    """The `wanted`-th greatest of all bits, i32[], and how many of those equal to it are among the `wanted`."""
    threshold, left = tf.zeros([], tf.int32), wanted
    for lowest, width in _DIGITS:
        digit, above = _digit(bits, threshold, left, lowest, width, on)
        with on(0):
            threshold, left = threshold + tf.bitwise.left_shift(digit, lowest), left - above
    return threshold, left


def _digit(bits, known, wanted, lowest: int, width: int, on: On) -> tuple[tf.Tensor, tf.Tensor]:
    """The threshold's digit of `width` bits from bit `lowest` up, and how many entries lie above that digit.

    Of the entries that have the threshold's `known` higher digits, `wanted` are to lie at the threshold or above it.
    """
    counts = []
    for j, b in enumerate(bits):
        with on(j):
            digit = tf.bitwise.right_shift(b - known, lowest)  # within [0, 2^width) where the higher digits are known
            digit = tf.where(digit < 0, 1 << width, digit)  # what is too great is not counted
            counts.append(tf.raw_ops.Bincount(arr=digit, size=1 << width, weights=tf.zeros([0], tf.int32)))
    with on(0):
        from_above = tf.cumsum(tf.add_n(counts), reverse=True)  # entries with this digit or a greater one
        found = tf.reduce_sum(tf.cast(from_above >= wanted, tf.int32)) - 1
        above = tf.concat([from_above[1:], [0]], 0)[found]
        return found, above
