"""What TensorFlow asks of a strategy's inside: variables are local, a replica is a worker, nothing is reduced here."""

from __future__ import annotations

import contextlib
import weakref

import tensorflow as tf

from slimdp_tf.distribute import _tf
from slimdp_tf.distribute.local_variable import LocalVariable

_PASSED_ON = "initial_value trainable name dtype constraint synchronization aggregation shape validate_shape".split()


class _ReplicaContext(_tf.ReplicaContext):
    """A worker's replica, the only one there is for TensorFlow."""

    def all_reduce(self, reduce_op, value, options=None):
        """`value` as it is. TensorFlow's own would register a gradient, which holds the strategy for good."""
        return value


class Extended(_tf.ExtendedBase):
    """Makes `LocalVariable`s under the scope and runs a replica's code as it is.

    Args:
        strategy: the strategy it belongs to.
        resolver: its cluster.
        cache: what keeps the chief's copies in step.
    """

    def __init__(self, strategy, resolver, cache):
        super().__init__(strategy, resolver, variable_partitioner=None)
        self._cache = cache
        self._is_making_slot = False
        self._variables: weakref.WeakValueDictionary[str, LocalVariable] = weakref.WeakValueDictionary()

    @property
    def _num_replicas_in_sync(self):
        return 1  # one replica per worker: losses and gradients are scaled per worker

    def _resource_creator_scope(self):
        return None

    def _create_variable(self, next_creator, **kwargs):
        if not _tf.is_eager():
            with tf.init_scope():
                if not _tf.is_eager():
                    raise ValueError(f"Variable {kwargs.get('name')!r} cannot be made while a function is traced.")
        known = {name: kwargs[name] for name in _PASSED_ON if kwargs.get(name) is not None}
        with tf.init_scope(), tf.device("/job:chief/replica:0/task:0/device:CPU:0"):
            variable = LocalVariable(
                cache=self._cache,
                is_slot=self._is_making_slot,
                distribute_strategy=self._container_strategy(),
                **known,
            )
        self._variables[variable._unique_id] = variable
        return variable

    def used_in(self, graphs: list) -> list[LocalVariable]:
        """The variables that functions traced in `graphs` read or write, in the order in which they were made.

        Raises:
            ValueError: one of them uses a variable that was not made under the strategy's scope.
        """
        strangers = sorted({name for graph in graphs for name in _tf.fixed_variables(graph)})
        if strangers:
            raise ValueError(
                f"The training step uses variables that were not made under strategy.scope(): {', '.join(strangers)}. "
                "Make the model, its metrics, its optimizer and its random generators inside `with strategy.scope():`."
            )
        keys = {key for graph in graphs for key in _tf.call_time_keys(graph)}
        return [v for v in self._variables.values() if v.key in keys]

    @contextlib.contextmanager
    def _making_slot(self):
        self._is_making_slot, before = True, self._is_making_slot
        try:
            yield
        finally:
            self._is_making_slot = before

    def colocate_vars_with(self, colocate_with_variable):
        """A slot lives wherever its variable has a copy: nothing needs to be said, but that it is a slot."""
        return self._making_slot()

    def _validate_colocate_with_variable(self, colocate_with_variable):
        return

    def _call_for_each_replica(self, fn, args, kwargs):
        with _ReplicaContext(self._container_strategy(), replica_id_in_sync_group=0):
            return fn(*args, **kwargs)

    def _update(self, var, fn, args, kwargs, group):
        with _tf.UpdateContext(var.device):
            return fn(var, *args, **kwargs)

    def _reduce_to(self, reduce_op, value, destinations, options):
        return value

    def _batch_reduce_to(self, reduce_op, value_destination_pairs, options):
        return [value for value, _ in value_destination_pairs]

    def _local_results(self, val):
        return tuple(val.values) if isinstance(val, _tf.PerReplica) else (val,)
