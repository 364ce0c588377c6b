"""What each block holds of the variables of a model: pieces of rows and columns.

A kernel of shape [..., outputs] has one column per output unit. A cut between two servers may fall into a row of it:
the two ends of that row count as a column each, as a bias does. So blocks stay equal to one entry, whatever the shapes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import tensorflow as tf

from slimdp_tf.types import Pieces


def cut(shapes: Sequence[Sequence[int]], sizes: Sequence[int]) -> tuple[Pieces, ...]:
    """The pieces of every block, (rows, columns) each.

    Args:
        shapes: of the variables, in the order in which they are flattened.
        sizes: entries of each block; together they are all entries of the variables.
    """
    entries = sum(math.prod(shape) for shape in shapes)
    if entries != sum(sizes):
        raise ValueError(f"The shapes must hold the {sum(sizes)} entries of the blocks. Received: {entries} entries.")
    pieces: list[list[tuple[int, int]]] = [[] for _ in sizes]
    block, left = 0, sizes[0]
    for shape in shapes:
        columns = shape[-1] if len(shape) > 1 else 1
        start, end = 0, math.prod(shape)
        while start < end:
            while not left:
                block, left = block + 1, sizes[block + 1]
            taken = min(end - start, left)
            pieces[block] += _pieces_of(start, start + taken, columns)
            start, left = start + taken, left - taken
    return tuple(tuple(held) for held in pieces)


def _pieces_of(start: int, end: int, columns: int) -> list[tuple[int, int]]:
    """The entries from `start` up to `end` of a variable with so many columns, as pieces."""
    first, last = -(-start // columns), end // columns  # the whole rows
    if first > last:  # all of it within one row
        return [(end - start, 1)]
    found = [(first * columns - start, 1), (last - first, columns), (end - last * columns, 1)]
    return [piece for piece in found if piece[0]]


def columns_of(value: tf.Tensor, pieces: Pieces | None) -> list[tf.Tensor]:
    """f32[n] -> each of the pieces as f32[rows, columns]; without pieces all of it is one column."""
    if pieces is None:
        return [value[:, None]]
    parts = tf.split(value, [rows * columns for rows, columns in pieces])
    return [tf.reshape(part, piece) for part, piece in zip(parts, pieces)]


def layers_of(value: tf.Tensor, pieces: Pieces | None) -> list[tf.Tensor]:
    """f32[n] -> each of the pieces as f32[entries]; without pieces all of it is one."""
    return [value] if pieces is None else tf.split(value, [rows * columns for rows, columns in pieces])


def count_layers(pieces: Pieces | None) -> int:
    """How many `layers_of` makes."""
    return 1 if pieces is None else len(pieces)


def count_columns(pieces: Pieces | None) -> int:
    """How many columns `columns_of` makes, over all pieces."""
    return 1 if pieces is None else sum(columns for _, columns in pieces)


def flat(parts: list[tf.Tensor]) -> tf.Tensor:
    """What `columns_of` or `layers_of` made, one after another again. [n]"""
    return tf.concat([tf.reshape(part, [-1]) for part in parts], 0)


def column_numbers(index: tf.Tensor, pieces: Pieces | None) -> tf.Tensor:
    """The columns that the entries at `index` belong to, counted over all pieces, i32[k]: O(k)."""
    if pieces is None:
        return tf.zeros_like(index)
    starts = tf.constant([0, *itertools.accumulate(rows * columns for rows, columns in pieces)][:-1], tf.int32)
    widths = [columns for _, columns in pieces]
    before = tf.constant([0, *itertools.accumulate(widths)][:-1], tf.int32)
    piece = tf.searchsorted(starts, index, side="right") - 1
    return tf.gather(before, piece) + (index - tf.gather(starts, piece)) % tf.gather(tf.constant(widths), piece)
