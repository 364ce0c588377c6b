"""HOW values are written, layer by layer: a layer is what the block holds of one variable.

`pieces` says which entries of the block are whose (`slimdp_tf.pieces`); without it the block is one layer.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import tensorflow as tf

from slimdp_tf.pieces import count_layers, flat, layers_of
from slimdp_tf.rules.bits import pack, packed_length, unpack
from slimdp_tf.types import Payload, Pieces, is_number


@dataclasses.dataclass(frozen=True)
class Ternary:
    """TernGrad: -s, 0 or s, drawn so that the mean is the value, after clipping; two bits each.

    With sigma the standard deviation of the layer, v' = v cut to [-clip sigma, clip sigma] and s = max|v'|:
    decoded = s sign(v') [u < |v'| / s], u uniform in [0, 1).

    Args:
        clip: in standard deviations; 0 does not clip, and then the codec is unbiased.
        shares_scale: whether all workers of a round have the greatest s of them, as in the paper: their sum is an
            integer times s then.
        pieces: what the block holds of the variables.

    Reference: Wen et al. 2017, sections 3.1 to 3.3. We differ in how the scale is shared, see `together`.
    """

    clip: float = 2.5
    shares_scale: bool = True
    pieces: Pieces | None = None

    def __post_init__(self):
        if not is_number(self.clip) or self.clip < 0.0:
            raise ValueError(f"clip, in standard deviations, must be a number of at least 0. Received: {self.clip!r}")
        if not isinstance(self.shares_scale, bool):
            raise ValueError(f"shares_scale must be True or False. Received: {self.shares_scale!r}")

    def encode(self, value: tf.Tensor, seed: tf.Tensor) -> Payload:
        dither = layers_of(tf.random.stateless_uniform(tf.shape(value), seed), self.pieces)
        codes, scales = [], []
        for layer, random in zip(layers_of(value, self.pieces), dither):
            _, sigma = _moments(layer)
            limit = self.clip * sigma if self.clip else float("inf")
            clipped = tf.clip_by_value(layer, -limit, limit)
            scale = tf.reduce_max(tf.concat([tf.abs(clipped), [0.0]], 0))
            is_kept = random < tf.math.divide_no_nan(tf.abs(clipped), scale)
            codes.append(tf.where(is_kept, tf.sign(clipped), 0.0) + 1.0)
            scales.append(tf.where(tf.reduce_all(tf.math.is_finite(layer)), scale, float("nan")))
        return {"code": pack(tf.cast(flat(codes), tf.uint8), 2), "scale": tf.stack(scales)}

    def decode(self, payload: Payload, count: tf.Tensor | int) -> tf.Tensor:
        sign = tf.cast(unpack(payload["code"], count, 2), tf.float32) - 1.0
        return flat([layer * payload["scale"][i] for i, layer in enumerate(layers_of(sign, self.pieces))])

    def together(self, values: list[tf.Tensor], seed: tf.Tensor) -> list[tf.Tensor]:
        """Decoded values of each worker, f32[n], zeros of one that is absent -> those with the scale of all.

        With s_k of worker k and S = max_k s_k, what is not zero becomes S sign(v) with probability s_k / S, else 0:
        [u < |v'| / s_k] [u' < s_k / S] is [u'' < |v'| / S], what the worker had sent if it had known S. So nobody needs
        to tell scales before the round. The greatest value of a layer is never dropped: s_k is max|decoded|.
        """
        if not self.shares_scale:
            return values
        by_worker = [layers_of(value, self.pieces) for value in values]
        seeds = tf.unstack(tf.random.experimental.stateless_split(seed, len(values)))
        scales = [tf.stack([tf.reduce_max(tf.concat([tf.abs(layer), [0.0]], 0)) for layer in w]) for w in by_worker]
        greatest, shared = tf.reduce_max(tf.stack(scales), 0), []
        for value, layers, own, its_seed in zip(values, by_worker, scales, seeds):
            drawn = tf.random.stateless_uniform(tf.shape(value), its_seed)
            chance = tf.math.divide_no_nan(own, greatest)
            shared.append(
                [
                    tf.where(random < chance[i], tf.sign(layer) * greatest[i], 0.0)
                    for i, (layer, random) in enumerate(zip(layers, layers_of(drawn, self.pieces)))
                ]
            )
        return [flat(layers) for layers in shared]

    def lengths(self, count: tf.Tensor | int) -> dict[str, tf.Tensor | int]:
        return {"code": packed_length(count, 2), "scale": count_layers(self.pieces)}


@dataclasses.dataclass(frozen=True)
class LloydMax:
    """Each value as the nearest of 2^bits levels that suit the layer's distribution best: normal or Laplace.

    With m, sigma and the kurtosis of the layer: a Laplace distribution above 4.2, else a normal one;
    decoded = m + sigma level[nearest]. The levels have the least mean squared error for that distribution.

    Args:
        bits: bits per value, 1 to 4.
        pieces: what the block holds of the variables.

    Inspired by Zhang et al. (MIPD, 2022), who quantise layer by layer for the distribution of least error; the
    definition is ours. Biased: what it leaves out is for a memory to keep.
    """

    bits: int = 2
    pieces: Pieces | None = None

    def __post_init__(self):
        if isinstance(self.bits, bool) or not isinstance(self.bits, int) or not 1 <= self.bits <= 4:
            raise ValueError(f"bits must be an integer from 1 to 4. Received: {self.bits!r}")

    def encode(self, value: tf.Tensor, seed: tf.Tensor) -> Payload:
        codes, facts = [], []
        cuts = tf.constant([_cuts(levels) for levels in _levels(self.bits)], tf.float32)  # [family, levels - 1]
        for layer in layers_of(value, self.pieces):
            mean, sigma = _moments(layer)
            centred = tf.math.divide_no_nan(layer - mean, sigma)
            family = tf.cast(_moments(tf.square(tf.square(centred)))[0] > 4.2, tf.int32)
            level = tf.reduce_sum(tf.cast(tf.abs(centred)[:, None] > cuts[family], tf.int32), 1)
            codes.append(level + 2 ** (self.bits - 1) * tf.cast(centred < 0.0, tf.int32))
            facts.append(tf.stack([mean, sigma, tf.cast(family, tf.float32)]))
        return {"code": pack(flat(codes), self.bits), "scale": flat(facts)}

    def decode(self, payload: Payload, count: tf.Tensor | int) -> tf.Tensor:
        levels = tf.constant([[*half, *(-x for x in half)] for half in _levels(self.bits)], tf.float32)
        values = []
        code = tf.cast(unpack(payload["code"], count, self.bits), tf.int32)
        for i, layer in enumerate(layers_of(code, self.pieces)):
            mean, sigma, family = tf.unstack(payload["scale"][3 * i : 3 * i + 3], 3)
            known = tf.math.is_finite(family) & (family > 0.0)
            values.append(mean + sigma * tf.gather(levels[tf.cast(known, tf.int32)], layer))
        return flat(values)

    def lengths(self, count: tf.Tensor | int) -> dict[str, tf.Tensor | int]:
        return {"code": packed_length(count, self.bits), "scale": 3 * count_layers(self.pieces)}


def _moments(layer: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and standard deviation, 0 for no values; of values / greatest, whose squares stay finite."""
    size = tf.reduce_max(tf.concat([tf.abs(layer), [0.0]], 0))
    count, scaled = tf.cast(tf.size(layer), tf.float32), tf.math.divide_no_nan(layer, size)
    mean = tf.math.divide_no_nan(tf.reduce_sum(scaled), count)
    variance = tf.math.divide_no_nan(tf.reduce_sum(tf.square(scaled - mean)), count)
    is_finite = tf.reduce_all(tf.math.is_finite(layer))
    return tf.where(is_finite, mean * size, float("nan")), tf.where(is_finite, tf.sqrt(variance) * size, float("nan"))


@functools.cache
def _levels(bits: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The levels above zero of unit variance: of the normal distribution, and of Laplace's."""
    return tuple(_solve(2 ** (bits - 1), centroid) for centroid in (_normal_centroid, _laplace_centroid))


def _solve(count: int, centroid) -> tuple[float, ...]:
    """Lloyd's iteration: cuts midway between levels, levels at the centroids between cuts."""
    levels = [(i + 0.5) * 3.0 / count for i in range(count)]
    for _ in range(2000):
        ends = [0.0, *_cuts(levels), math.inf]
        levels = [centroid(a, b) for a, b in zip(ends, ends[1:])]
    return tuple(levels)


def _cuts(levels) -> list[float]:
    return [(a + b) / 2 for a, b in zip(levels, levels[1:])]


def _normal_centroid(a: float, b: float) -> float:
    density = [math.exp(-x * x / 2) / math.sqrt(2 * math.pi) for x in (a, b)]
    mass = (math.erf(b / math.sqrt(2)) - math.erf(a / math.sqrt(2))) / 2
    return (density[0] - density[1]) / mass


def _laplace_centroid(a: float, b: float) -> float:
    tail = [math.exp(-math.sqrt(2) * x) for x in (a, b)]
    first = [(x + 1 / math.sqrt(2)) * t if t else 0.0 for x, t in zip((a, b), tail)]
    return (first[0] - first[1]) / (tail[0] - tail[1])
