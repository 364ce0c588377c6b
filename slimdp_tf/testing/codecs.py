"""The contract of codecs."""

from __future__ import annotations

import contextlib

import numpy as np
import tensorflow as tf

from slimdp_tf.testing.contract import F32, SEED, Contract, draw_normal, make_halves, make_seed, require
from slimdp_tf.types import Codec, Payload


class CodecContract(Contract):
    """Of `types.Codec`: right on average, the same when traced, and never a number out of what is none.

    Attributes:
        is_unbiased: the mean of what is decoded is what was encoded.
        is_random: another seed gives other bytes.
        keeps_zeros: zeros are decoded as zeros.
    """

    is_unbiased = True
    is_random = True
    keeps_zeros = True
    counts = (0, 1, 37, 512, 513)

    def test_keeps_shape_and_dtype(self):
        for rule in self.rules():
            for count in self.counts:
                for name, tensor in rule.encode(draw_normal(count), make_seed(1)).items():
                    require(tensor.shape.rank == 1, f"{rule} sends {name}, which is no vector: {tensor.shape}")
                decoded = _decoded(rule, draw_normal(count))
                require(decoded.dtype == tf.float32 and decoded.shape == [count], f"{rule}, {count}: {decoded}")
                require(_is_finite(decoded), f"{rule} makes {count} numbers into {decoded}")

    def test_says_how_long_its_vectors_are(self):
        for rule in self.rules():
            for count in self.counts:
                payload = rule.encode(draw_normal(count), make_seed(1))
                made = {name: int(tf.size(tensor)) for name, tensor in payload.items()}
                for said in (rule.lengths(count), rule.lengths(tf.constant(count))):
                    said = {name: int(length) for name, length in said.items()}
                    require(said.items() <= made.items(), f"{rule} makes {made} of {count} values, and says {said}")
                    left = set(made) - set(said)
                    require(not left or hasattr(rule, "is_readable"), f"{rule} does not say how long {left} are")

    def test_zeros_stay_zeros(self):
        for rule in self.rules() if self.keeps_zeros else []:
            for count in self.counts:
                np.testing.assert_array_equal(_decoded(rule, tf.zeros([count])), np.zeros(count), f"{rule}")

    def test_is_right_on_average(self):
        seeds = tf.stack([tf.range(1000), tf.fill([1000], 5)], 1)
        for rule in self.rules() if self.is_unbiased else []:
            draw = tf.function(lambda v, rule=rule: tf.map_fn(lambda s: _decoded(rule, v, s), seeds, F32), [F32])
            for value in (draw_normal(1), draw_normal(513), *make_halves(is_mixed=False)):  # the mean of few draws
                drawn = draw(value).numpy().astype(np.float64)
                step = np.ptp(drawn, 0).max()  # a rare step may not be among the draws
                allowed = 5.0 * drawn.std(0) / 1000**0.5 + 10.0 * step / 1000 + 1e-6 * np.abs(value).max()
                off = np.abs(drawn.mean(0) - value)
                require((off <= allowed).all(), f"{rule} is biased: {off.max()} off, where {allowed.max()} is allowed")

    def test_same_seed_same_bytes(self):
        value = draw_normal(600)
        for rule in self.rules():
            first, again, other = (rule.encode(value, make_seed(number)) for number in (1, 1, 2))
            require(_bytes(first) == _bytes(again), f"{rule}: the same seed gave other bytes")
            require((_bytes(first) != _bytes(other)) == self.is_random, f"{rule}: is_random is not {self.is_random}")

    def test_traced_and_eager_agree(self):
        for rule in self.rules():
            encode, decode = tf.function(rule.encode, [F32, SEED]), tf.function(rule.decode, reduce_retracing=True)
            for value in (*map(draw_normal, self.counts), *make_halves()):
                count = int(tf.size(value))
                payload = rule.encode(value, make_seed(3))
                require(_bytes(payload) == _bytes(encode(value, make_seed(3))), f"{rule} encodes otherwise when traced")
                eager, traced = rule.decode(payload, count), decode(payload, tf.constant(count))
                require(_bytes({"": eager}) == _bytes({"": traced}), f"{rule} decodes otherwise when traced")

    def test_what_several_sent_stays_theirs(self):
        """Together values may take other sizes, but no other sign; nothing comes from who sent zeros."""
        for rule in [rule for rule in self.rules() if hasattr(rule, "together")]:
            sent = [_decoded(rule, draw_normal(600)), 3.0 * _decoded(rule, draw_normal(600)[::-1]), tf.zeros([600])]
            together = rule.together(sent, make_seed(4))
            require(len(together) == 3, f"{rule} makes {len(together)} of what 3 have sent")
            for before, after in zip(sent, together):
                require(after.shape == [600] and _is_finite(after), f"{rule} makes {before} into {after}")
                is_kept = tf.equal(after, 0.0) | tf.equal(tf.sign(after), tf.sign(before))
                require(bool(tf.reduce_all(is_kept)), f"{rule} turns {before} into {after}")

    def test_stands_a_huge_range(self):
        value = tf.constant([(-1.0) ** i * 10.0**i for i in range(-30, 31)] * 9, tf.float32)
        for rule in self.rules():
            for part in (value, value[::-1], value[:1], value[60:61]):
                require(_is_finite(_decoded(rule, part)), f"{rule} is not finite on {part}")

    def test_stands_what_float16_holds(self):
        for rule in self.rules():
            for value in make_halves():
                require(_is_finite(_decoded(rule, value)), f"{rule} is not finite on {value}")

    def test_makes_no_number_of_what_is_none(self):
        for rule in self.rules():
            for bad in (np.nan, np.inf, -np.inf):
                for count, place in ((1, 0), (513, 7), (513, 512)):
                    value = draw_normal(count).numpy()
                    value[place] = bad
                    with contextlib.suppress(ValueError, tf.errors.InvalidArgumentError):  # to refuse it is right
                        decoded = _decoded(rule, tf.constant(value)).numpy()
                        require(not np.isfinite(decoded[place]), f"{rule} makes {bad} into {decoded[place]}")


def _decoded(rule: Codec, value: tf.Tensor, seed: tf.Tensor | None = None) -> tf.Tensor:
    """What the receiver makes of `value`."""
    return rule.decode(rule.encode(value, make_seed(1) if seed is None else seed), tf.size(value))


def _bytes(payload: Payload) -> dict[str, tuple[str, bytes]]:
    return {name: (tensor.dtype.name, tensor.numpy().tobytes()) for name, tensor in payload.items()}


def _is_finite(value: tf.Tensor) -> bool:
    return bool(np.isfinite(value).all())
