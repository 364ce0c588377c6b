"""Where data comes from: every worker gets its own part, and all parts together are the data, once."""

import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf.distribute import _tf, sources
from slimdp_tf.distribute.sources import Arrays, Function, Graphs


def read(source, worker: int, number: int = 0) -> list:
    """All elements of one pass of one worker."""
    iterator = _tf.iterator_behind(source.open(worker, number), source.element_spec)
    found = []
    while True:
        try:
            found.append(tf.nest.map_structure(lambda t: t.numpy(), iterator.get_next()))
        except tf.errors.OutOfRangeError:
            return found


def furnished(source, workers: int):
    source.check(workers)
    source.prepare(workers)
    for worker in range(workers):
        source.furnish(worker, workers)
    return source


def rows_of(batches: list) -> list:
    return [row for batch in batches for row in np.atleast_1d(batch).tolist()]


# -- arrays -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_arrays_in_order(workers):
    source = furnished(Arrays(np.arange(11), 2, False, 0), workers)
    for worker in range(workers):
        batches = read(source, worker)
        assert rows_of(batches) == list(range(worker, 11, workers))
        assert all(len(batch) == 2 for batch in batches[:-1])
    assert source.batches(workers) == len(read(source, 0))


def test_the_batches_of_all_workers_are_the_batch_of_one_process():
    source = furnished(Arrays(np.arange(12), 2, False, 0), 3)
    for step, batches in enumerate(zip(*(read(source, worker) for worker in range(3)))):
        assert sorted(rows_of(batches)) == list(range(6 * step, 6 * step + 6))


def test_arrays_in_a_nesting_stay_together():
    x, y = np.arange(20.0, dtype=np.float32).reshape(10, 2), np.arange(10, dtype=np.int64)
    source = furnished(Arrays(({"a": x}, y), 3, True, 0), 2)
    assert source.element_spec[0]["a"].shape.as_list() == [None, 2]
    for worker in range(2):
        for columns, labels in read(source, worker):
            np.testing.assert_array_equal(columns["a"], x[labels])
            assert set(labels % 2) == {worker}


def test_rows_are_shuffled_anew_in_every_pass_and_otherwise_on_every_worker():
    source = furnished(Arrays(np.arange(100), 5, True, 3), 2)
    passes = [rows_of(read(source, 0, number)) for number in (0, 1, 0)]
    assert [sorted(rows) for rows in passes] == [list(range(0, 100, 2))] * 3
    assert passes[0] != passes[1]
    assert passes[0] == passes[2]
    assert [row + 1 for row in passes[0]] != rows_of(read(source, 1, 0))
    other = furnished(Arrays(np.arange(100), 5, True, 4), 2)
    assert rows_of(read(other, 0, 0)) != passes[0]


def test_whole_batches_are_shuffled():
    source = furnished(Arrays(np.arange(40), 4, "batch", 3), 1)
    batches = read(source, 0)
    assert sorted(batch[0] for batch in batches) == list(range(0, 40, 4))
    assert [batch[0] for batch in batches] != list(range(0, 40, 4))
    assert all((np.diff(batch) == 1).all() for batch in batches)


def test_arrays_of_fewer_rows_than_workers():
    with pytest.raises(ValueError, match="at least 3. Received: 2"):
        Arrays(np.arange(2), 1, False, 0).check(3)


def test_arrays_on_the_chief_are_whole_and_in_order():
    batches = list(Arrays(np.arange(5), 2, True, 0).on_chief().as_numpy_iterator())
    assert rows_of(batches) == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_large_arrays_are_moved_in_pieces(monkeypatch):
    sizes = []
    monkeypatch.setattr(sources, "constant_here", lambda value: sizes.append(value.nbytes) or tf.constant(value))
    array = np.zeros((3, 2**25), np.float32)  # 128 MiB a row
    moved = sources._moved(array)
    assert moved.shape == array.shape
    assert sizes == [2**28, 2**27]


@pytest.mark.parametrize("shape", [(0, 3), (4, 0), (1,)])
def test_small_arrays_are_moved_as_they_are(shape):
    array = np.ones(shape, np.float32)
    if len(array):
        np.testing.assert_array_equal(sources._moved(array), array)


# -- pipelines --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_pipeline_over_tensors_is_cut_by_rows(workers):
    dataset = tf.data.Dataset.from_tensor_slices(np.arange(11)).map(lambda x: x * 10).batch(2)
    source = furnished(Graphs(dataset, 0), workers)
    for worker in range(workers):
        assert rows_of(read(source, worker)) == [10 * row for row in range(worker, 11, workers)]
    assert source.batches(workers) == max(len(read(source, worker)) for worker in range(workers))


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_any_other_pipeline_is_dealt_out_element_by_element(workers):
    source = furnished(Graphs(tf.data.Dataset.range(22).batch(2), 0), workers)
    parts = [read(source, worker) for worker in range(workers)]
    for worker, part in enumerate(parts):
        assert [batch[0] // 2 for batch in part] == list(range(worker, 11, workers))
    assert source.batches(workers) == len(parts[0])


def test_a_pipeline_without_an_end_has_none_on_workers():
    source = furnished(Graphs(tf.data.Dataset.range(4).repeat(), 0), 2)
    assert source.batches(2) == tf.data.INFINITE_CARDINALITY
    iterator = _tf.iterator_behind(source.open(1, 0), source.element_spec)
    assert [iterator.get_next().numpy() for _ in range(4)] == [1, 3, 1, 3]


def test_a_pipeline_of_unknown_length():
    source = furnished(Graphs(tf.data.Dataset.range(10).filter(lambda x: x < 6), 0), 2)
    assert source.batches(2) == tf.data.UNKNOWN_CARDINALITY
    assert [rows_of(read(source, worker)) for worker in range(2)] == [[0, 2, 4], [1, 3, 5]]


def test_an_empty_pipeline():
    with pytest.raises(ValueError, match="empty"):
        Graphs(tf.data.Dataset.range(0), 0).check(2)


def test_fewer_batches_than_workers():
    with pytest.raises(ValueError, match="at least 3. Received: 2"):
        furnished(Graphs(tf.data.Dataset.range(4).batch(2), 0), 3)


def test_python_code_cannot_be_sent():
    dataset = tf.data.Dataset.range(4).map(lambda x: tf.py_function(lambda v: v, [x], tf.int64))
    with pytest.raises(ValueError, match="Python code"):
        furnished(Graphs(dataset, 0), 2)


def test_a_pipeline_on_the_chief_is_what_was_given():
    dataset = tf.data.Dataset.range(4)
    assert Graphs(dataset, 0).on_chief() is dataset


# -- functions --------------------------------------------------------------------------------------------------------


def test_a_function_is_told_whose_data_it_makes():
    def make(context):
        assert context.num_input_pipelines == context.num_replicas_in_sync == 3
        return tf.data.Dataset.range(10 * context.input_pipeline_id, 10 * context.input_pipeline_id + 2)

    source = furnished(Function(make), 3)
    assert [rows_of(read(source, worker)) for worker in range(3)] == [[0, 1], [10, 11], [20, 21]]
    assert source.batches(3) == 2


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        (lambda data: data, lambda data: data.take(2), 5),
        (lambda data: data.repeat(), lambda data: data, tf.data.INFINITE_CARDINALITY),
        (lambda data: data.filter(lambda x: x < 4), lambda data: data, tf.data.UNKNOWN_CARDINALITY),
        (lambda data: data.filter(lambda x: x < 4), lambda data: data.repeat(), tf.data.INFINITE_CARDINALITY),
    ],
)
def test_the_longest_of_a_functions_datasets_counts(first, second, together, order):
    source = Function(lambda context: (first, second)[context.input_pipeline_id](tf.data.Dataset.range(5)))
    source.prepare(2)
    for worker in order:
        source.furnish(worker, 2)
    assert source.batches(2) == together


def test_a_function_on_the_chief_makes_the_whole():
    source = Function(
        lambda context: tf.data.Dataset.range(12).shard(context.num_input_pipelines, context.input_pipeline_id)
    )
    assert rows_of(source.on_chief().as_numpy_iterator()) == list(range(12))


def test_a_function_that_returns_no_dataset():
    with pytest.raises(TypeError, match="must return a tf.data.Dataset. Received: int"):
        furnished(Function(lambda context: 7), 2)


def test_a_function_that_uses_a_dataset_from_outside():
    outside = tf.data.Dataset.range(4)
    with pytest.raises(ValueError, match="must make its dataset itself"):
        furnished(Function(lambda context: outside.map(lambda x: x + 1)), 2)


def test_a_function_with_python_code_in_it():
    def make(context):
        return tf.data.Dataset.from_generator(lambda: iter(range(3)), output_signature=tf.TensorSpec([], tf.int64))

    with pytest.raises(ValueError, match="Python code"):
        furnished(Function(make), 2)
