"""WHICH entries are communicated: all, the core, a random explorer, or those the worker has just pushed.

`agreed` holds what both ends know of a block of n entries:
    core: i32[c], the core's positions, ascending.
    free: i32[n - c], all others, ascending; not there where there never is a core.
    share: i64[4], (entries outside the core before this block, inside it, in all blocks; entries of all blocks).
    pushed: i32[k], what this worker last pushed (only where a down channel asks for it).
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from slimdp_tf.types import State, is_number, taken


@dataclasses.dataclass(frozen=True)
class Dense:
    """Every entry, in order; no keys are needed."""

    keyed = False
    blind = True

    def pick(self, value: tf.Tensor | None, agreed: State, seed: tf.Tensor) -> tf.Tensor | None:
        return None


@dataclasses.dataclass(frozen=True)
class Core:
    """The significant entries both ends have agreed on (T_S of Slim-DP, section 3.1); the keys are cached."""

    keyed = False
    blind = True

    def pick(self, value: tf.Tensor | None, agreed: State, seed: tf.Tensor) -> tf.Tensor:
        return agreed["core"]


@dataclasses.dataclass(frozen=True)
class Pushed:
    """The entries this worker has just pushed: the server kept their keys, so the pull carries values only."""

    keyed = False
    blind = True

    def pick(self, value: tf.Tensor | None, agreed: State, seed: tf.Tensor) -> tf.Tensor | None:
        return agreed["pushed"]


@dataclasses.dataclass(frozen=True)
class Explore:
    """A random set outside the core (T_R of Slim-DP, section 3.1), drawn anew for every worker and round.

    Over all blocks exactly round(ratio * n) entries are drawn (one at least, unless ratio is 0), without replacement;
    every entry outside the core of a block is drawn with the same probability. The complement is cut into as many
    strata as there are entries to draw and turned by a random offset, and one entry is drawn from each stratum: O(k),
    distinct, ascending. A block's number of entries is its share, rounded to a whole entry.

    Where we differ from plain sampling without replacement: two neighbours are drawn together more seldom.

    Args:
        ratio: alpha - beta, the explorer's share of all n entries, in [0, 1].
        keyed: True sends the keys (the paper); False lets the receiver derive them from the same seed.
    """

    ratio: float
    keyed: bool = True
    blind = True

    def __post_init__(self):
        if not is_number(self.ratio) or not 0.0 <= self.ratio <= 1.0:
            raise ValueError(
                f"The explorer's ratio (alpha - beta) must be a number within [0, 1]. Received: {self.ratio!r}"
            )
        if not isinstance(self.keyed, bool):
            raise ValueError(f"keyed must be True (keys are sent) or False (derived). Received: {self.keyed!r}")

    def pick(self, value: tf.Tensor | None, agreed: State, seed: tf.Tensor) -> tf.Tensor:
        before, here, outside, total = tf.unstack(agreed["share"])
        wanted = tf.cast(tf.round(self.ratio * tf.cast(total, tf.float64)), tf.int64)
        wanted = tf.minimum(tf.maximum(wanted, 1 if self.ratio > 0.0 else 0), outside)
        count = _share(wanted, before + here, outside) - _share(wanted, before, outside)
        drawn = _draw_strata(here, count, seed)
        return taken(agreed["free"], drawn) if "free" in agreed else drawn


def _share(wanted: tf.Tensor, position: tf.Tensor, outside: tf.Tensor) -> tf.Tensor:
    """How many of `wanted` entries fall before `position` of `outside` when they are spread evenly. i64[]"""
    return wanted * position // tf.maximum(outside, 1)


def _count_below(ascending: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
    """How many entries of a sorted vector are below `end`. i32[]"""
    row, value = tf.expand_dims(ascending, 0), tf.reshape(end, [1, 1])
    return tf.reshape(tf.raw_ops.LowerBound(sorted_inputs=row, values=value), [])


def _draw_strata(size: tf.Tensor, count: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """`count` distinct positions of [0, size), ascending, each with probability count / size. i32[count]

    The offset makes the probabilities equal, whatever is drawn inside a stratum: there 16 bits will do.
    """
    count, end = tf.cast(count, tf.int32), tf.cast(size, tf.int32)
    for_offset, for_strata = tf.unstack(tf.random.experimental.stateless_split(seed, 2))
    offset = tf.random.stateless_uniform([], for_offset, 0, tf.maximum(end, 1), tf.int32)
    first = tf.cast(offset, tf.float64) + 1e-6  # or an edge that is a whole number may be rounded down
    last = first + tf.cast(end, tf.float64)
    edge = tf.cast(tf.raw_ops.LinSpace(start=first, stop=last, num=count + 1), tf.int32)
    width = tf.cast(edge[1:] - edge[:-1], tf.float32)
    words = tf.random.stateless_uniform([(count + 1) // 2], for_strata, None, None, tf.uint32)
    bits = tf.reshape(tf.bitcast(words, tf.uint16), [-1])[:count]
    inside = tf.cast(tf.cast(bits, tf.float32) * (width * 2.0**-16), tf.int32)
    turned = edge[:-1] + inside  # ascending, in [offset, size + offset)
    kept = _count_below(turned, end)  # those that did not run over the end
    return tf.concat([turned[kept:] - end, turned[:kept]], 0)
