"""A chief with a local cluster that is killed while it trains, with all that belongs to it.

python -m tests.training.resume_program FOLDER METHOD KILLED_AFTER_ROUNDS

The test goes on from what it leaves behind, in a process and on a cluster of its own.
"""

import os
import pathlib
import signal
import sys

import keras
import numpy as np

import slimdp_tf

BATCH, ROUNDS, EPOCHS = 4, 8, 2  # rounds per epoch
METHODS = {
    "plump": slimdp_tf.methods.plump(),
    "slim": slimdp_tf.methods.slim(0.4, 0.2, p=2, q=4, memory="carry", average="contributors"),
}


def make_data(p: int, workers: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((BATCH * ROUNDS * p * workers, 6)).astype(np.float32)
    return x, (np.tanh(x @ rng.standard_normal((6, 2))) + 0.1 * rng.standard_normal((len(x), 2))).astype(np.float32)


def make_model() -> keras.Model:
    """With everything that a worker has of its own: averages, random states, slots, metrics."""
    keras.utils.set_random_seed(7)
    layers = keras.layers
    model = keras.Sequential(
        [keras.Input((6,)), layers.Dense(9, "tanh"), layers.BatchNormalization(), layers.Dropout(0.3), layers.Dense(2)]
    )
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse", metrics=["mae"])
    return model


class EndAfter(keras.callbacks.Callback):
    """Calls `end` after so many rounds."""

    def __init__(self, rounds: int, end):
        super().__init__()
        self.left, self.end = rounds, end

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if self.left == 0:
            self.end()


def fit(strategy, snapshots, callbacks=(), data=None, **arguments) -> tuple[keras.Model, keras.callbacks.History]:
    """Trains the model on all workers."""
    with strategy.scope():
        model = make_model()
    x, y = make_data(strategy.method.p) if data is None else (data, None)
    given = {"epochs": EPOCHS, "verbose": 0, **arguments}
    if data is None:
        given["batch_size"] = BATCH
    callbacks = [*([snapshots] if snapshots else []), *callbacks]
    return model, model.fit(x, y, callbacks=callbacks, **given)


def main(folder: pathlib.Path, method: str, rounds: int) -> None:
    with slimdp_tf.local_cluster(workers=2, ps=2) as cluster:
        strategy = slimdp_tf.SlimDPStrategy(cluster, METHODS[method], seed=3)
        kill = EndAfter(rounds, lambda: os.kill(os.getpid(), signal.SIGKILL))
        fit(strategy, slimdp_tf.Snapshots(folder, every_rounds=3), [kill])


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
