"""OneBit and Proportion: by hand, column by column, and what they leave out."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf.exchange import payload_bytes
from slimdp_tf.rules.columns import OneBit, Proportion
from slimdp_tf.testing import CodecContract
from slimdp_tf.testing.contract import draw_normal

SEED = tf.constant([1, 2], tf.int32)
PIECES = ((5, 3), (2, 1), (70, 2))  # 157 entries, 6 columns


class TestOneBit(CodecContract):
    is_unbiased = False
    is_random = False

    def rules(self):
        return [OneBit()]


class TestProportion(CodecContract):
    is_unbiased = False

    def rules(self):
        return [Proportion(), Proportion(4, 100)]


class TestProportionOfAll(CodecContract):
    """All rows are looked at: nothing is drawn."""

    is_unbiased = False
    is_random = False

    def rules(self):
        return [Proportion(1, 1000), Proportion(10, 600)]


def decode(codec, values) -> np.ndarray:
    values = tf.constant(values, tf.float32)
    return codec.decode(codec.encode(values, SEED), tf.size(values)).numpy()


def test_one_bit_by_hand():
    # At or above zero: 1, 3, 0: mean 4/3. Below: -2, -4: mean -3.
    np.testing.assert_allclose(decode(OneBit(), [1, -2, 3, -4, 0]), [4 / 3, -3, 4 / 3, -3, 4 / 3], rtol=1e-6)
    # Two columns, (1, -3) and (-2, 4), and a bias of one entry.
    assert decode(OneBit(pieces=((2, 2), (1, 1))), [1, -2, -3, 4, 5]).tolist() == [1, -2, -3, 4, 5]


def test_one_bit_leaves_a_residual_of_mean_zero_in_every_column():
    value = draw_normal(157)
    left = value - decode(OneBit(pieces=PIECES), value)
    for start, (rows, columns) in zip((0, 15, 17), PIECES):
        column = tf.reshape(left[start : start + rows * columns], [rows, columns])
        np.testing.assert_allclose(tf.reduce_mean(column, 0), np.zeros(columns), atol=1e-6)


def test_one_bit_takes_a_bit_per_entry_and_two_floats_per_column():
    payload = OneBit(pieces=PIECES).encode(draw_normal(157), SEED)
    assert [int(b) for b in payload_bytes(payload)] == [20 + 6 * 8, 0]


def test_proportion_by_hand():
    # pi = 2. Above zero: 1, 2, 3, 4, 9: k = 2, tau = 4, mu = 6.5. Below: -1, -5: k = 1, mu = -5.
    values = [1, 2, -1, 3, 4, -5, 9, 0]
    assert decode(Proportion(2), values).tolist() == [0, 0, 0, 0, 6.5, -5, 6.5, 0]
    assert decode(Proportion(100), values).tolist() == [0, 0, 0, 0, 0, -5, 9, 0]  # one of either sign at least
    assert decode(Proportion(100), [1, 2, 3]).tolist() == [0, 0, 3]  # there is nothing below zero


@pytest.mark.parametrize("pi", [1, 3, 64])
def test_proportion_sends_as_many_of_each_column_as_it_says(pi):
    value, start = draw_normal(157), 0
    decoded = decode(Proportion(pi, pieces=PIECES), value)
    for rows, columns in PIECES:
        part = slice(start, start + rows * columns)
        before, after = (np.reshape(v[part], (rows, columns)) for v in (value.numpy(), decoded))
        for column in range(columns):
            for sign in (1, -1):
                there = (sign * before[:, column] > 0).sum()
                sent = (sign * after[:, column] > 0).sum()
                assert sent == (max(1, there // pi) if there else 0)
                if sent:  # and they are the greatest, as their mean
                    greatest = np.sort(sign * before[:, column])[-sent:]
                    np.testing.assert_allclose(
                        sign * after[:, column].max(initial=0, where=after[:, column] * sign > 0)
                        if sign > 0
                        else -after[:, column].min(),
                        greatest.mean(),
                        rtol=1e-5,
                    )
        start += rows * columns


def test_proportion_by_a_sample_sends_about_as_many():
    value = draw_normal(100_000)
    decoded = decode(Proportion(64, 4096), value)
    assert (decoded != 0).mean() == pytest.approx(1 / 64, rel=0.4)


@pytest.mark.parametrize("codec", [OneBit, Proportion])
def test_a_column_is_written_as_if_it_were_alone(codec):
    value, start, expected = draw_normal(157).numpy(), 0, []
    for rows, columns in PIECES:
        matrix = value[start : start + rows * columns].reshape(rows, columns)
        expected.append(np.stack([decode(codec(), matrix[:, c]) for c in range(columns)], 1).ravel())
        start += rows * columns
    np.testing.assert_allclose(decode(codec(pieces=PIECES), value), np.concatenate(expected), rtol=1e-6)


@pytest.mark.parametrize(("options", "name"), [({"pi": 0}, "pi"), ({"pi": 1.5}, "pi"), ({"sample": True}, "sample")])
def test_proportion_refuses(options, name):
    with pytest.raises(ValueError, match=f"{name} must be an integer of at least 1. Received: "):
        Proportion(**options)
