"""Workers and servers that are all this process: what the cluster runs, without one.

Every task has the same device, so the functions of workers and servers are the very ones of a cluster; only nothing
crosses a wire, and no process can be lost.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from slimdp_tf.distribute import _tf
from slimdp_tf.distribute.local_variable import LocalVariable, Vector, write_handle
from slimdp_tf.distribute.pacings import rounds_for
from slimdp_tf.distribute.servers import Servers
from slimdp_tf.distribute.step import Step
from slimdp_tf.distribute.workers import Workers
from slimdp_tf.method import Method


def here() -> str:
    """The device of this process, which has another name once the process is a chief."""
    return tf.zeros([]).device


def read_vector(vector: Vector) -> np.ndarray:
    """What a vector holds."""
    return tf.function(vector.read, autograph=False).get_concrete_function()().numpy()


def write_vector(vector: Vector, value) -> None:
    """Sets what a vector holds."""
    write_handle(vector.handle, tf.constant(value, vector.dtype))


class NoCache:
    """For variables that never become stale."""

    def fetch(self, variable: LocalVariable) -> None:
        raise RuntimeError("A variable was fetched.")


def make_workers(count: int, deadline_s: float = 60.0, cluster_deadline_s: float = 0.5) -> Workers:
    """`count` workers, each a thread."""
    return Workers([here()] * count, [f"worker {i}" for i in range(count)], deadline_s, cluster_deadline_s)


def make_servers(count: int, deadline_s: float = 60.0) -> Servers:
    """`count` servers."""
    return Servers([here()] * count, [f"ps {i}" for i in range(count)], deadline_s)


def make_variable(value, cache=None, **arguments) -> LocalVariable:
    """A variable as the strategy makes it."""
    return LocalVariable(cache=cache or NoCache(), initial_value=tf.constant(value), **arguments)


class Drill:
    """Rounds of a step with a fixed gradient per worker: every local step moves the weights by `-moves[worker]`.

    Args:
        method: the recipe.
        start: the weights, one array per variable.
        workers, ps: how many of each.
        moves: f32[workers, n]; what a local step subtracts on each worker.
    """

    def __init__(self, method: Method, start: list[np.ndarray], workers: int, ps: int, moves: np.ndarray, **arguments):
        settings = {"seed": 3, "on_nonfinite": "raise", "overlap": False, **arguments}
        self.method, self.moves = method, tf.Variable(np.asarray(moves, np.float32))
        make_rounds = rounds_for(method, settings.pop("overlap"))
        self.rounds = make_rounds(make_workers(workers), make_servers(ps), method, **settings)
        self.weights = [
            make_variable(v.astype("float32"), self.rounds.cache, name=f"w{i}") for i, v in enumerate(start)
        ]
        self.loss = make_variable(
            0.0, self.rounds.cache, name="loss", aggregation=tf.VariableAggregation.SUM, trainable=False
        )
        self.batches = [-1] * workers  # what each worker's data holds for every round; -1 is without end
        self.use(self.train)

    def use(self, function) -> None:
        """Takes `function` as the local step from now on."""
        self.step = Step(function, [tf.TensorSpec([], tf.int64)], [], True)
        self.rounds.prepare(self.step, [*self.weights, self.loss], self.weights, [])

    def train(self, elements, arguments) -> list[tf.Tensor]:
        """The element is the number of the worker."""
        flat, start = tf.gather(self.moves, elements[0]), 0
        for variable in self.weights:
            size = int(np.prod(variable.shape.as_list()))
            variable.assign_sub(tf.reshape(flat[start : start + size], variable.shape))
            start += size
        self.loss.assign_add(1.0)
        return [tf.reshape(tf.cast(self.loss.value(), tf.float64), [1])]

    def run(self, steps: int | None = None, is_exchanging: bool = True, ahead: int = 0) -> list:
        """One round; `p` local steps unless told otherwise."""
        rounds = self.rounds.run(self.step, self._handles, [], steps or self.method.p, is_exchanging, ahead)
        self.rounds.raise_refusal()
        return rounds

    def _handles(self, worker: int) -> list[tf.Tensor]:
        dataset = tf.data.Dataset.from_tensors(tf.constant(worker, tf.int64)).repeat(self.batches[worker])
        return [_tf.open_iterator(_tf.variant_of(dataset), dataset.element_spec)]

    def values(self) -> np.ndarray:
        """The servers' weights, flattened."""
        return np.concatenate([v.numpy().ravel() for v in self.weights])
