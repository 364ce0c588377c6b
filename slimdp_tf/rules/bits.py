"""Small codes packed into bytes, and positions as Golomb-Rice codes of the gaps between them."""

from __future__ import annotations

import tensorflow as tf


def pack(code: tf.Tensor, width: int) -> tf.Tensor:
    """Codes of [0, 2^width), [k] -> u8[ceil(k width / 8)], the first one in the lowest bits; 1 <= width <= 8."""
    if 8 % width:
        bits = tf.bitwise.right_shift(tf.cast(code, tf.uint8)[:, None], _places(width, 1))
        return pack(tf.reshape(tf.bitwise.bitwise_and(bits, 1), [-1]), 1)
    each, count = 8 // width, tf.size(code)
    padded = tf.pad(tf.cast(code, tf.uint8), [[0, -count % each]])
    return tf.reduce_sum(tf.bitwise.left_shift(tf.reshape(padded, [-1, each]), _places(8, width)), 1)


def packed_length(count: tf.Tensor | int, width: int) -> tf.Tensor | int:
    """How many bytes `pack` makes of `count` codes."""
    return (count * width + 7) // 8


def unpack(packed: tf.Tensor, count: tf.Tensor | int, width: int) -> tf.Tensor:
    """What `pack` made of `count` codes -> u8[count]."""
    if 8 % width:
        bits = tf.reshape(unpack(packed, count * width, 1), [-1, width])
        return tf.reduce_sum(tf.bitwise.left_shift(bits, _places(width, 1)), 1)
    shifted = tf.bitwise.right_shift(packed[:, None], _places(8, width))
    codes = tf.bitwise.bitwise_and(shifted, tf.constant((1 << width) - 1, tf.uint8))
    return tf.reshape(codes, [-1])[:count]


def write_gaps(index: tf.Tensor, flag: tf.Tensor, width: int) -> dict[str, tf.Tensor]:
    """Ascending positions i32[k] with a flag (0 or 1) each -> bytes in which near positions are short.

    An entry is 2 (gap) + flag; its quotient by 2^width is written as so many ones and a zero, its remainder in `width`
    bits. The quotients stand together and so do the remainders: as many bits as one after the other, and both ends work
    on all entries at once. Bits that fill the last byte of the quotients are ones.
    """
    gap = index - tf.concat([[-1], index], 0)[: tf.size(index)] - 1
    entry = 2 * gap + tf.cast(flag, tf.int32)
    ends = tf.cumsum(tf.bitwise.right_shift(entry, width) + 1) - 1  # where the zeros stand
    length = tf.reduce_max(tf.concat([ends + 1, [0]], 0))
    ones = tf.ones([length + -length % 8], tf.uint8)
    unary = tf.tensor_scatter_nd_update(ones, ends[:, None], tf.zeros_like(ends, tf.uint8))
    return {"unary": pack(unary, 1), "remainder": pack(tf.bitwise.bitwise_and(entry, (1 << width) - 1), width)}


def read_gaps(payload: dict[str, tf.Tensor], width: int) -> tuple[tf.Tensor, tf.Tensor]:
    """What `write_gaps` made -> positions i32[k] and flags i32[k]."""
    unary = unpack(payload["unary"], 8 * tf.size(payload["unary"]), 1)
    ends = tf.cast(tf.where(tf.equal(unary, 0))[:, 0], tf.int32)
    quotient = ends - tf.concat([[-1], ends], 0)[: tf.size(ends)] - 1
    remainder = tf.cast(unpack(payload["remainder"], tf.size(ends), width), tf.int32)
    entry = tf.bitwise.left_shift(quotient, width) + remainder
    return tf.cumsum(tf.bitwise.right_shift(entry, 1) + 1) - 1, tf.bitwise.bitwise_and(entry, 1)


def are_gaps(payload: dict[str, tf.Tensor], width: int, size: tf.Tensor | int) -> tf.Tensor:
    """Whether `read_gaps` can read it, and finds ascending positions in [0, size), bool[]."""
    unary = unpack(payload["unary"], 8 * tf.size(payload["unary"]), 1)
    zeros = tf.size(unary) - tf.reduce_sum(tf.cast(unary, tf.int32))

    def are_positions() -> tf.Tensor:
        index, _ = read_gaps(payload, width)
        ascending = tf.concat([[-1], index, [size]], 0)
        return tf.reduce_all(ascending[1:] > ascending[:-1])

    is_whole = tf.equal(tf.size(payload["remainder"]), packed_length(zeros, width))
    return tf.cond(is_whole, are_positions, lambda: tf.constant(False))


def _places(end: int, step: int) -> tf.Tensor:
    """0, step, 2 step, ... below `end`, u8."""
    return tf.constant(list(range(0, end, step)), tf.uint8)
