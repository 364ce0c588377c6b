"""Accuracy on Fashion-MNIST with a worker killed every 10 s, beside the undisturbed run.

python -m tests.training.accuracy_under_kills [seeds] [epochs]
"""

from __future__ import annotations

import random
import sys
import threading

import keras

import slimdp_tf
from slimdp_tf import methods
from slimdp_tf.training.datasets import load_fashion_mnist

WORKERS, EVERY_S, AWAY_S = 4, 10.0, 2.0
METHOD = methods.slim(0.1, 0.05, p=4, q=100, memory="carry", average="contributors")


class Killer(threading.Thread):
    """Kills a worker every 10 s, and starts it anew 2 s later, until it is stopped."""

    def __init__(self, cluster, seed: int):
        super().__init__(daemon=True)
        self.cluster, self.random, self.is_over, self.kills = cluster, random.Random(seed), threading.Event(), 0

    def run(self) -> None:
        while not self.is_over.wait(EVERY_S - AWAY_S):
            worker = self.random.randrange(WORKERS)
            self.cluster.kill("worker", worker)
            self.kills += 1
            self.is_over.wait(AWAY_S)
            self.cluster.restart("worker", worker)


def train(seed: int, epochs: int, has_kills: bool) -> tuple[float, int, int]:
    """Accuracy on the test images, kills, and pushes that were lost with a killed worker."""
    (x, y), test = load_fashion_mnist(dtype="float32")
    with slimdp_tf.local_cluster(WORKERS, 2) as cluster:
        strategy = slimdp_tf.SlimDPStrategy(cluster, METHOD, seed=seed, worker_deadline_s=60.0)
        keras.utils.set_random_seed(seed)
        with strategy.scope():
            layers = [keras.layers.Flatten(), *(keras.layers.Dense(256, "relu") for _ in range(2))]
            model = keras.Sequential([keras.Input((28, 28)), *layers, keras.layers.Dense(10, "softmax")])
            model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy", metrics=["accuracy"])
        killer = Killer(cluster, seed)
        if has_kills:
            killer.start()
        model.fit(x, y, batch_size=32, epochs=epochs, verbose=0)
        killer.is_over.set()
        if has_kills:
            killer.join()
        lost = sum(WORKERS - record.workers for record in strategy.records)
        return model.evaluate(*test, verbose=0)[1], killer.kills, lost


def main(seeds: int = 3, epochs: int = 3) -> None:
    """Prints a line per seed."""
    print("seed  undisturbed  with kills  difference  kills  pushes lost", flush=True)
    for seed in range(seeds):
        calm, _, _ = train(seed, epochs, has_kills=False)
        hard, kills, lost = train(seed, epochs, has_kills=True)
        print(f"{seed:4d}  {calm:11.4f}  {hard:10.4f}  {hard - calm:+10.4f}  {kills:5d}  {lost:11d}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
