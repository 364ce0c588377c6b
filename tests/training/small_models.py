"""Small models, data and metrics for tests of the Keras bridge, and what they can be asked afterwards."""

from __future__ import annotations

import keras
import numpy as np

from slimdp_tf import methods
from slimdp_tf.distribute.roles import Role

# With the last two a worker does not hold the servers' model, not even when it has adopted what was merged.
KINDS_OF_COPIES = {
    "plump": methods.plump(p=2),
    "slim_carry": methods.slim(0.5, 0.25, p=2, q=3, memory="carry", average="contributors"),
    "quant_pull": methods.quant(p=2, bucket=4, quantize_pull=True),
}


def make_data(rows: int, inputs: int = 4, outputs: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a noisy linear function: x f32[rows, inputs], y f32[rows, outputs]."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((rows, inputs)).astype(np.float32)
    noise = 0.1 * rng.standard_normal((rows, outputs))
    return x, (x @ rng.standard_normal((inputs, outputs)) + noise).astype(np.float32)


def make_linear(inputs: int = 4, outputs: int = 2) -> keras.Model:
    """One Dense layer; the same weights each time."""
    keras.utils.set_random_seed(3)
    return keras.Sequential([keras.Input((inputs,)), keras.layers.Dense(outputs)])


def compile_linear(under, optimizer=None, model=None, **arguments) -> keras.Model:
    """A model (one Dense layer if none is given) made and compiled under a strategy; None is plain Keras."""
    if under is None:
        return _compile(optimizer, model, arguments)
    with under.scope():
        return _compile(optimizer, model, arguments)


def _compile(optimizer, make_model, arguments) -> keras.Model:
    model = (make_model or make_linear)()
    make_optimizer = optimizer or (lambda: keras.optimizers.SGD(0.05))
    model.compile(make_optimizer(), arguments.pop("loss", "mse"), **arguments)
    return model


def flatten(model: keras.Model) -> np.ndarray:
    """All weights as one vector."""
    return np.concatenate([np.ravel(w) for w in model.get_weights()])


def ask_workers(variable: keras.Variable) -> list[np.ndarray]:
    """What each worker's own copy of a variable holds."""
    return [copy.numpy() for copy in variable.value.copies]


def servers_weights(under) -> np.ndarray:
    """The trainable weights as the servers hold them, asked past the chief's copies."""
    return np.concatenate([block.value.numpy() for block in under.rounds.cache.shared[Role.WEIGHT].blocks])


def average_by_hand(x, y, batch: int, rounds: list[int], rate: float = 0.05) -> np.ndarray:
    """Weights of `make_linear` after rounds of so many local SGD steps on two workers, each followed by an average."""
    weights, done = flatten(make_linear()).astype(np.float64), 0
    for steps in rounds:
        ends = [descend_by_hand(weights, x, y, batch, worker, range(done, done + steps), rate) for worker in range(2)]
        weights, done = np.mean(ends, 0), done + steps
    return weights


def descend_by_hand(weights, x, y, batch: int, worker: int, steps: range, rate: float = 0.05) -> np.ndarray:
    """Weights of `make_linear` after these local SGD steps of one of two workers."""
    inputs, outputs = x.shape[1], y.shape[1]
    kernel, bias = weights[: inputs * outputs].reshape(inputs, outputs), weights[inputs * outputs :]
    for step in steps:
        rows = slice(worker + 2 * batch * step, 2 * batch * (step + 1), 2)
        error = 2 * (x[rows] @ kernel + bias - y[rows]) / y[rows].size
        kernel, bias = kernel - rate * x[rows].T @ error, bias - rate * error.sum(0)
    return np.concatenate([kernel.ravel(), bias])


class Seen(keras.metrics.Metric):
    """Counts how often each id was a target, and in which batch it was last; the ids are the targets' first column."""

    def __init__(self, ids: int, name: str = "seen"):
        super().__init__(name=name)
        self.counts = self.add_variable((ids,), "zeros", name="counts")
        self.batch = self.add_variable((ids,), "zeros", name="batch")
        self.batches = self.add_variable((), "zeros", name="batches")

    def update_state(self, y_true, y_pred, sample_weight=None):
        ids = keras.ops.cast(keras.ops.reshape(y_true, (keras.ops.shape(y_true)[0], -1))[:, 0], "int32")
        here = keras.ops.sum(keras.ops.one_hot(ids, self.counts.shape[0]), axis=0)
        self.batches.assign(self.batches + 1)
        self.counts.assign(self.counts + here)
        self.batch.assign(keras.ops.where(here > 0, self.batches, self.batch))

    def result(self):
        return keras.ops.sum(self.counts)

    @property
    def by_worker(self) -> list[list[int]]:
        """How often each worker saw each id."""
        return [[int(count) for count in counts] for counts in ask_workers(self.counts)]


class Watch(keras.callbacks.Callback):
    """Keeps what `look(model)` returns at the end of every epoch."""

    def __init__(self, look):
        super().__init__()
        self.look, self.found = look, []

    def on_epoch_end(self, epoch, logs=None):
        self.found.append(self.look(self.model))
