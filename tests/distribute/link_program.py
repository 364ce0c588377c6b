"""One program for every host, whose links are cut; TF_CONFIG says which task this host has.

TF_CONFIG={...} python -m tests.distribute.link_program FOLDER

The chief trains until it is stopped by an error, and writes what it sees as lines of JSON.
"""

import json
import pathlib
import sys
import time

import keras
import numpy as np

import slimdp_tf

WORKERS, BATCH, ROUNDS = 3, 4, 20  # rounds per epoch
WORKER_DEADLINE_S, CLUSTER_DEADLINE_S = 6.0, 20.0
METHOD = slimdp_tf.methods.slim(alpha=0.5, beta=0.25, p=2, q=8, memory="carry", average="contributors")


def make_data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROUNDS * METHOD.p * BATCH * WORKERS, 100)).astype(np.float32)
    return x, (x @ rng.standard_normal((100, 2)) / 10).astype(np.float32)


def make_model() -> keras.Model:
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.Input((100,)), keras.layers.Dense(100, "tanh"), keras.layers.Dense(2)])
    model.compile(keras.optimizers.SGD(0.01), "mse")
    return model


def main(folder: pathlib.Path) -> None:
    """Trains on the cluster of TF_CONFIG."""
    deadlines = {"worker_deadline_s": WORKER_DEADLINE_S, "cluster_deadline_s": CLUSTER_DEADLINE_S}
    strategy = slimdp_tf.SlimDPStrategy(method=METHOD, seed=3, **deadlines)
    with strategy.scope():
        model = make_model()
    with open(folder / "seen.jsonl", "w", buffering=1) as file:

        def write(**seen) -> None:
            file.write(json.dumps({"at": time.monotonic(), **seen}) + "\n")

        def look(epoch, logs) -> None:
            is_finite = all(np.isfinite(w).all() for w in model.get_weights())
            write(loss=logs["loss"], is_finite=is_finite, lost=strategy.rounds.recovery.lost)

        strategy.on_round(lambda record: write(round=record.round, workers=record.workers))
        snapshots = slimdp_tf.Snapshots(folder / "snapshots", every_s=10)
        callbacks = [keras.callbacks.LambdaCallback(on_epoch_end=look), snapshots]
        try:
            model.fit(*make_data(), batch_size=BATCH, epochs=10**6, verbose=0, callbacks=callbacks)
        except slimdp_tf.ClusterError as error:
            write(error=str(error))
            sys.exit(3)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
