"""Where data comes from, and which part D_k of it a worker gets.

| what `fit` gets | what a worker gets | where its part is cut |
|---|---|---|
| arrays | rows k, k + K, k + 2K, ... | on the chief, before sending |
| a tf.data pipeline over tensors in memory | the same rows, the pipeline over them | in its graph, before sending |
| any other tf.data pipeline | the pipeline, of whose elements every K-th | on the worker |
| a function of an InputContext | what the function makes for this worker | by the function |

The i-th batches of all workers together are then the i-th batch of K times the size of an unshuffled single process.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from slimdp_tf.distribute import _tf
from slimdp_tf.distribute.calls import constant_here
from slimdp_tf.distribute.dataset_graph import refuse_python, shard_graph
from slimdp_tf.distribute.passes import Passes


class Arrays:
    """Arrays in memory, in any nesting; each worker gets its rows once and draws its own order for each epoch.

    Args:
        arrays: a nesting of arrays with the same number of rows.
        batch_size: rows per batch and worker.
        shuffle: True (rows), "batch" (whole batches), or False.
        seed: of the orders.
    """

    def __init__(self, arrays, batch_size: int, shuffle: bool | str, seed: int):
        self.arrays, self.batch_size, self.shuffle, self.seed = arrays, batch_size, shuffle, seed
        self.rows = len(tf.nest.flatten(arrays)[0])
        self.example_rows = min(batch_size, self.rows)
        self.element_spec = tf.nest.map_structure(lambda a: tf.TensorSpec((None, *a.shape[1:]), a.dtype), arrays)
        self._parts: dict[int, list[tf.Tensor]] = {}
        self._build: dict[int, object] = {}

    def check(self, workers: int) -> None:
        if self.rows < workers:
            raise ValueError(f"Every worker needs an example of its own: at least {workers}. Received: {self.rows}")

    def batches(self, workers: int) -> int:
        return math.ceil(math.ceil(self.rows / workers) / self.batch_size)

    def prepare(self, workers: int) -> None:
        specs = [tf.TensorSpec((None, *a.shape[1:]), a.dtype) for a in tf.nest.flatten(self.arrays)]
        seed = tf.TensorSpec([2], tf.int32)
        self._trace = tf.function(self._pipeline, autograph=False).get_concrete_function(seed, *specs)

    def furnish(self, worker: int, workers: int) -> None:
        self._parts[worker] = [_moved(np.asarray(a[worker::workers])) for a in tf.nest.flatten(self.arrays)]

    def open(self, worker: int, number: int, taken: tf.Tensor | None = None) -> tf.Tensor:
        seed = constant_here([self.seed * 7919 + worker, number], tf.int32)
        return _tf.open_iterator(self._trace(seed, *self._parts[worker]), self.element_spec, taken)

    def on_chief(self) -> tf.data.Dataset:
        """The rows in order, in batches."""
        return tf.data.Dataset.from_tensor_slices(self.arrays).batch(self.batch_size)

    def _pipeline(self, seed: tf.Tensor, *columns: tf.Tensor) -> tf.Tensor:
        rows, size = tf.shape(columns[0], tf.int64)[0], tf.constant(self.batch_size, tf.int64)
        order = tf.range(rows)
        if self.shuffle is True:
            order = tf.random.experimental.stateless_shuffle(order, seed)
        starts = tf.range(0, rows, size)
        if self.shuffle == "batch":
            starts = tf.random.experimental.stateless_shuffle(starts, seed)
        dataset = tf.data.Dataset.from_tensor_slices(starts)
        dataset = dataset.map(lambda start: [tf.gather(c, order[start : start + size]) for c in columns])
        dataset = dataset.map(lambda *c: tf.nest.pack_sequence_as(self.arrays, c)).prefetch(2)
        return _tf.variant_of(dataset.with_options(_lean_options()))


class Graphs:
    """A tf.data pipeline that was built on the chief, sent to the workers as a graph.

    Args:
        dataset: the pipeline; its batches are per worker.
        seed: given to shuffles that have none.
    """

    def __init__(self, dataset: tf.data.Dataset, seed: int):
        self.dataset, self.seed = dataset, seed
        self.element_spec, self.example_rows = dataset.element_spec, 1
        self._cardinality = int(dataset.cardinality())
        self._passes = Passes()
        self._graphs: list[bytes] = []

    def check(self, workers: int) -> None:
        if 0 <= self._cardinality < 1:
            raise ValueError("The dataset is empty.")

    def batches(self, workers: int) -> int:
        return self._cardinality if self._cardinality < 0 else self._longest

    def prepare(self, workers: int) -> None:
        try:
            graph = _tf.dataset_to_graph(self.dataset)
        except (
            tf.errors.FailedPreconditionError,
            tf.errors.InvalidArgumentError,
            tf.errors.UnimplementedError,
        ) as error:
            raise ValueError(
                "This dataset cannot be sent to the workers: it holds something that lives in this process only, such "
                "as a table or a variable that is older than the strategy. Make the strategy first, or give a function "
                f"of an InputContext to strategy.distribute_datasets_from_function. {error}"
            ) from error
        refuse_python(tf.compat.v1.GraphDef.FromString(graph))
        self._graphs, self._is_sharded = shard_graph(graph, workers, self.seed)
        self._longest = -(-self._cardinality // workers)
        if not self._is_sharded and 0 <= self._cardinality < workers:
            raise ValueError(
                f"Every worker needs a batch of its own: at least {workers}. Received: {self._cardinality}. Make the "
                "batches smaller: they are per worker."
            )
        if self._is_sharded and self._cardinality >= 0:
            spec = self.element_spec
            self._longest = max(int(_tf.dataset_from_graph(tf.constant(g), spec).cardinality()) for g in self._graphs)
        self._trace = tf.function(
            lambda graph, worker: self._part(graph, worker, workers), autograph=False
        ).get_concrete_function(tf.TensorSpec([], tf.string), tf.TensorSpec([], tf.int64))

    def furnish(self, worker: int, workers: int) -> None:
        variant = self._trace(constant_here(self._graphs[worker]), constant_here(worker, tf.int64))
        self._passes.begin(worker, variant)

    def open(self, worker: int, number: int, taken: tf.Tensor | None = None) -> tf.Tensor:
        return self._passes.open(worker, number, taken, self.element_spec)

    def on_chief(self) -> tf.data.Dataset:
        """The pipeline as it was given."""
        return self.dataset

    def _part(self, graph: tf.Tensor, worker: tf.Tensor, workers: int) -> tf.Tensor:
        dataset = _tf.dataset_from_graph(graph, self.element_spec)
        if not self._is_sharded:
            dataset = dataset.shard(workers, worker)
        return _tf.variant_of(dataset)


class Function:
    """A function that makes a worker's dataset from its tf.distribute.InputContext."""

    def __init__(self, dataset_fn: Callable[[tf.distribute.InputContext], tf.data.Dataset]):
        self.dataset_fn, self.example_rows = dataset_fn, 1
        self._traces: list = []
        self._passes = Passes()
        self._lengths: dict[int, int] = {}

    def check(self, workers: int) -> None:
        """Nothing is known of the data before it runs."""

    def batches(self, workers: int) -> int:
        lengths = self._lengths.values()
        endless = [
            length for length in (tf.data.INFINITE_CARDINALITY, tf.data.UNKNOWN_CARDINALITY) if length in lengths
        ]
        return endless[0] if endless else max(lengths)

    def prepare(self, workers: int) -> None:
        def trace(worker: int):
            context = tf.distribute.InputContext(workers, worker, workers)

            def build():
                dataset = self.dataset_fn(context)
                if not isinstance(dataset, tf.data.Dataset):
                    raise TypeError(f"The function must return a tf.data.Dataset. Received: {type(dataset).__name__}")
                self.element_spec = dataset.element_spec
                return _tf.variant_of(dataset), dataset.cardinality()

            traced = tf.function(build).get_concrete_function()
            if any(tensor.dtype == tf.variant for tensor, _ in traced.graph.captures):
                raise ValueError("The function must make its dataset itself. It uses one that was made outside of it.")
            refuse_python(traced.graph.as_graph_def())
            return traced

        self._traces = [trace(worker) for worker in range(workers)]

    def furnish(self, worker: int, workers: int) -> None:
        variant, cardinality = self._traces[worker]()
        self._passes.begin(worker, variant)
        self._lengths[worker] = int(cardinality.numpy())

    def open(self, worker: int, number: int, taken: tf.Tensor | None = None) -> tf.Tensor:
        return self._passes.open(worker, number, taken, self.element_spec)

    def on_chief(self) -> tf.data.Dataset:
        """The dataset as one pipeline, for evaluation on the chief."""
        return self.dataset_fn(tf.distribute.InputContext(1, 0, 1))


def _moved(array: np.ndarray) -> tf.Tensor:
    """`array` on the device this is called under, sent in pieces of at most 256 MB."""
    rows = max(1, int(2**28 // max(1, array.nbytes // max(1, len(array)))))
    pieces = [tf.identity(constant_here(array[i : i + rows])) for i in range(0, len(array), rows)]
    return pieces[0] if len(pieces) == 1 else tf.concat(pieces, 0)


def _lean_options() -> tf.data.Options:
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    return options
