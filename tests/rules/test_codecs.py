"""Raw is exact; Qsgd is right on average, within its bounds, and one byte per value and one scale per bucket."""

from __future__ import annotations

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from slimdp_tf.exchange import payload_bytes
from slimdp_tf.inspection import is_finite
from slimdp_tf.rules.codecs import Qsgd, Raw
from slimdp_tf.testing import CodecContract

SEED = tf.constant([11, 22], tf.int32)


class TestRaw(CodecContract):
    is_random = False

    def rules(self):
        return [Raw()]


class TestQsgd(CodecContract):
    def rules(self):
        return [Qsgd(), Qsgd(4, 100), Qsgd(2, 7), Qsgd(8, 512, "l2")]


class TestQsgdOfOne(CodecContract):
    """Buckets of one value: every value is its own scale, nothing is left to draw."""

    is_random = False

    def rules(self):
        return [Qsgd(8, 1)]


def decode(codec, values, seed=SEED) -> np.ndarray:
    values = tf.constant(values, tf.float32)
    return codec.decode(codec.encode(values, seed), tf.size(values)).numpy()


def draw(codec, values, draws: int) -> np.ndarray:
    """f64[draws, bucket]: one bucket of values, drawn again and again, as so many buckets of one vector."""
    assert len(values) == codec.bucket
    return decode(codec, np.tile(values, draws)).astype(np.float64).reshape(draws, -1)


# -- Raw ----------------------------------------------------------------------------------------------------------


def test_raw_sends_every_bit():
    values = np.array([1.0, -0.0, 1e-45, 3.4e38, np.nan, np.inf], np.float32)
    payload = Raw().encode(tf.constant(values), SEED)
    assert Raw().decode(payload, 6).numpy().tobytes() == values.tobytes()
    assert [int(b) for b in payload_bytes(payload)] == [24, 0]


def test_raw_sends_float16_values_exactly():
    values = np.array([6e-8, 65504.0, -0.1, 1 / 3], np.float16)  # the least and the greatest of them, too
    np.testing.assert_array_equal(decode(Raw(), values.astype(np.float32)).astype(np.float16), values)


# -- Qsgd, by hand ------------------------------------------------------------------------------------------------


def test_levels_that_are_whole_are_exact():
    # 3 bits: s = 2^(3-1) - 1 = 3. max: N = 3, so a = |v| / 3 * 3 = |v| is whole: levels 3, -1, 0, 2, nothing is drawn.
    payload = Qsgd(3, 4).encode(tf.constant([3.0, -1.0, 0.0, 2.0]), SEED)
    assert payload["level"].numpy().tolist() == [3, -1, 0, 2]
    assert payload["scale"].numpy().tolist() == [3.0]
    np.testing.assert_allclose(decode(Qsgd(3, 4), [3.0, -1.0, 0.0, 2.0]), [3.0, -1.0, 0.0, 2.0], rtol=1e-7)


def test_levels_of_the_l2_norm():
    # N = sqrt(9 + 16) = 5, s = 1 (2 bits): a = 0.6 and 0.8, so each level is 0 or +-1, decoded as 0 or +-5.
    payload = Qsgd(2, 2, "l2").encode(tf.constant([3.0, -4.0]), SEED)
    assert payload["scale"].numpy().tolist() == [5.0]
    drawn = draw(Qsgd(2, 2, "l2"), [3.0, -4.0], 2000)
    assert set(np.unique(drawn)) == {-5.0, 0.0, 5.0}
    # P(level 1) = 0.6 and 0.8; standard errors sqrt(.24 / 2000) = .011 and sqrt(.16 / 2000) = .009
    assert np.mean(drawn[:, 0] == 5.0) == pytest.approx(0.6, abs=0.055)
    assert np.mean(drawn[:, 1] == -5.0) == pytest.approx(0.8, abs=0.045)


def test_half_a_level_goes_up_half_of_the_time():
    # 8 bits: s = 127. N = 127, v = 0.5: a = 0.5, so level 0 or 1 with probability 1/2 each, decoded as 0 or 1.
    drawn = draw(Qsgd(8, 2), [127.0, 0.5], 2000)[:, 1]
    assert set(np.unique(drawn.round(6))) == {0.0, 1.0}
    assert drawn.mean() == pytest.approx(0.5, abs=5 * np.sqrt(0.25 / 2000))


def test_every_bucket_has_its_own_scale():
    values = [1.0, 0.5, 100.0, -50.0, 0.0, 0.0, -7.0]  # buckets of 2; the last has one value
    payload = Qsgd(8, 2).encode(tf.constant(values), SEED)
    assert payload["scale"].numpy().tolist() == [1.0, 100.0, 0.0, 7.0]
    assert payload["level"].numpy()[[0, 2, 4, 5, 6]].tolist() == [127, 127, 0, 0, -127]


def test_a_bucket_of_one_is_nearly_exact():
    values = np.random.default_rng(0).normal(size=50)  # N = |v|, level +-s: only the scale's own rounding is left
    np.testing.assert_allclose(decode(Qsgd(8, 1), values), values, rtol=3e-7)


@pytest.mark.parametrize(("count", "scales"), [(0, 0), (1, 1), (511, 1), (512, 1), (513, 2), (1024, 2), (1025, 3)])
def test_bytes_are_one_per_value_and_four_per_bucket(count, scales):
    payload = Qsgd(8, 512).encode(tf.ones([count]), SEED)
    assert [int(b) for b in payload_bytes(payload)] == [count + 4 * scales, 0]
    assert (payload["level"].dtype, payload["scale"].dtype) == (tf.int8, tf.float32)


# -- Qsgd, the bounds ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [Qsgd(8, 64), Qsgd(4, 64), Qsgd(4, 64, "l2")], ids=str)
def test_mean_is_within_five_standard_errors(codec):
    values = np.random.default_rng(1).normal(size=64).astype(np.float32)
    drawn = draw(codec, values, 4000)
    error = drawn.std(0, ddof=1) / np.sqrt(4000)
    assert (np.abs(drawn.mean(0) - values) <= 5 * error + 1e-6).all()


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_variance_is_within_the_theorem(bits):
    # E||Q(v) - v||^2 <= min(d / s^2, sqrt(d) / s) ||v||^2, for the l2 norm (arXiv 1610.02132, lemma 3.1)
    d, s = 128, 2 ** (bits - 1) - 1
    values = np.random.default_rng(2).normal(size=d).astype(np.float32)
    spread = ((draw(Qsgd(bits, d, "l2"), values, 1000) - values) ** 2).sum(1).mean()
    assert spread <= min(d / s**2, np.sqrt(d) / s) * (values**2).sum()
    # The maximum as the scale is never worse.
    assert ((draw(Qsgd(bits, d), values, 1000) - values) ** 2).sum(1).mean() <= spread


@pytest.mark.slow
@hypothesis.settings(max_examples=40)
@hypothesis.given(
    values=st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=40),
    bits=st.integers(2, 8),
    bucket=st.integers(1, 50),
    seed=st.integers(0, 2**31 - 1),
)
def test_error_is_at_most_a_level_and_signs_stay(values, bits, bucket, seed):
    values = np.array(values, np.float32)
    values[np.abs(values) < 1e-30] = 0.0  # less than that may become zero
    codec = Qsgd(bits, bucket)
    decoded = decode(codec, values, tf.constant([seed, 3], tf.int32))
    buckets = [slice(start, start + bucket) for start in range(0, len(values), bucket)]
    for part in buckets:
        level = np.abs(values[part]).max().astype(np.float64) / codec.levels
        assert (np.abs(decoded[part].astype(np.float64) - values[part]) <= level * (1 + 1e-5)).all()
    assert (decoded * np.sign(values) >= 0).all()
    assert (decoded[values == 0] == 0).all()


def test_a_partial_bucket_is_written_as_if_alone():
    values = np.random.default_rng(3).normal(size=9).astype(np.float32)
    payload = Qsgd(8, 4).encode(tf.constant(values), SEED)
    np.testing.assert_allclose(payload["scale"], [np.abs(values[i : i + 4]).max() for i in (0, 4, 8)])
    assert payload["level"].shape == [9]


@pytest.mark.parametrize("norm", ["max", "l2"])
@pytest.mark.parametrize("size", [1e-30, 1e-20, 1e20, 1e30])
def test_size_of_the_values_does_not_matter(norm, size):
    values = np.array([1.0, -0.25, 0.5, 0.0], np.float32)
    np.testing.assert_allclose(decode(Qsgd(8, 4, norm), values * size) / size, values, atol=1.2 / 127)


def test_only_the_bucket_of_a_nan_is_lost():
    values = np.ones(6, np.float32)
    values[2] = np.nan
    payload = Qsgd(8, 2).encode(tf.constant(values), SEED)
    assert not is_finite(payload)
    decoded = Qsgd(8, 2).decode(payload, 6).numpy()
    assert np.isnan(decoded[2:4]).all()
    np.testing.assert_allclose(decoded[[0, 1, 4, 5]], 1.0, rtol=1e-6)


# -- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [0, 1, 9, -8, True, 8.0, "8", None, float("nan")])
def test_refuses_bits(bits):
    with pytest.raises(ValueError, match=r"bits must be an integer from 2 to 8 .* Received: "):
        Qsgd(bits=bits)


@pytest.mark.parametrize("bucket", [0, -1, True, 512.0, "512", None])
def test_refuses_bucket(bucket):
    with pytest.raises(ValueError, match=r"bucket must be an integer of at least 1\. Received: "):
        Qsgd(bucket=bucket)


@pytest.mark.parametrize("norm", ["L2", "", None, 2])
def test_refuses_norm(norm):
    with pytest.raises(ValueError, match=r"norm must be 'max' or 'l2'\. Received: "):
        Qsgd(norm=norm)
