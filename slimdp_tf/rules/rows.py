"""WHICH rows of embeddings are communicated, with all that is no embedding."""

from __future__ import annotations

import dataclasses
import itertools

import tensorflow as tf

from slimdp_tf.types import Pieces, State


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows that this round changed, the `frequent` first ones, and `random` others of every embedding.

    An embedding is what has `tall` rows at least; words are numbered by their frequency, as data sets are made. The
    numbers of the rows travel; all other entries travel without keys.

    Args:
        frequent: m_f, first rows of an embedding's part in the block that always travel.
        random: m_r, rows drawn anew in every round (some may be among the others).
        tall: rows from which on a variable counts as an embedding.
        pieces: what the block holds of the variables.

    Inspired by Xiao et al. 2017, who transfer the gradients of the most frequent words; the definition of the set is
    ours. With an optimizer that moves every row in every step (momentum, weight decay), every row is sent.
    """

    frequent: int = 100
    random: int = 100
    tall: int = 1000
    pieces: Pieces | None = None
    keyed = True
    blind = False

    def __post_init__(self):
        for name, value, least in (("frequent", self.frequent, 0), ("random", self.random, 0), ("tall", self.tall, 1)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be an integer of at least {least}. Received: {value!r}")

    def pick(self, value: tf.Tensor | None, agreed: State, seed: tf.Tensor) -> tf.Tensor:
        return self.lengthen(self._rows(value, seed))

    def shorten(self, index: tf.Tensor) -> tf.Tensor:
        """The entries `pick` has chosen, i32[k] -> the numbers of the embeddings' rows among them, i32[m]."""
        rows = []
        index = index[self._fixed() :]
        for begin, height, width, first in self._embeddings():
            inside = tf.boolean_mask(index, (index >= begin) & (index < begin + height * width))
            rows.append(first + (inside[::width] - begin) // width)
        return tf.concat([tf.zeros([0], tf.int32), *rows], 0)

    def lengthen(self, keys: tf.Tensor) -> tf.Tensor:
        """Numbers of rows, i32[m] -> all entries: what is no embedding first, then the rows, row by row."""
        found = [tf.range(begin, begin + count) for begin, count in self._others()]
        for begin, height, width, first in self._embeddings():
            rows = tf.boolean_mask(keys, (keys >= first) & (keys < first + height)) - first
            found.append(tf.reshape(begin + rows[:, None] * width + tf.range(width), [-1]))
        return tf.concat([tf.zeros([0], tf.int32), *found], 0)

    def _rows(self, value: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        if self.pieces is None:
            raise ValueError("Rows must know which rows the block holds: pieces. Received: None")
        picked = []
        for begin, height, width, first in self._embeddings():
            rows = tf.reshape(value[begin : begin + height * width], [height, width])
            is_taken = tf.reduce_any(tf.not_equal(rows, 0.0), 1) | (tf.range(height) < self.frequent)
            drawn = tf.random.stateless_uniform([self.random], seed, 0, height, tf.int32)
            is_taken |= tf.scatter_nd(drawn[:, None], tf.ones_like(drawn), [height]) > 0
            picked.append(first + tf.cast(tf.where(is_taken)[:, 0], tf.int32))
        return tf.concat([tf.zeros([0], tf.int32), *picked], 0)

    def _embeddings(self) -> list[tuple[int, int, int, int]]:
        """(first entry, rows, columns, number of its first row) of every embedding in the block."""
        pieces = self.pieces or ()
        starts = [0, *itertools.accumulate(rows * columns for rows, columns in pieces)]
        found, number = [], 0
        for start, (rows, columns) in zip(starts, pieces):
            if rows >= self.tall and columns > 1:
                found.append((start, rows, columns, number))
                number += rows
        return found

    def _others(self) -> list[tuple[int, int]]:
        """(first entry, entries) of all else."""
        pieces, tall = self.pieces or (), {start for start, *_ in self._embeddings()}
        starts = [0, *itertools.accumulate(rows * columns for rows, columns in pieces)]
        return [(start, rows * columns) for start, (rows, columns) in zip(starts, pieces) if start not in tall]

    def _fixed(self) -> int:
        return sum(count for _, count in self._others())
