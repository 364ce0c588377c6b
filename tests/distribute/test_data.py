"""Datasets on the workers: opened per pass, furnished again to who comes back, tokens that stand for batches."""

import gc

import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf.distribute import _tf
from slimdp_tf.distribute.data import NextBatch, ShardedDataset
from slimdp_tf.distribute.sources import Arrays, Function, Graphs
from tests.distribute.one_process import make_workers


def make_dataset(rows: int = 10, batch_size: int = 2, workers: int = 2, shuffle=False) -> ShardedDataset:
    return ShardedDataset(Arrays(np.arange(rows), batch_size, shuffle, 0), make_workers(workers))


def take(iterator, worker: int) -> list[int]:
    """The next batch of a worker."""
    return _tf.iterator_behind(iterator.handle(worker), iterator.element_spec).get_next().numpy().tolist()


def test_every_worker_holds_its_part():
    dataset = make_dataset()
    iterator = iter(dataset)
    assert dataset.cardinality() == 3
    assert dataset.element_spec == iterator.element_spec == tf.TensorSpec([None], tf.int64)
    assert [take(iterator, 0), take(iterator, 1)] == [[0, 2], [1, 3]]
    assert [take(iterator, 0), take(iterator, 0)] == [[4, 6], [8]]
    with pytest.raises(tf.errors.OutOfRangeError):
        take(iterator, 0)


def test_every_pass_begins_anew_with_a_number_of_its_own():
    dataset = make_dataset(100, 50, shuffle=True)
    first, second = iter(dataset), iter(dataset)
    assert (first.number, second.number) == (0, 1)
    one, other = take(first, 0), take(second, 0)
    assert sorted(one) == sorted(other) == list(range(0, 100, 2))
    assert one != other


def test_bad_data_is_refused_before_anything_is_sent():
    with pytest.raises(ValueError, match="at least 3. Received: 2"):
        make_dataset(rows=2, workers=3)
    gc.collect()


def test_a_worker_that_comes_back_is_furnished_and_begins_anew():
    dataset = make_dataset()
    iterator, workers = iter(dataset), dataset.workers
    take(iterator, 1)
    before = iterator.handle(1)
    workers.live.discard(1)
    workers._returned.put(1)
    assert workers.take_returned() == [1]
    assert iterator.handle(1) is not before
    assert take(iterator, 1) == [1, 3]


def test_what_is_no_longer_used_is_not_furnished_again():
    dataset = make_dataset()
    workers, iterator = dataset.workers, iter(dataset)
    assert len(workers._furnishings) == 2
    del iterator
    gc.collect()
    assert len(workers._furnishings) == 1
    del dataset
    gc.collect()
    assert workers._furnishings == []


def test_next_gives_tokens_as_often_as_the_longest_part_has_batches():
    iterator = iter(make_dataset())
    tokens = list(iterator)
    assert len(tokens) == 3
    assert all(isinstance(token, NextBatch) and token.iterator is iterator for token in tokens)
    with pytest.raises(StopIteration):
        iterator.get_next()


def test_next_has_no_end_where_the_data_has_none():
    dataset = ShardedDataset(Graphs(tf.data.Dataset.range(4).repeat(), 0), make_workers(2))
    iterator = iter(dataset)
    assert all(isinstance(next(iterator), NextBatch) for _ in range(20))


def test_a_batch_stays_on_its_worker():
    with pytest.raises(TypeError, match="A batch lives on its worker"):
        iter(make_dataset()).get_next_as_optional()


def test_a_token_stands_for_one_batch():
    token = next(iter(make_dataset()))
    token.take()
    with pytest.raises(ValueError, match="taken by an earlier strategy.run"):
        token.take()


def test_the_chief_sees_the_whole():
    batches = list(make_dataset(shuffle=True).on_chief().as_numpy_iterator())
    assert np.concatenate(batches).tolist() == list(range(10))


def test_an_example_has_the_spec_of_a_batch():
    example = make_dataset().example()
    assert example.dtype == tf.int64 and example.shape.rank == 1 and example.shape[0] >= 1


def test_functions_are_called_for_every_worker():
    source = Function(lambda context: tf.data.Dataset.from_tensors([context.input_pipeline_id]))
    iterator = iter(ShardedDataset(source, make_workers(3)))
    assert [take(iterator, worker) for worker in range(3)] == [[0], [1], [2]]
