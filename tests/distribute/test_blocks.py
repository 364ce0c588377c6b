"""Layout: variables become equal blocks and come back as they were."""

import math

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from slimdp_tf.distribute.blocks import Layout

MODELS = {
    "one_huge_and_many_tiny": [(3000, 400), *[(7,)] * 60, (1,), ()],
    "vgg_like": [(3, 3, 3, 64), (64,), (3, 3, 64, 128), (128,), (2048, 512), (512,), (512, 10), (10,)],
    "embedding_first": [(50_000, 16), (16, 8), (8,)],
    "odd": [(11,), (13, 17), (1, 1, 1)],
}


def make_variables(shapes: list[tuple[int, ...]], dtype=tf.float32) -> list[tf.Variable]:
    return [tf.Variable(tf.zeros(shape, dtype)) for shape in shapes]


@pytest.mark.parametrize("servers", range(1, 9))
@pytest.mark.parametrize("name", MODELS)
def test_blocks_are_equal_within_five_percent(name, servers):
    layout = Layout.of(make_variables(MODELS[name]), servers)
    assert layout.entries == sum(math.prod(shape) for shape in MODELS[name])
    assert len(layout.sizes) == servers
    assert max(layout.sizes) <= 1.05 * min(layout.sizes)
    assert all(start % 16 == 0 for start in layout.starts) or max(layout.sizes) - min(layout.sizes) <= 1


@pytest.mark.parametrize("servers", range(1, 9))
@pytest.mark.parametrize("entries", [1, 2, 3, 7])
def test_a_model_smaller_than_the_servers_leaves_the_last_ones_out(entries, servers):
    layout = Layout.of(make_variables([(entries,)]), servers)
    assert len(layout.sizes) == min(entries, servers)
    assert sum(layout.sizes) == entries
    assert all(size >= 1 for size in layout.sizes)


@pytest.mark.parametrize("servers", [1, 2, 5])
@pytest.mark.parametrize("name", ["vgg_like", "odd"])
def test_restores_what_it_flattened(name, servers):
    variables = make_variables(MODELS[name])
    rng = np.random.default_rng(0)
    values = [tf.constant(rng.standard_normal(v.shape), tf.float32) for v in variables]
    layout = Layout.of(variables, servers)
    blocks = layout.flatten(values)
    assert [tuple(block.shape) for block in blocks] == [(size,) for size in layout.sizes]
    for value, back in zip(values, layout.restore(blocks)):
        assert back.shape == value.shape
        np.testing.assert_array_equal(back, value)


def test_flattens_in_the_order_of_the_variables():
    layout = Layout.of(make_variables([(2, 2), (), (3,)]), 3)
    blocks = layout.flatten([tf.constant([[0.0, 1.0], [2.0, 3.0]]), tf.constant(4.0), tf.constant([5.0, 6.0, 7.0])])
    assert [block.numpy().tolist() for block in blocks] == [[0, 1, 2], [3, 4, 5], [6, 7]]


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float64])
def test_other_floats_become_float32_blocks_and_come_back(dtype):
    layout = Layout.of(make_variables([(2, 3), (5,)], dtype), 2)
    values = [tf.cast(tf.reshape(tf.range(6), (2, 3)), dtype), tf.cast(tf.range(5), dtype)]
    blocks = layout.flatten(values)
    assert all(block.dtype == tf.float32 for block in blocks)
    for value, back in zip(values, layout.restore(blocks)):
        assert back.dtype == dtype
        np.testing.assert_array_equal(tf.cast(back, tf.float32), tf.cast(value, tf.float32))


@hypothesis.settings(max_examples=40)
@hypothesis.given(
    shapes=st.lists(st.lists(st.integers(1, 5), max_size=3).map(tuple), min_size=1, max_size=5),
    servers=st.integers(1, 7),
    dtype=st.sampled_from([tf.float32, tf.bfloat16]),
)
def test_whatever_the_shapes_every_value_comes_back(shapes, servers, dtype):
    layout = Layout.of(make_variables(shapes, dtype), servers)
    entries = [math.prod(shape) for shape in shapes]
    assert layout.entries == sum(entries) and len(layout.sizes) == min(servers, sum(entries))
    assert [sum(rows * columns for rows, columns in held) for held in layout.pieces] == list(layout.sizes)
    values = [tf.random.stateless_normal(shape, [i, 1], dtype=dtype) for i, shape in enumerate(shapes)]
    blocks = layout.flatten(values)
    assert [block.shape for block in blocks] == [[size] for size in layout.sizes]
    for value, back in zip(values, layout.restore(blocks)):
        assert (back.dtype, back.shape) == (dtype, value.shape)
        np.testing.assert_array_equal(tf.cast(back, tf.float32), tf.cast(value, tf.float32))


def test_works_while_traced():
    layout = Layout.of(make_variables([(2, 3), (5,)]), 2)
    values = [tf.ones([2, 3]), tf.range(5.0)]
    for value, back in zip(values, tf.function(lambda v: layout.restore(layout.flatten(v)))(values)):
        np.testing.assert_array_equal(back, value)


def test_knows_the_pieces_of_its_blocks():
    layout = Layout.of(make_variables([(4, 3), (3,)]), 2)
    assert layout.sizes == (8, 7)
    assert layout.pieces == (((2, 3), (2, 1)), ((1, 1), (1, 3), (3, 1)))
