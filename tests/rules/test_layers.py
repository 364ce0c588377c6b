"""Ternary is right on average once clipped; LloydMax has the levels of the tables and the least error."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf.exchange import payload_bytes
from slimdp_tf.rules.layers import LloydMax, Ternary, _cuts, _levels
from slimdp_tf.testing import CodecContract
from slimdp_tf.testing.contract import draw_normal

pytestmark = pytest.mark.slow

SEED = tf.constant([1, 2], tf.int32)


class TestTernary(CodecContract):
    def rules(self):
        return [Ternary(0.0)]


class TestTernaryClipped(CodecContract):
    is_unbiased = False

    def rules(self):
        return [Ternary(), Ternary(1.0)]


class TestLloydMax(CodecContract):
    is_unbiased = False
    is_random = False

    def rules(self):
        return [LloydMax(bits) for bits in (1, 2, 3, 4)]


def decode(codec, values, seed=SEED) -> np.ndarray:
    values = tf.constant(values, tf.float32)
    return codec.decode(codec.encode(values, seed), tf.size(values)).numpy()


def test_ternary_has_three_values():
    drawn = decode(Ternary(0.0), [3.0, -1.0, 0.0, 1.5] * 50)
    assert set(drawn.tolist()) == {-3.0, 0.0, 3.0}
    assert set(drawn[::4].tolist()) == {3.0} and set(drawn[2::4].tolist()) == {0.0}  # the greatest and zero are certain


def test_ternary_is_right_on_average_for_the_clipped():
    # sigma of (0 x 15, 16) is sqrt(16 - 1) = 3.873; cut at 2.5 sigma = 9.682.
    values = [0.0] * 15 + [16.0]
    assert decode(Ternary(2.5), values)[-1] == pytest.approx(2.5 * 15**0.5, rel=1e-6)
    value = draw_normal(8).numpy()
    limit = 1.0 * value.std()
    drawn = np.mean([decode(Ternary(1.0), value, tf.constant([k, 9])) for k in range(1500)], 0)
    np.testing.assert_allclose(drawn, np.clip(value, -limit, limit), atol=5 * limit * 0.5 / 1500**0.5)


def test_every_layer_has_a_scale_of_its_own():
    for codec in (Ternary(0.0, pieces=((2, 2), (3, 1))), LloydMax(2, ((2, 2), (3, 1)))):
        value = draw_normal(7).numpy()
        both = decode(codec, np.concatenate([value[:4], 1000 * value[4:]]))
        assert np.abs(both[:4]).max() < 10
        payload = codec.encode(tf.constant(value), SEED)
        assert len(payload["scale"]) in (2, 6) and payload["code"].shape == [2]  # 7 codes of 2 bits


def test_workers_share_the_greatest_scale_of_each_layer():
    """Two layers of 4000 entries: S = 2 is worker 0's own in the first, S = 1 worker 1's in the second."""
    codec, signs = Ternary(0.0, pieces=((4000, 1), (4000, 1))), np.tile([1.0, -1.0, 0.0, 1.0], 1000)
    values = [np.concatenate([2.0 * signs, 0.5 * signs]), np.concatenate([signs, signs]), np.zeros(8000)]
    absent = 2
    drawn = [t.numpy() for t in codec.together([tf.constant(v, tf.float32) for v in values], SEED)]
    np.testing.assert_array_equal(drawn[0][:4000], values[0][:4000])
    np.testing.assert_array_equal(drawn[1][4000:], values[1][4000:])
    np.testing.assert_array_equal(drawn[absent], values[absent])
    for thinned, scale in ((drawn[1][:4000], 2.0), (drawn[0][4000:], 1.0)):
        kept = thinned[signs != 0] / scale * signs[signs != 0]
        assert set(np.unique(kept)) == {0.0, 1.0} and not thinned[signs == 0].any()
        assert abs(kept.mean() - 1 / 2) < 5 * 0.5 / 3000**0.5  # s_k / S: right on average
        assert abs((kept[:-1] * kept[1:]).mean() - 1 / 4) < 5 * 0.44 / 3000**0.5  # each entry is drawn by itself


def test_a_shared_scale_is_what_a_worker_had_sent_if_it_had_known_it():
    """P[S sign(v)] = (|v| / s) (s / S) = |v| / S, with s = 1 and S = 4."""
    codec, value = Ternary(0.0), np.array([1.0] * 4000 + [-0.6] * 4000, np.float32)
    own = codec.decode(codec.encode(tf.constant(value), SEED), 8000)
    greatest = tf.constant([4.0] + [0.0] * 7999)
    sent = codec.together([own, greatest], SEED + 1)[0].numpy()
    assert set(np.unique(sent)) == {-4.0, 0.0, 4.0}
    for part, chance in ((sent[:4000] == 4.0, 1 / 4), (sent[4000:] == -4.0, 0.6 / 4)):
        assert abs(part.mean() - chance) < 5 * (chance * (1 - chance) / 4000) ** 0.5


def test_each_worker_may_keep_its_own_scale():
    values = [tf.constant([2.0, 0.0]), tf.constant([1.0, 1.0])]
    assert Ternary(shares_scale=False).together(values, SEED) is values


def test_ternary_takes_two_bits():
    assert [int(b) for b in payload_bytes(Ternary().encode(draw_normal(1000), SEED))] == [254, 0]


def test_levels_are_those_of_the_tables():
    for bits, normal, laplace in (
        (1, [0.7979], [0.7071]),
        (2, [0.4528, 1.5104], [0.4198, 1.8340]),
        (3, [0.2451, 0.7560, 1.3439, 2.1520], None),
    ):
        np.testing.assert_allclose(_levels(bits)[0], normal, atol=1e-4)
        if laplace:
            np.testing.assert_allclose(_levels(bits)[1], laplace, atol=1e-4)
    np.testing.assert_allclose(_cuts(_levels(2)[0]), [0.9816], atol=1e-4)
    np.testing.assert_allclose(_cuts(_levels(2)[1]), [1.1269], atol=1e-4)


@pytest.mark.parametrize(
    ("draw", "errors"),
    [("normal", [0.3634, 0.1175, 0.0345, 0.0095]), ("laplace", [0.5, 0.1762, 0.0545, 0.0154])],
)
def test_the_error_is_the_least_for_the_distribution(draw, errors):
    value = getattr(np.random.default_rng(3), draw)(size=100_000)
    value = (7.0 + 5.0 * value / value.std()).astype(np.float32)
    for bits, error in enumerate(errors, 1):
        left = value - decode(LloydMax(bits), value)
        assert (left**2).mean() / 25.0 == pytest.approx(error, rel=0.05)


def test_one_value_is_exact():
    assert decode(LloydMax(), [3.5]).tolist() == [3.5]


@pytest.mark.parametrize("bits", [0, 5, 2.0, True, "2"])
def test_lloyd_max_refuses(bits):
    with pytest.raises(ValueError, match="bits must be an integer from 1 to 4. Received: "):
        LloydMax(bits)


@pytest.mark.parametrize("clip", [-1, float("nan"), "2.5", None])
def test_ternary_refuses(clip):
    with pytest.raises(ValueError, match="clip, in standard deviations, .* Received: "):
        Ternary(clip)


@pytest.mark.parametrize("shares", [1, None, "yes"])
def test_ternary_refuses_what_is_no_bool(shares):
    with pytest.raises(ValueError, match="shares_scale must be True or False. Received: "):
        Ternary(2.5, shares)
