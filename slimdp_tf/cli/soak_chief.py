"""The chief of a soak: fits a small model until it is told to stop, and writes what it sees.

python -m slimdp_tf.cli.soak_chief FOLDER OPTIONS, with the cluster in TF_CONFIG

It writes lines of JSON into FOLDER/chief.jsonl: one per round and one per epoch; "at" is the monotonic clock, which all
processes of a machine share. It ends when there is a file FOLDER/stop.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from slimdp_tf.cli.method_list import MethodCall
from slimdp_tf.distribute.strategy import SlimDPStrategy
from slimdp_tf.training.snapshots import Snapshots

STORY, STOP = "chief.jsonl", "stop"
_FEATURES, _HIDDEN, _CLASSES = 64, 256, 10
_BATCH, _ROUNDS = 16, 100  # per epoch
_SNAPSHOT_S = 10.0
_PAUSE_S = 0.05  # after every round, so that a process can be started beside those that train


class Reporter(keras.callbacks.Callback):
    """Writes what rounds and epochs came to, and stops the training when it is asked to."""

    def __init__(self, strategy: SlimDPStrategy, folder: pathlib.Path, write: Callable[..., None]):
        super().__init__()
        self._strategy, self._stop, self._write = strategy, folder / STOP, write
        strategy.on_round(lambda record: write(round=record.round, workers=record.workers))

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        time.sleep(_PAUSE_S)
        if self._stop.exists():
            self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        is_finite = all(bool(np.isfinite(weight).all()) for weight in self.model.get_weights())
        loss = float((logs or {}).get("loss", float("nan")))
        self._write(epoch=epoch, loss=loss, is_finite=is_finite, lost=self._strategy.rounds.recovery.lost)


def make_data(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns examples f32[rows, 64] and the classes that a fixed random layer gives them, i32[rows]."""
    drawn = np.random.default_rng(seed)
    x = drawn.standard_normal((rows, _FEATURES)).astype(np.float32)
    return x, (x @ drawn.standard_normal((_FEATURES, _CLASSES))).argmax(1).astype(np.int32)


def make_model(seed: int) -> keras.Model:
    """Returns the model, compiled."""
    keras.utils.set_random_seed(seed)
    layers = [keras.layers.Dense(_HIDDEN, "relu"), keras.layers.BatchNormalization(), keras.layers.Dense(_CLASSES)]
    model = keras.Sequential([keras.Input((_FEATURES,)), *layers])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), loss, metrics=["accuracy"])
    return model


def main(folder: pathlib.Path, options: dict[str, Any]) -> None:
    """Trains on the cluster of TF_CONFIG.

    Args:
        folder: where to write.
        options: "method" and "options" of it, "seed", and the deadlines "worker_deadline_s" and "cluster_deadline_s".
    """
    method = MethodCall("", options["method"], options["options"]).make()
    deadlines = {name: options[name] for name in ("worker_deadline_s", "cluster_deadline_s")}
    strategy = SlimDPStrategy(method=method, seed=options["seed"], timeout_s=120.0, **deadlines)
    with strategy.scope():
        model = make_model(options["seed"])
    x, y = make_data(_ROUNDS * method.p * _BATCH * strategy.workers, options["seed"])
    with open(folder / STORY, "w", buffering=1) as file:

        def write(**seen: Any) -> None:
            file.write(json.dumps({"at": time.monotonic(), **seen}) + "\n")

        callbacks = [Reporter(strategy, folder, write), Snapshots(folder / "snapshots", every_s=_SNAPSHOT_S)]
        model.fit(x, y, batch_size=_BATCH, epochs=10**9, verbose=0, callbacks=callbacks)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), json.loads(sys.argv[2]))
