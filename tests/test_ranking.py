"""greatest: exactly the entries a sort would take, however they are cut, and also where the sample misleads."""

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from slimdp_tf import ranking
from slimdp_tf.ranking import greatest
from slimdp_tf.types import anywhere


def rank(values: np.ndarray, wanted: int, sizes: list[int]) -> np.ndarray:
    """Positions in the joined vector that `greatest` takes of |values|."""
    blocks = [[block] for block in tf.split(tf.constant(values, tf.float32), sizes)]
    found = greatest(blocks, tf.abs, wanted, anywhere)
    assert all(index.dtype == tf.int32 and (np.diff(index) > 0).all() for index in found)
    return np.concatenate([index.numpy() + start for index, start in zip(found, np.cumsum([0, *sizes[:-1]]))])


def sort(values: np.ndarray, wanted: int) -> np.ndarray:
    """The same by a stable sort: of equals the lower index first."""
    return np.sort(np.argsort(-np.abs(values.astype(np.float32)), kind="stable")[:wanted])


@pytest.mark.slow
@hypothesis.given(
    values=st.lists(st.integers(-4, 4) | st.floats(-2, 2, width=32), min_size=1, max_size=60), data=st.data()
)
def test_takes_what_a_sort_takes(values, data):
    values = np.array(values, np.float32)
    cut, wanted = data.draw(st.integers(0, len(values))), data.draw(st.integers(0, len(values)))
    np.testing.assert_array_equal(rank(values, wanted, [cut, len(values) - cut]), sort(values, wanted))


@pytest.mark.parametrize("order", ["random", "ascending", "descending", "all equal", "mostly zero"])
@pytest.mark.parametrize("share", [0.001, 0.1, 0.7])
def test_is_exact_whatever_the_sample_says(monkeypatch, order, share):
    monkeypatch.setattr(ranking, "_SAMPLE", 64)
    monkeypatch.setattr(ranking, "ENTRIES", 512)
    values = np.random.default_rng(0).normal(size=4000).astype(np.float32)
    if order in ("ascending", "descending"):
        values = np.sort(np.abs(values))[:: 1 if order == "ascending" else -1]
    elif order == "all equal":
        values[:] = 0.5
    elif order == "mostly zero":
        values[np.arange(4000) % 50 != 0] = 0.0  # what the stride of the sample never meets, or only meets
    wanted = round(share * 4000)
    np.testing.assert_array_equal(rank(values, wanted, [1500, 2500]), sort(values, wanted))


@pytest.mark.parametrize("wanted", [1, 300, 2000])
def test_of_one_vector_as_many_as_a_tensor_says(wanted):
    values = np.round(np.random.default_rng(0).normal(size=2000), 1).astype(np.float32)  # many are equal
    values[7] = np.inf
    found = ranking.greatest_here(tf.abs(values), tf.constant(wanted))
    np.testing.assert_array_equal(found, sort(values, wanted))


def test_a_sample_that_meets_only_the_greatest_is_not_believed(monkeypatch):
    monkeypatch.setattr(ranking, "_SAMPLE", 100)
    values = np.ones(2000, np.float32)
    values[::20] = 9.0  # the sample's stride
    np.testing.assert_array_equal(rank(values, 300, [2000]), sort(values, 300))


def test_of_several_vectors_the_score_decides():
    blocks = [[tf.constant([1.0, 0.0, 3.0]), tf.constant([5.0, 1.0, 0.0])]]
    (found,) = greatest(blocks, lambda w, g: tf.abs(w) + 2.0 * tf.abs(g), 2, anywhere)  # 11, 2, 3
    assert found.numpy().tolist() == [0, 2]


def test_nothing_is_wanted():
    assert [index.shape for index in greatest([[tf.ones([3])], [tf.ones([2])]], tf.abs, 0, anywhere)] == [[0], [0]]
