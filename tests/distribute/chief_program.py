"""A chief with a local cluster of 1 worker and 1 server that ends in the way it is told to.

    python -m tests.distribute.chief_program ENDING FILE

Writes the process ids of its cluster to FILE when it trains (or, where it does not train, when the cluster is there).
"""

import faulthandler
import json
import multiprocessing
import pathlib
import signal
import sys
import time

import keras
import numpy as np

import slimdp_tf


def train(cluster, path: pathlib.Path, rounds: int) -> None:
    """Fits a small model; FILE is written after the second round."""
    strategy = slimdp_tf.SlimDPStrategy(cluster)

    def announce(record) -> None:
        if record.round == 1:
            write(cluster, path)

    strategy.on_round(announce)
    with strategy.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    x = np.ones((rounds, 2), "float32")
    model.fit(x, x[:, :1], batch_size=1, verbose=0)


def write(cluster, path: pathlib.Path) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps([cluster.pid("worker", 0), cluster.pid("ps", 0)]))
    part.rename(path)


def main(ending: str, path: pathlib.Path) -> None:
    if ending in ("returns", "exits"):  # without `with`
        cluster = slimdp_tf.local_cluster(workers=1, ps=1)
        write(cluster, path)
        if ending == "exits":
            sys.exit(3)
        return
    with slimdp_tf.local_cluster(workers=1, ps=1) as cluster:
        if ending == "fails":
            write(cluster, path)
            raise RuntimeError("the program failed")
        if ending == "forks":  # the child holds whatever this process holds, and does not end with it
            multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,)).start()
            write(cluster, path)
            time.sleep(600)
        if ending == "idles":
            cluster.suspend("worker", 0)
            write(cluster, path)
            time.sleep(600)
        train(cluster, path, rounds=10**6)


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)  # the test asks where a program stands that does not end
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in a shell's background
    main(sys.argv[1], pathlib.Path(sys.argv[2]))
