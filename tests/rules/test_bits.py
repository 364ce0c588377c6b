"""Packed codes take the bits they need and no more; positions come back from their gaps."""

from __future__ import annotations

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from slimdp_tf.rules.bits import are_gaps, pack, packed_length, read_gaps, unpack, write_gaps


def test_the_first_code_is_in_the_lowest_bits():
    assert pack(tf.constant([1, 0, 0, 0, 0, 0, 0, 1, 1]), 1).numpy().tolist() == [0b10000001, 1]
    assert pack(tf.constant([2, 1, 0, 2, 1]), 2).numpy().tolist() == [0b10000110, 1]
    assert pack(tf.constant([5, 3, 7]), 3).numpy().tolist() == [0b11011101, 1]  # 101, 011, 111 from the right


@pytest.mark.parametrize("width", range(1, 9))
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1000])
def test_codes_come_back(width, count):
    code = np.random.default_rng(0).integers(0, 2**width, count)
    packed = pack(tf.constant(code, tf.int32), width)
    assert packed.dtype == tf.uint8 and len(packed) == -(-count * width // 8)
    np.testing.assert_array_equal(unpack(packed, count, width), code)


def test_an_entry_is_its_quotient_in_ones_and_its_remainder():
    # Width 2. Positions 0, 3, 12 with flags 1, 0, 1: gaps 0, 2, 8; entries 1, 4, 17; quotients 0, 1, 4; remainders
    # 1, 0, 1. Quotients from the right: 0, 10, 11110 as bits 0 1 0 1 1 1 1 0; remainders 01 00 01.
    payload = write_gaps(tf.constant([0, 3, 12]), tf.constant([1, 0, 1]), 2)
    assert payload["unary"].numpy().tolist() == [0b01111010]
    assert payload["remainder"].numpy().tolist() == [0b010001]


def test_the_last_byte_is_filled_with_ones():
    assert write_gaps(tf.constant([0]), tf.constant([0]), 7)["unary"].numpy().tolist() == [0b11111110]


@hypothesis.given(data=st.data(), width=st.integers(1, 8))
@hypothesis.settings(deadline=None, max_examples=30)
def test_positions_come_back(data, width):
    index = sorted(data.draw(st.sets(st.integers(0, 5000), max_size=40)))
    flag = data.draw(st.lists(st.integers(0, 1), min_size=len(index), max_size=len(index)))
    payload = write_gaps(tf.constant(index, tf.int32), tf.constant(flag, tf.int32), width)
    found, flags = read_gaps(payload, width)
    assert (found.numpy().tolist(), flags.numpy().tolist()) == (index, flag)


@pytest.mark.slow
@pytest.mark.parametrize("index", [[], [0], [100_000], [7, 40_000, 40_001]], ids=str)
def test_corners_come_back_when_traced(index):  # quotients of 32 and more, and none at all
    def there_and_back(index):
        return read_gaps(write_gaps(index, tf.ones_like(index), 7), 7)

    spec = tf.TensorSpec([None], tf.int32)
    found, flags = tf.function(there_and_back, input_signature=[spec])(tf.constant(index, tf.int32))
    assert found.numpy().tolist() == index and flags.numpy().tolist() == [1] * len(index)


def test_a_64th_costs_less_than_9_bits_per_entry():
    index = np.flatnonzero(np.random.default_rng(1).random(640_000) < 1 / 64)
    payload = write_gaps(tf.constant(index, tf.int32), tf.zeros(len(index), tf.int32), 7)
    bits = 8 * sum(len(tensor) for tensor in payload.values()) / len(index)
    assert bits == pytest.approx(8.59, abs=0.03)  # computed for Dryden's pi = 64


@hypothesis.given(count=st.integers(0, 50), width=st.integers(1, 8))
@hypothesis.settings(max_examples=30)
def test_says_how_many_bytes_it_makes(count, width):
    assert len(pack(tf.zeros([count], tf.int32), width)) == packed_length(count, width)


@hypothesis.given(data=st.data(), width=st.integers(1, 8))
@hypothesis.settings(max_examples=30)
def test_gaps_are_told_from_what_goes_beyond_or_is_cut(data, width):
    index = sorted(data.draw(st.sets(st.integers(0, 5000), min_size=1, max_size=40)))
    payload = write_gaps(tf.constant(index, tf.int32), tf.zeros([len(index)], tf.int32), width)
    assert are_gaps(payload, width, index[-1] + 1)
    assert not are_gaps(payload, width, index[-1])
    assert not are_gaps({**payload, "remainder": payload["remainder"][:-1]}, width, 5001)
    assert not are_gaps({**payload, "unary": tf.concat([payload["unary"], [0, 0]], 0)}, width, 5001)


def test_gaps_that_overflow_are_none():
    unary = pack(tf.constant([1] * 2**17 + [0] + [1] * 7), 1)
    remainder = tf.zeros([packed_length(1, 8)], tf.uint8)
    for width in (1, 7, 8):
        assert not are_gaps({"unary": unary, "remainder": remainder}, width, 1000)
