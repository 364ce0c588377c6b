"""Small models, data and metrics for tests of the Keras bridge, and what they can be asked afterwards."""

from __future__ import annotations

import keras
import numpy as np


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


def average_by_hand(x, y, batch: int, rounds: list[int], rate: float = 0.05) -> np.ndarray:
    """Weights of `make_linear` after rounds of so many local SGD steps on two workers, each followed by an average."""
    kernel, bias = (weights.astype(np.float64) for weights in make_linear().get_weights())
    done = 0
    for steps in rounds:
        ends = []
        for worker in range(2):
            k, b = kernel.copy(), bias.copy()
            for step in range(done, done + steps):
                rows = slice(worker + 2 * batch * step, 2 * batch * (step + 1), 2)
                error = 2 * (x[rows] @ k + b - y[rows]) / y[rows].size
                k, b = k - rate * x[rows].T @ error, b - rate * error.sum(0)
            ends.append((k, b))
        kernel, bias = (np.mean(pair, 0) for pair in zip(*ends))
        done += steps
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
