"""by_chunks: what it makes of chunks, joined, is what the function makes of the whole."""

import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf.chunks import by_chunks


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 24, 30])
def test_joins_what_the_chunks_become(count):
    value = tf.range(count, dtype=tf.float32)
    doubled, sizes = by_chunks(lambda i, part: [2 * part, tf.size(part)[None]], [value], [tf.float32, tf.int32], 8)
    np.testing.assert_array_equal(doubled, 2 * np.arange(count))
    assert sizes.numpy().tolist() == [min(8, count - start) for start in range(0, max(count, 1), 8)]


def test_results_may_have_any_length():
    value = tf.constant([3.0, -1.0, 2.0, -5.0, 4.0])
    places = by_chunks(lambda i, part: [tf.cast(tf.where(part > 0)[:, 0], tf.int32) + 2 * i], [value], [tf.int32], 2)[0]
    assert places.numpy().tolist() == [0, 2, 4]


def test_vectors_are_cut_at_the_same_places_and_numbered():
    one, other = tf.range(5), tf.range(5) * 10
    joined = by_chunks(lambda i, a, b: [a + b + 100 * i], [one, other], [tf.int32], 2)[0]
    assert joined.numpy().tolist() == [0, 11, 122, 133, 244]


def test_works_when_traced_with_an_unknown_length():
    traced = tf.function(
        lambda v: by_chunks(lambda i, part: [part + 1.0], [v], [tf.float32], 3)[0], [tf.TensorSpec([None])]
    )
    for count in (0, 2, 10):
        np.testing.assert_array_equal(traced(tf.zeros([count])), np.ones(count))
