"""Pipelines as graphs: cut into parts that are a partition, with the same shuffles everywhere."""

import gc

import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf.distribute import _tf
from slimdp_tf.distribute.dataset_graph import refuse_python, shard_graph

pytestmark = pytest.mark.slow


def graph_of(make) -> tuple[bytes, object]:
    """The graph and the element_spec of the dataset `make` makes.

    The dataset itself is gone after it: caches and seeds that live in this process are not found any more, as on a
    worker, which makes its own.
    """
    dataset = make()
    return _tf.dataset_to_graph(dataset), dataset.element_spec


def part_of(make, workers: int, seed: int = 0) -> tuple[list[list], bool]:
    """The elements of every worker's graph, as they are read; and whether the graphs are parts."""
    graph, spec = graph_of(make)
    gc.collect()
    graphs, is_sharded = shard_graph(graph, workers, seed)
    assert len(graphs) == workers
    read = [_tf.dataset_from_graph(tf.constant(graph), spec) for graph in graphs]
    return [list(d.as_numpy_iterator()) for d in read], is_sharded


def slices(rows: int) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(np.arange(rows))


ROW_WISE = {
    "slices": lambda d: d,
    "batch": lambda d: d.batch(3),
    "map": lambda d: d.map(lambda x: x),
    "shuffle": lambda d: d.shuffle(100, seed=4),
    "repeat": lambda d: d.repeat(2),
    "filter": lambda d: d.filter(lambda x: x >= 0),
    "cache": lambda d: d.cache(),
    "all": lambda d: d.cache().shuffle(100).map(lambda x: x, num_parallel_calls=2).batch(2).prefetch(1),
}


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("name", ROW_WISE)
def test_row_wise_pipelines_are_cut_at_their_source(name, workers):
    parts, is_sharded = part_of(lambda: ROW_WISE[name](slices(11)), workers)
    assert is_sharded
    for worker, part in enumerate(parts):
        rows = np.sort(np.concatenate([np.atleast_1d(element) for element in part]))
        times = 2 if name == "repeat" else 1
        np.testing.assert_array_equal(rows, np.repeat(np.arange(worker, 11, workers), times))


def test_rows_of_several_tensors_stay_together():
    x, y = np.arange(10.0).reshape(5, 2), np.arange(5) * 10
    parts, is_sharded = part_of(lambda: tf.data.Dataset.from_tensor_slices({"x": x, "y": y}), 2)
    assert is_sharded
    for worker, part in enumerate(parts):
        for element, row in zip(part, range(worker, 5, 2)):
            np.testing.assert_array_equal(element["x"], x[row])
            assert element["y"] == y[row]


def test_zipped_sources_are_cut_alike():
    parts, is_sharded = part_of(lambda: tf.data.Dataset.zip((slices(6), slices(6).map(lambda x: x * 10))), 2)
    assert is_sharded
    assert parts == [[(i, 10 * i) for i in range(worker, 6, 2)] for worker in range(2)]


NOT_ROW_WISE = {
    "range": lambda: tf.data.Dataset.range(10),
    "take": lambda: slices(10).take(4),
    "skip": lambda: slices(10).skip(4),
    "interleave": lambda: slices(4).interleave(lambda x: tf.data.Dataset.from_tensors(x), cycle_length=2),
    "window": lambda: slices(10).window(2).flat_map(lambda w: w.batch(2)),
    "concatenate": lambda: slices(5).concatenate(slices(5)),
    "enumerate": lambda: slices(10).enumerate().map(lambda i, x: i),
}


@pytest.mark.parametrize("name", NOT_ROW_WISE)
def test_other_pipelines_are_the_same_for_all(name):
    parts, is_sharded = part_of(NOT_ROW_WISE[name], 2)
    assert not is_sharded
    np.testing.assert_array_equal(parts[0], parts[1])
    np.testing.assert_array_equal(parts[0], list(NOT_ROW_WISE[name]().as_numpy_iterator()))


def test_shuffles_without_a_seed_are_the_same_for_all_workers():
    tf.random.set_seed(None)  # another test's global seed would be a seed for them

    def shuffled() -> tf.data.Dataset:
        return tf.data.Dataset.range(100).shuffle(100)

    parts, is_sharded = part_of(shuffled, 3, seed=5)
    assert not is_sharded
    assert parts[0] == parts[1] == parts[2]
    assert parts[0] != list(range(100))
    assert part_of(shuffled, 1, seed=5)[0][0] == parts[0]
    assert part_of(shuffled, 1, seed=6)[0][0] != parts[0]


def test_shuffles_with_a_seed_keep_it():
    def shuffled() -> tf.data.Dataset:
        return tf.data.Dataset.range(100).shuffle(100, seed=9, reshuffle_each_iteration=False)

    expected = list(shuffled().as_numpy_iterator())
    assert part_of(shuffled, 1, seed=5)[0][0] == part_of(shuffled, 1, seed=6)[0][0] == expected


def test_fewer_rows_than_workers():
    with pytest.raises(ValueError, match="at least 3. Received: 2"):
        shard_graph(_tf.dataset_to_graph(slices(2).batch(1)), 3, 0)


def test_a_part_holds_its_rows_only():
    rows = np.random.default_rng(0).standard_normal((1000, 10))
    graph = _tf.dataset_to_graph(tf.data.Dataset.from_tensor_slices(rows).batch(4))
    graphs, _ = shard_graph(graph, 4, 0)
    assert all(len(part) < 0.3 * len(graph) for part in graphs)


@pytest.mark.parametrize(
    "dataset",
    [
        lambda: tf.data.Dataset.from_generator(lambda: iter(range(3)), output_signature=tf.TensorSpec([], tf.int64)),
        lambda: slices(3).map(lambda x: tf.py_function(lambda v: v, [x], tf.int64)),
        lambda: slices(3).map(lambda x: tf.numpy_function(lambda v: v, [x], tf.int64)),
    ],
    ids=["generator", "py_function", "numpy_function"],
)
def test_python_code_is_refused(dataset):
    definition = tf.compat.v1.GraphDef.FromString(_tf.dataset_to_graph(dataset()))
    with pytest.raises(ValueError, match="Python code .* is part of this dataset"):
        refuse_python(definition)
    refuse_python(tf.compat.v1.GraphDef.FromString(_tf.dataset_to_graph(slices(3))))
