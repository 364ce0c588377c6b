"""The contract of codecs finds broken ones."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf.rules.codecs import Qsgd, Raw
from slimdp_tf.testing import CodecContract
from tests.testing.breaches import breaks, find_breaches


@dataclasses.dataclass(frozen=True)
class Shrunk(Raw):
    """One part in a thousand less than it should be."""

    def decode(self, payload, count):
        return payload["value"] * 0.999


class Doubles(Raw):
    def decode(self, payload, count):
        return tf.cast(payload["value"], tf.float64)


class LosesTheLast(Raw):
    def encode(self, value, seed):
        return {"value": value[: tf.size(value) // 2 * 2]}


class Offset(Raw):
    def decode(self, payload, count):
        return payload["value"] + 1e-3


class HidesNan(Raw):
    def encode(self, value, seed):
        return {"value": tf.where(tf.math.is_finite(value), value, 0.0)}


class SendsAMatrix(Raw):
    def encode(self, value, seed):
        return {"value": value[:, None]}

    def decode(self, payload, count):
        return payload["value"][:, 0]


class RefusesNan(Raw):
    def encode(self, value, seed):
        return {"value": tf.debugging.check_numerics(value, "no number")}


class Half(Raw):
    """16-bit floats: overflows."""

    def encode(self, value, seed):
        return {"value": tf.cast(value, tf.float16)}

    def decode(self, payload, count):
        return tf.cast(payload["value"], tf.float32)


class SmallHalf(Half):
    """As `Half`, but a sum in 16 bits is its scale, which overflows earlier."""

    def decode(self, payload, count):
        value = payload["value"]
        return tf.cast(value + tf.reduce_sum(tf.abs(value)) * 0.0, tf.float32)


class DropsTheLeast(Raw):
    """What is smaller than float32's smallest steps near 1 counts as zero."""

    def encode(self, value, seed):
        return {"value": tf.where(tf.abs(value) < 1e-6, 0.0, value)}


class Nearest(Qsgd):
    """Rounds to the nearest level without drawing."""

    def encode(self, value, seed):
        level = tf.round(value * 4.0)
        return {"level": level}

    def decode(self, payload, count):
        return payload["level"] / 4.0


class Down(Qsgd):
    """Drops the fraction after drawing it: right only where nothing is drawn."""

    def encode(self, value, seed):
        payload = super().encode(value, seed)
        return dict(payload, level=payload["level"] - 1)


class Unseeded(Raw):
    def encode(self, value, seed):
        return {"value": value + 1e-7 * np.random.default_rng().normal()}


@dataclasses.dataclass(frozen=True)
class Seventh(Raw):
    """Divides by a constant, which tf.function turns into a product."""

    def decode(self, payload, count):
        return payload["value"] * 7.0 / 7.0


class SharesValues(Raw):
    """Gives everyone the sum, also who sent nothing."""

    def together(self, values, seed):
        return [tf.add_n(values)] * len(values)


class TakesHalf(Raw):
    def together(self, values, seed):
        return [value / 2.0 for value in values]


def test_keeps_the_good():
    # Those of the package are kept in tests/rules.
    assert find_breaches(CodecContract, RefusesNan(), is_random=False) == set()


@pytest.mark.slow
def test_finds_bias():
    name = "is_right_on_average"
    assert find_breaches(CodecContract, Shrunk(), is_random=False) == {name}
    assert breaks(CodecContract, name, Down())
    assert breaks(CodecContract, name, Nearest())
    assert find_breaches(CodecContract, DropsTheLeast(), is_random=False) == {name}
    # What is declared is no breach.
    assert not breaks(CodecContract, name, Shrunk(), is_unbiased=False)


def test_finds_what_is_not_left_to_who_sent_it():
    assert breaks(CodecContract, "what_several_sent_stays_theirs", SharesValues())
    assert not breaks(CodecContract, "what_several_sent_stays_theirs", TakesHalf())


def test_finds_zeros_that_are_none():
    assert find_breaches(CodecContract, Offset(), is_random=False, is_unbiased=False) == {"zeros_stay_zeros"}


def test_finds_another_shape_or_dtype():
    for rule in (Doubles(), LosesTheLast()):
        assert breaks(CodecContract, "keeps_shape_and_dtype", rule)


def test_finds_a_nan_made_a_number():
    found = find_breaches(CodecContract, HidesNan(), is_random=False, is_unbiased=False)
    assert found == {"makes_no_number_of_what_is_none"}


def test_finds_an_overflow():
    found = find_breaches(CodecContract, Half(), is_random=False, is_unbiased=False)
    assert found == {"stands_a_huge_range"}


def test_finds_what_does_not_stand_float16():
    found = find_breaches(CodecContract, SmallHalf(), is_random=False, is_unbiased=False)
    assert found == {"stands_a_huge_range", "stands_what_float16_holds"}


def test_finds_randomness_that_is_not_the_seed_s():
    for name in ("same_seed_same_bytes", "traced_and_eager_agree"):
        assert breaks(CodecContract, name, Unseeded())
    assert breaks(CodecContract, "same_seed_same_bytes", Qsgd(), is_random=False)
    assert breaks(CodecContract, "same_seed_same_bytes", Raw(), is_random=True)


def test_finds_what_is_rounded_otherwise_when_traced():
    found = find_breaches(CodecContract, Seventh(), is_random=False, is_unbiased=False)
    assert found == {"traced_and_eager_agree"}


def test_finds_what_a_slot_cannot_hold():
    assert find_breaches(CodecContract, SendsAMatrix(), is_random=False) == {"keeps_shape_and_dtype"}


def test_zeros_may_be_declared_not_to_stay():
    assert breaks(CodecContract, "zeros_stay_zeros", Offset())
    assert not breaks(CodecContract, "zeros_stay_zeros", Offset(), keeps_zeros=False)


class SaysNothing(Raw):
    def lengths(self, count):
        return {}


def test_finds_who_sends_other_lengths_than_it_says_or_does_not_say():
    assert breaks(CodecContract, "says_how_long_its_vectors_are", LosesTheLast())
    assert breaks(CodecContract, "says_how_long_its_vectors_are", SaysNothing())
    assert not breaks(CodecContract, "says_how_long_its_vectors_are", Raw(), Qsgd())
