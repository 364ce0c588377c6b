"""The strategy: what users of tf.distribute and Keras see."""

from __future__ import annotations

import contextlib
import pathlib
import weakref
from collections.abc import Callable

import tensorflow as tf

from slimdp_tf.distribute import _tf, loopback, sockets
from slimdp_tf.distribute.arguments import check_arguments
from slimdp_tf.distribute.calls import call_within
from slimdp_tf.distribute.cluster import PartialCluster
from slimdp_tf.distribute.custom_loop import CustomLoop
from slimdp_tf.distribute.data import ShardedDataset
from slimdp_tf.distribute.extended import Extended
from slimdp_tf.distribute.greetings import find_silent
from slimdp_tf.distribute.pacings import rounds_for
from slimdp_tf.distribute.serve import serve
from slimdp_tf.distribute.servers import Servers
from slimdp_tf.distribute.snapshots import Keeper
from slimdp_tf.distribute.sources import Arrays, Function, Graphs
from slimdp_tf.distribute.spec import Spec, await_tasks, check_port_is_free, describe_tasks, name_tasks, resolve
from slimdp_tf.distribute.workers import Workers, worker_devices
from slimdp_tf.measure.record import RoundRecord, Traffic
from slimdp_tf.method import Method
from slimdp_tf.methods import plump


class SlimDPStrategy(_tf.StrategyBase):
    """Trains a model made under `scope()` on all workers, exchanging weights by a method.

    On a host whose TF_CONFIG says worker or ps, the constructor serves that task and ends the process with the chief:
    the same program runs on every host.

    Args:
        cluster_resolver: the cluster; None reads TF_CONFIG.
        method: of slimdp_tf.methods; None is `plump()`.
        seed: of every random draw of the method and of shuffles without a seed.
        timeout_s: seconds to wait at the start: for the tasks to answer, and on the host of a task for the chief.
        worker_deadline_s: seconds after which a worker that does not finish its round is left out of it. It works
            meanwhile: the steps of a round, its first call of a large model, or the arrival of its data may take
            minutes, so this is longer than the waits for an answer.
        cluster_deadline_s: seconds to wait for the servers, and for one worker when none is left.
        on_nonfinite: what to do when a worker's update is not finite; it never reaches the weights: "raise", "skip", or
            "rollback" to the last snapshot.
        overlap: whether the exchange of a round runs while the next one trains; what a round has trained then reaches
            the other workers one round later. For `fit`, with methods in step.

    Raises:
        ValueError: the cluster or an argument cannot be used; the message says what, allowed and received.
        ClusterError: a task, or on its host the chief, did not answer in time; or the chief's port is in use.
    """

    def __init__(
        self,
        cluster_resolver: tf.distribute.cluster_resolver.ClusterResolver | None = None,
        method: Method | None = None,
        *,
        seed: int = 0,
        timeout_s: float = 60.0,
        worker_deadline_s: float = 300.0,
        cluster_deadline_s: float = 60.0,
        on_nonfinite: str = "raise",
        overlap: bool = False,
    ):
        check_arguments(method, seed, on_nonfinite, overlap, timeout_s, worker_deadline_s, cluster_deadline_s)
        resolver = cluster_resolver or tf.distribute.cluster_resolver.TFConfigClusterResolver()
        spec, job, index = resolve(resolver)
        if job != "chief":
            serve(spec, job, index, chief_timeout_s=timeout_s)
        if _tf.chief_address() not in (None, spec["chief"][0]):
            raise ValueError(f"This process is a chief at {_tf.chief_address()}. Received: {spec['chief'][0]}")
        if _tf.chief_address() is None:
            check_port_is_free(spec["chief"][0], "the chief")
        await_tasks(spec, timeout_s)
        protocol = resolver.rpc_layer or "grpc"
        if not loopback.is_local(spec):
            sockets.watch_over(address for tasks in spec.values() for address in tasks)
        with loopback.kept(spec, spec["chief"][0], "the chief"):
            call_within(lambda: _tf.connect(spec, protocol), timeout_s, lambda: _say_who_is_silent(spec, timeout_s))
        self._cluster_resolver, self._cluster_coordinator = resolver, None
        self._is_parameter_server_strategy_v2, self._canonicalize_devices = True, False
        self.method = method or plump()
        self.seed = seed
        names = [f"worker {i} at {address}" for i, address in enumerate(spec["worker"])]
        workers = Workers(worker_devices(len(names)), names, worker_deadline_s, cluster_deadline_s)
        devices = [f"/job:ps/replica:0/task:{i}/device:CPU:0" for i in range(len(spec["ps"]))]
        servers = Servers(devices, [f"ps {i} at {address}" for i, address in enumerate(spec["ps"])], cluster_deadline_s)
        self.rounds = rounds_for(self.method, overlap)(workers, servers, self.method, seed, on_nonfinite)
        self._is_on_chief = False
        self.feed: Callable[[], object] = lambda: None  # what `fit` iterates over, for callbacks
        tf.distribute.Strategy.__init__(self, Extended(self, resolver, self.rounds.cache))
        self._loop = CustomLoop(self.rounds, self.extended)
        if isinstance(resolver, PartialCluster):
            rounds = weakref.ref(self.rounds)
            resolver.before_stop(lambda: rounds() and rounds().bring_home())

    # -- what was measured ----------------------------------------------------------------------------------------

    @property
    def workers(self) -> int:
        """K, the number of workers of the cluster."""
        return len(self.rounds.workers)

    @property
    def ps(self) -> int:
        """The number of servers of the cluster."""
        return len(self.rounds.servers.devices)

    @property
    def records(self) -> list[RoundRecord]:
        """A record per round, of the last 10000 rounds; `on_round` hears of all of them."""
        return self.rounds.records

    @property
    def traffic(self) -> Traffic:
        """Bytes so far: push, pull, keys, chief, and per server."""
        return self.rounds.ledger.total + Traffic(chief_bytes=self.rounds.cache.chief_bytes)

    def on_round(self, listener: Callable[[RoundRecord], None]) -> None:
        """Calls `listener` with the record of every round, on the chief."""
        self.rounds.listeners.append(listener)

    # -- snapshots ------------------------------------------------------------------------------------------------

    def checkpoint(self, directory: str | pathlib.Path, every_rounds=None, every_s=None, max_to_keep=3) -> Keeper:
        """Takes snapshots of everything that rounds depend on, in the background, into `directory`.

        Args:
            directory: where snapshots are; TensorFlow checkpoints.
            every_rounds, every_s: how far apart they are, in rounds or seconds; with neither, `save` takes them. With
                Keras use `slimdp_tf.Snapshots`, which also knows epochs.
            max_to_keep: how many stay.

        Returns:
            `save()` takes one now, `restore(last())` goes on from the last, once a step has been run.
        """
        self.rounds.snapshots = keeper = Keeper(self.rounds, directory, every_rounds, every_s, max_to_keep)
        self.on_round(lambda record: keeper.save() if keeper.is_due else None)
        return keeper

    # -- data -----------------------------------------------------------------------------------------------------

    def experimental_distribute_dataset(self, dataset: tf.data.Dataset, options=None) -> ShardedDataset:
        """Gives every worker its part of `dataset`; the dataset's batches are per worker."""
        return ShardedDataset(Graphs(dataset, self.seed), self.rounds.workers)

    def distribute_datasets_from_function(self, dataset_fn, options=None) -> ShardedDataset:
        """Gives worker k the dataset of `dataset_fn(InputContext)` with input_pipeline_id k."""
        return ShardedDataset(Function(dataset_fn), self.rounds.workers)

    def dataset_on_chief(self, dataset: tf.data.Dataset | ShardedDataset) -> tf.data.Dataset:
        """`dataset` as one pipeline on the chief, for evaluation; it may be older than this strategy."""
        return dataset.on_chief() if isinstance(dataset, ShardedDataset) else _tf.renewed(dataset)

    def distribute_arrays(self, arrays, batch_size: int, shuffle: bool | str = False) -> ShardedDataset:
        """Gives worker k the rows k, k + K, ... of every array in a nesting, once, in batches of `batch_size`."""
        return ShardedDataset(Arrays(arrays, batch_size, shuffle, self.seed), self.rounds.workers)

    @contextlib.contextmanager
    def on_chief(self):
        """Inside it, `run` runs its function here and once, with the chief's copies: for evaluation."""
        self._is_on_chief, before = True, self._is_on_chief
        try:
            yield
        finally:
            self._is_on_chief = before

    # -- custom loops ---------------------------------------------------------------------------------------------

    def run(self, fn, args=(), kwargs=None, options=None):
        """One local step: `fn` on every worker that has data; every p-th step that trains also exchanges weights.

        Args:
            fn: the step; it is compiled, so it must not depend on Python values that change.
            args, kwargs: tensors, which every worker gets, and `next(iterator)` of distributed iterators, each of
                which stands for the worker's own next batch.

        Returns:
            What `fn` returned, per worker, for `reduce` and `experimental_local_results`.
        """
        if self._is_on_chief:
            return self.extended.call_for_each_replica(fn, args, kwargs)
        if not _tf.is_eager():
            raise RuntimeError(
                "Call strategy.run from Python, not inside a tf.function: the step is compiled by itself."
            )
        return self._loop.run(fn, args, kwargs or {})

    def reduce(self, reduce_op, value, axis=None):
        """The sum or mean over workers of what `run` returned (over `axis` of each value first, if given)."""
        is_mean = str(getattr(reduce_op, "value", reduce_op)).upper() == "MEAN"
        fold = tf.reduce_mean if is_mean else tf.reduce_sum
        local = [v if axis is None else fold(v, axis) for v in self.experimental_local_results(value)]
        return fold(tf.stack(local), 0)


def _say_who_is_silent(spec: Spec, seconds: float) -> str:
    """Why TensorFlow may not have connected to the tasks of a cluster, which all answered before."""
    silent = find_silent(tasks := name_tasks(spec))
    who = f"no answer any more from: {describe_tasks(silent)}" if silent else f"all answer: {describe_tasks(tasks)}"
    return f"TensorFlow did not connect to all tasks within {seconds:g} s; {who}."
