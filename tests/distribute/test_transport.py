"""Vectors in pieces: nothing is lost, added or out of order, and pieces begin on 64 bytes."""

import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf.distribute import transport
from slimdp_tf.distribute.transport import cut, fetch, join
from tests.distribute.one_process import here


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(transport, "_PIECE_BYTES", 256)


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 500, 1000])
@pytest.mark.parametrize("is_known", [True, False])
def test_pieces_joined_are_the_vector(length, is_known):
    counts = []

    def go(vector):
        pieces = cut(vector, 1000)
        counts.append(len(pieces))
        return [join(pieces), *[tf.size(piece) for piece in pieces]]

    shape = [length] if is_known else [None]
    joined, *sizes = tf.function(go, [tf.TensorSpec(shape)], autograph=False)(tf.range(length, dtype=tf.float32))
    np.testing.assert_array_equal(joined, np.arange(length))
    starts = np.cumsum([0, *sizes])
    assert all(start % 16 == 0 for start in starts[starts < length])
    assert counts[0] == (max(1, -(-length * 4 // 256)) if is_known else 8)


def test_bytes_decide_and_not_entries():
    assert len(cut(tf.zeros([200], tf.int8), 200)) == 1
    assert len(cut(tf.zeros([200], tf.float32), 200)) == 4


@pytest.mark.slow
def test_a_vector_that_is_never_long_is_not_cut():
    lengths = []
    tf.function(lambda v: lengths.append(len(cut(v, 64))), [tf.TensorSpec([None])]).get_concrete_function()
    assert lengths == [1]


def test_fetches_a_payload_from_where_it_is():
    payload = {"a": tf.range(100.0), "b": tf.range(3)}
    fetched = fetch(payload, here(), 100)
    assert {name: tensor.numpy().tolist() for name, tensor in fetched.items()} == {
        name: tensor.numpy().tolist() for name, tensor in payload.items()
    }
