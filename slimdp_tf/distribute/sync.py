"""How the chief's copies of variables are kept in step with the owners of their values (`roles.Role`)."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from slimdp_tf.distribute.calls import constant_here, fetch_here
from slimdp_tf.distribute.local_variable import LocalVariable
from slimdp_tf.distribute.roles import Role
from slimdp_tf.distribute.servers import Servers
from slimdp_tf.distribute.shared import Shared
from slimdp_tf.distribute.workers import Workers

_STRIDE = 0x9E3779B1  # between the random states of two workers; odd, so all differ


class ChiefCache:
    """The chief's copies of all variables, as a cache of their global values.

    Args:
        workers: the workers.
        servers: the servers.
    """

    def __init__(self, workers: Workers, servers: Servers):
        self.workers, self.servers = workers, servers
        self.watch: Callable[[Callable[[], object]], object] = lambda work: work()  # as `Recovery.watch`
        self.roles: dict[int, Role] = {}
        self.variables: list[LocalVariable] = []
        self.shared: dict[Role, Shared] = {}
        self.chief_bytes = 0
        self._readers: dict[tuple, object] = {}
        self._writers: dict[tuple, object] = {}
        self._cleanse = None

    def bind(self, roles: list[tuple[LocalVariable, Role]], shared: dict[Role, Shared]) -> None:
        """Takes charge of `roles`; every value is sent from the chief before the next round."""
        self.roles = {id(variable): role for variable, role in roles}
        self.variables, self.shared = [variable for variable, _ in roles], shared
        self._readers.clear()
        self._writers.clear()
        self._cleanse = None
        for variable in self.variables:
            variable.is_stale, variable.is_dirty = False, True

    def of_role(self, *roles: Role) -> list[LocalVariable]:
        """The variables that have one of `roles`, in order."""
        return [variable for variable in self.variables if self.roles[id(variable)] in roles]

    def leave_behind(self) -> None:
        """After a round: the owners have newer values than the chief's copies."""
        for variable in self.of_role(Role.WEIGHT, Role.AVERAGE, Role.FIRST, Role.OWN):
            variable.is_stale = not variable.is_dirty  # what was assigned meanwhile is newer

    def take_chief_bytes(self) -> int:
        """Bytes moved to and from the chief since the last time this was asked."""
        taken, self.chief_bytes = self.chief_bytes, 0
        return taken

    def absorb(self, variables: list[LocalVariable], values: np.ndarray) -> None:
        """Sets the chief's copies of metrics to `values`, f64[entries of all]: the sums the workers reported."""
        start = 0
        for variable in variables:
            size = math.prod(variable.shape.as_list())
            value = values[start : start + size].reshape(variable.shape.as_list())
            variable.assign_cache(tf.constant(value, variable.dtype))
            start += size

    # -- owners -> chief ------------------------------------------------------------------------------------------

    def fetch(self, variable: LocalVariable) -> None:
        """Brings the chief's copy of `variable` up to date, and those of all others with the same role."""
        role = self.roles[id(variable)]
        stale = [v for v in self.of_role(role) if v.is_stale]
        if role in self.shared:
            purpose = "while the chief read the model"
            values = self.watch(lambda: self.servers.call(self.shared[role].fetch, purpose))
            self.chief_bytes += self.shared[role].nbytes
            for v, value in zip(self.shared[role].layout.variables, values):
                if v.is_stale:
                    v.assign_cache(value)
        else:
            floats = [v for v in stale if v.dtype.is_floating and role is not Role.FIRST]
            others = [v for v in stale if not v.dtype.is_floating or role is Role.FIRST]
            for worker, read in self._read(others, sorted(self.workers.live)[:1]).items():
                self._fill(others, read, worker)
            read = list(self._read(floats, sorted(self.workers.live)).values())
            if read:  # what nobody holds any more stays as it was
                self._fill(floats, [np.mean([r[d].astype(np.float64) for r in read], 0) for d in range(len(read[0]))])
        for v in stale:
            v.is_stale = False

    def assume(self, role: Role, held: dict[int, list[np.ndarray]]) -> None:
        """Sets the chief's copies of the variables of a role from what workers held of them, in order.

        What is shared is the servers': it is only noted that the chief does not have it.
        """
        workers = sorted(held)
        for place, v in enumerate(self.of_role(role)):
            if role in self.shared:
                v.is_stale, v.is_dirty = True, False
                continue
            values = [held[worker][place] for worker in workers]
            if role is Role.SUM:
                v.assign_cache(tf.constant(np.sum(values, 0), v.dtype))
            elif v.dtype.is_floating and role is not Role.FIRST:
                v.assign_cache(tf.constant(np.mean(np.asarray(values, np.float64), 0), v.dtype))
            else:
                self._fill([v], [values[0].ravel()], workers[0])

    def catch_up(self) -> None:
        """Brings up to date what only workers hold: from now on some may be live that hold nothing yet."""
        for variable in self.of_role(Role.FIRST, Role.OWN):
            if variable.is_stale:
                self.fetch(variable)

    def _read(self, variables: list[LocalVariable], workers: list[int]) -> dict[int, list[np.ndarray]]:
        if not variables:
            return {}
        key = tuple(id(v) for v in variables)
        if key not in self._readers:
            self._readers[key] = tf.function(
                lambda: [tf.concat([tf.reshape(v.value(), [-1]) for v in group], 0) for group in _by_dtype(variables)]
            ).get_concrete_function()
        read = self.workers.call(lambda worker: [fetch_here(t).numpy() for t in self._readers[key]()], workers)
        self.chief_bytes += sum(array.nbytes for arrays in read.values() for array in arrays)
        return read

    def _fill(self, variables: list[LocalVariable], values: list[np.ndarray], worker: int = 0) -> None:
        """Sets the chief's copies to flat values by dtype, which were read from `worker` or are means."""
        for group, flat in zip(_by_dtype(variables), values):
            start = 0
            for v in group:
                size = math.prod(v.shape.as_list())
                value = flat[start : start + size].reshape(v.shape.as_list())
                if self._is_random_state(v):
                    value = value - np.array(_shift(worker)).astype(value.dtype)
                v.assign_cache(tf.constant(value, v.dtype))
                start += size

    # -- chief -> owners ------------------------------------------------------------------------------------------

    def send(self) -> bool:
        """Sends what was assigned on the chief to its owners.

        Returns:
            Whether the workers must pull everything.
        """
        dirty = [v for v in self.variables if v.is_dirty]
        must_pull = False
        for role, shared in self.shared.items():
            if any(v.is_dirty for v in self.of_role(role)):
                values = [v.value() for v in shared.layout.variables]  # reading fetches what is stale
                self.servers.call(functools.partial(shared.store, values), "while the chief set the model")
                self.chief_bytes += shared.nbytes
                must_pull = True
        others = [v for v in dirty if self.roles[id(v)] not in self.shared]
        if others:
            self._write(others, sorted(self.workers.live), min(self.workers.live, default=None))
        for v in dirty:
            v.is_dirty = False
        return must_pull

    def furnish(self, workers: list[int], first: int | None) -> None:
        """Sends everything that does not come from the servers to workers that came back.

        Args:
            workers: they hold nothing yet; all that is stale has been fetched from the others.
            first: who holds the sums of metrics.
        """
        self._write([v for v in self.variables if self.roles[id(v)] not in self.shared], workers, first)

    def cleanse(self, workers: list[int]) -> None:
        """Sets to zero what is not finite of what workers have of their own: one bad step would spoil all to come."""
        if self._cleanse is None:
            self._cleanse = tf.function(self._zero_nonfinite, autograph=False).get_concrete_function()
        self.workers.call(lambda worker: self._cleanse(), workers)

    def _zero_nonfinite(self) -> None:
        for v in self.of_role(Role.OWN):
            if v.dtype.is_floating:
                value = v.value()
                v.assign(tf.where(tf.math.is_finite(value), value, tf.zeros_like(value)))

    def _write(self, variables: list[LocalVariable], workers: list[int], first: int | None) -> None:
        for is_zero in (True, False):
            group = [v for v in variables if _is_zero(v) == is_zero]
            if not group:
                continue
            key = (is_zero, *(id(v) for v in group))
            if key not in self._writers:
                self._writers[key] = self._trace_writer(group, is_zero)
            flat = [] if is_zero else [tf.concat([tf.reshape(v.value(), [-1]) for v in g], 0) for g in _by_dtype(group)]
            write = self._writers[key]
            self.workers.call(
                lambda worker, write=write, flat=flat: write(
                    constant_here(worker, tf.int64), constant_here(worker == first), *[tf.identity(f) for f in flat]
                ),
                workers,
            )
            self.chief_bytes += len(workers) * sum(int(tf.size(f)) * f.dtype.size for f in flat)

    def _trace_writer(self, variables: list[LocalVariable], is_zero: bool):
        groups = _by_dtype(variables)

        def write(worker, is_first, *flat):
            for g, group in enumerate(groups):
                sizes = [math.prod(v.shape.as_list()) for v in group]
                pieces = [tf.zeros([s], group[0].dtype) for s in sizes] if is_zero else tf.split(flat[g], sizes)
                for v, piece in zip(group, pieces):
                    v.assign(self._share_of(v, tf.reshape(piece, v.shape), worker, is_first))

        specs = [] if is_zero else [tf.TensorSpec([None], d) for d in _dtypes(variables)]
        scalars = [tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.bool)]
        return tf.function(write, autograph=False).get_concrete_function(*scalars, *specs)

    def _share_of(self, variable: LocalVariable, value: tf.Tensor, worker: tf.Tensor, is_first: tf.Tensor) -> tf.Tensor:
        """What one worker gets of a value that was assigned on the chief."""
        role = self.roles[id(variable)]
        if role is Role.SUM:
            return tf.where(is_first, value, tf.zeros_like(value))
        return value + tf.cast(tf.stack(_shift(worker)), variable.dtype) if self._is_random_state(variable) else value

    def _is_random_state(self, variable: LocalVariable) -> bool:
        """Whether it is (seed, counter), of which every worker has another seed."""
        return self.roles[id(variable)] is Role.OWN and variable.dtype.is_integer and variable.shape == [2]


def _shift(worker):
    """How far the random state of a worker is from the chief's."""
    return [worker * _STRIDE % 2**31, 0]


def _is_zero(variable: LocalVariable) -> bool:
    if variable.dtype == tf.bool or variable.dtype == tf.string:
        return False
    return not bool(tf.reduce_any(tf.not_equal(variable.value(), tf.zeros([], variable.dtype))))


def _dtypes(variables: list[LocalVariable]) -> list[tf.DType]:
    return list(dict.fromkeys(v.dtype for v in variables))


def _by_dtype(variables: list[LocalVariable]) -> list[list[LocalVariable]]:
    return [[v for v in variables if v.dtype == dtype] for dtype in _dtypes(variables)]
