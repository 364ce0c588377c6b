"""WHICH entries are communicated: those of greatest magnitude, found exactly or by a threshold from a sample.

`agreed` holds, beside what `rules.selectors` knows, "round": i32[], and "local": f32[n], the block's weights.
"""

from __future__ import annotations

import dataclasses
import math

import tensorflow as tf

from slimdp_tf.pieces import layers_of
from slimdp_tf.ranking import greatest_here
from slimdp_tf.types import Pieces, State, is_number


@dataclasses.dataclass(frozen=True)
class TopK:
    """The share `ratio` of the entries with the greatest |v|, at least one; ascending. Their keys travel.

    With a sample, the threshold is taken from it and so is what lies above it: about as many entries, at most 1.3
    times as many (the greatest of them), at least one. In a warm-up the share falls from near 1 to `ratio`.

    Args:
        ratio: share of the entries that is sent, in (0, 1].
        sample: share of the entries that the threshold is taken from; 0 finds the greatest exactly.
        by: "block" ranks all entries of a block together, "layer" those of each variable by themselves.
        warmup: rounds until `ratio` is reached: ratio^((e + 1) / (stages + 1)) in stage e of it.
        stages: of the warm-up.
        pieces: what the block holds of the variables.

    Reference: Aji & Heafield 2017 (by block); Lin et al. 2018, algorithm 4 and section 3.3 (by layer, with a sample and
    a warm-up; we do not lower a threshold that gave too few).
    """

    ratio: float = 0.01
    sample: float = 0.0
    by: str = "block"
    warmup: int = 0
    stages: int = 4
    pieces: Pieces | None = None
    keyed = True
    blind = False

    def __post_init__(self):
        _check_share("ratio", self.ratio, self.ratio != 0)
        _check_share("sample", self.sample)
        if self.by not in ("block", "layer"):
            raise ValueError(f"by must be 'block' or 'layer'. Received: {self.by!r}")
        for name, value, least in (("warmup", self.warmup, 0), ("stages", self.stages, 1)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be an integer of at least {least}. Received: {value!r}")

    def pick(self, value: tf.Tensor | None, agreed: State, seed: tf.Tensor) -> tf.Tensor:
        size = tf.abs(value)
        size = tf.where(tf.math.is_finite(size), size, float("inf"))  # so that nan is sent, and seen
        ratio, start, picked = self._ratio(agreed), 0, []
        for layer in layers_of(size, self.pieces) if self.by == "layer" else [size]:
            count = tf.cast(tf.round(ratio * tf.cast(tf.size(layer), tf.float32)), tf.int32)
            count = tf.minimum(tf.maximum(count, 1), tf.size(layer))
            found = self._above(layer, count, seed) if self.sample else tf.math.top_k(layer, count).indices
            picked.append(start + tf.sort(found))
            start += tf.size(layer)
        return tf.concat(picked, 0)

    def _ratio(self, agreed: State) -> tf.Tensor:
        if not self.warmup:
            return tf.constant(self.ratio, tf.float32)
        stage = tf.cast(agreed["round"] * self.stages // self.warmup, tf.float32)
        exponent = tf.minimum((stage + 1.0) / (self.stages + 1.0), 1.0)
        return tf.exp(exponent * math.log(self.ratio))

    def _above(self, size: tf.Tensor, count: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """About `count` of the greatest, by a strided sample from a random start."""
        entries = tf.size(size)
        wanted = tf.cast(tf.math.ceil(self.sample * tf.cast(entries, tf.float32)), tf.int32)
        least = tf.cast(tf.math.ceil(2.0 * tf.cast(entries, tf.float32) / tf.cast(count, tf.float32)), tf.int32)
        drawn = tf.minimum(tf.maximum(wanted, least), entries)
        start = tf.random.stateless_uniform([], seed, 0, 2**30, tf.int32)
        sample = tf.gather(size, (start % entries + entries // drawn * tf.range(drawn)) % entries)
        rank = tf.cast(
            tf.math.ceil(tf.cast(count, tf.float32) / tf.cast(entries, tf.float32) * tf.cast(drawn, tf.float32)),
            tf.int32,
        )
        threshold = tf.reduce_min(tf.math.top_k(sample, tf.minimum(rank, drawn)).values)
        above = tf.cast(tf.where(size >= threshold)[:, 0], tf.int32)
        most = tf.minimum(tf.cast(1.3 * tf.cast(count, tf.float32), tf.int32) + 1, tf.size(above))
        return tf.gather(above, tf.math.top_k(tf.gather(size, above), most).indices)


@dataclasses.dataclass(frozen=True)
class Relevant:
    """The entries whose update matters most to the weights, with more of them from layers that matter more.

    I_i = |v_i| (|w_i| + mean|w|), a Taylor term that does not vanish with the weight. Layer l gets the share
    ratio n (sum of I in l / sum of I) of the entries, at least `least` of its own and at most all.

    Args:
        ratio: share of all entries, in (0, 1].
        least: share of every layer's entries, in [0, 1].
        pieces: what the block holds of the variables.

    Inspired by Zhang et al. (MIPD, 2022), who sparsify layer by layer by the significance of parameters; the formula is
    ours. What waits in the memory takes the place of a moving average of I.
    """

    ratio: float = 0.5
    least: float = 0.01
    pieces: Pieces | None = None
    keyed = True
    blind = False

    def __post_init__(self):
        _check_share("ratio", self.ratio, self.ratio != 0)
        _check_share("least", self.least)

    def pick(self, value: tf.Tensor | None, agreed: State, seed: tf.Tensor) -> tf.Tensor:
        weight = tf.abs(agreed["local"])
        weight = tf.where(tf.math.is_finite(weight), weight, 0.0)
        relevance = tf.abs(value) * (weight + tf.reduce_mean(weight))
        relevance = tf.where(tf.math.is_finite(value), relevance, float("inf"))
        layers, start, picked = layers_of(relevance, self.pieces), 0, []
        sums = [tf.reduce_sum(tf.where(tf.math.is_finite(layer), layer, 0.0)) for layer in layers]
        total, wanted = tf.add_n(sums), self.ratio * tf.cast(tf.size(value), tf.float32)
        for layer, here in zip(layers, sums):
            entries = tf.cast(tf.size(layer), tf.float32)
            share = tf.where(total > 0.0, tf.math.divide_no_nan(here, total) * wanted, self.ratio * entries)
            count = tf.cast(tf.round(tf.maximum(share, self.least * entries)), tf.int32)
            count = tf.minimum(tf.maximum(count, 1), tf.size(layer))
            picked.append(start + greatest_here(layer, count))  # for half a layer top_k's heap is slow
            start += tf.size(layer)
        return tf.concat(picked, 0)


def _check_share(name: str, value: object, is_allowed: bool = True) -> None:
    if not is_number(value) or not 0.0 <= value <= 1.0 or not is_allowed:
        raise ValueError(f"{name} must be a share within [0, 1]. Received: {value!r}")
