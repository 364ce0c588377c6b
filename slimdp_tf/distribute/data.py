"""Data on the workers: each has its own part D_k, sent once, and its own iterators."""

from __future__ import annotations

import tensorflow as tf

from slimdp_tf.distribute import _tf
from slimdp_tf.distribute.calls import constant_here
from slimdp_tf.distribute.sources import Arrays, Function, Graphs
from slimdp_tf.distribute.workers import Workers


class ShardedDataset(_tf.DistributedDatasetBase):
    """A dataset of which every worker holds its part; iterating gives `ShardedIterator`s.

    Args:
        source: Arrays, Graphs or Function.
        workers: the workers.
    """

    def __init__(self, source: Arrays | Graphs | Function, workers: Workers):
        self.source, self.workers = source, workers
        self._opened = 0
        source.check(len(workers))
        source.prepare(len(workers))
        workers.furnish(self._furnish)

    def _furnish(self, worker: int) -> None:
        self.source.furnish(worker, len(self.workers))

    @property
    def element_spec(self):
        """Spec of a worker's batch."""
        return self.source.element_spec

    def cardinality(self) -> int:
        """Batches of the worker that has most, or tf.data's INFINITE_CARDINALITY or UNKNOWN_CARDINALITY."""
        return self.source.batches(len(self.workers))

    def on_chief(self) -> tf.data.Dataset:
        """The whole dataset as one pipeline, for evaluation on the chief."""
        return self.source.on_chief()

    def example(self):
        """A batch to build a model by: zeros, or a worker's first batch where the spec leaves more than rows open."""
        specs = tf.nest.flatten(self.element_spec)
        if all(isinstance(s, tf.TensorSpec) and s.shape.rank and s.shape[1:].is_fully_defined() for s in specs):
            rows = self.source.example_rows
            shapes = [[s.shape[0] or rows, *s.shape[1:]] for s in specs]
            zeros = [tf.zeros(shape, s.dtype) for shape, s in zip(shapes, specs)]
            return tf.nest.pack_sequence_as(self.element_spec, zeros)
        first = min(self.workers.live)
        take = tf.function(lambda handle: _tf.iterator_behind(handle, self.element_spec).get_next(), autograph=False)
        traced = take.get_concrete_function(tf.TensorSpec([], tf.resource))
        return self.workers.call(lambda worker: _fetched(traced(self.source.open(worker, -1))), [first])[first]

    def __iter__(self) -> ShardedIterator:
        return self.begin_at(self._opened, 0)

    def begin_at(self, number: int, taken: int) -> ShardedIterator:
        """Pass `number`, from 0, past the first `taken` batches of every worker."""
        self._opened = number + 1
        return ShardedIterator(self, number, taken)

    def __del__(self):
        self.workers.forget(self._furnish)


class ShardedIterator(_tf.DistributedIteratorBase):
    """One pass over a `ShardedDataset`: an iterator on every worker.

    `next` gives a token that stands for "the next batch of the worker", for `strategy.run`. `steps` is how many
    batches the next round may take, `ahead` how many more the epoch will, `taken` how many the workers have had before:
    who comes back goes on there.
    """

    def __init__(self, dataset: ShardedDataset, number: int, taken: int = 0):
        self.dataset, self.number, self.steps, self.ahead, self.taken = dataset, number, 1, 0, taken
        self._handles: dict[int, tf.Tensor] = {}
        self._given = taken
        self._length = dataset.cardinality() if dataset.cardinality() >= 0 else None
        dataset.workers.furnish(self._furnish)

    def _furnish(self, worker: int) -> None:
        taken = constant_here(self.taken, tf.int64) if self.taken else None
        self._handles[worker] = self.dataset.source.open(worker, self.number, taken)

    def handle(self, worker: int) -> tf.Tensor:
        """The iterator of `worker`."""
        return self._handles[worker]

    @property
    def element_spec(self):
        """Spec of a worker's batch."""
        return self.dataset.element_spec

    def get_next(self) -> NextBatch:
        return next(self)

    def get_next_as_optional(self):
        raise TypeError("A batch lives on its worker: use next(iterator) and strategy.run, or model.fit.")

    def __next__(self) -> NextBatch:
        if self._given == self._length:
            raise StopIteration
        self.taken, self._given = self._given, self._given + 1
        return NextBatch(self)

    def __iter__(self) -> ShardedIterator:
        return self

    def __del__(self):
        self.dataset.workers.forget(self._furnish)


class NextBatch:
    """Stands for the next batch of each worker, as an argument of `strategy.run`."""

    def __init__(self, iterator: ShardedIterator):
        self.iterator, self.is_taken = iterator, False

    def take(self) -> None:
        """Notes that the workers take it now: another use would be another batch."""
        if self.is_taken:
            raise ValueError(
                "This batch was taken by an earlier strategy.run: it stands for the next batch of each worker, so it "
                "can be used once. Call next(iterator) for every run, or do both steps in one function."
            )
        self.is_taken = True


def _fetched(batch):
    """A batch on the chief."""
    with tf.device("/job:chief/replica:0/task:0/device:CPU:0"):
        return tf.nest.map_structure(tf.identity, batch, expand_composites=True)
