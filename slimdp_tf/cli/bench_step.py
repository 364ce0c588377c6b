"""A step of workers that share this machine against a step of one plain Keras process on it.

    tools/bench_step --model=fashion_mnist_cnn --workers=2 --methods="plump(p=1),plump(p=16),slim(p=16)"

Epochs of plain Keras and of the cluster take turns; the figures are medians, and the ratio is what to look at. One step
of K workers is K batches, so K times the examples.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import keras
import numpy as np
from absl import flags

from slimdp_tf import methods
from slimdp_tf.cli.method_list import read_methods
from slimdp_tf.cli.program import check_no_arguments, explaining, run_program
from slimdp_tf.distribute.cluster import local_cluster
from slimdp_tf.distribute.strategy import SlimDPStrategy
from slimdp_tf.training import models

BUILDERS = {"fashion_mnist_mlp": models.fashion_mnist_mlp, "fashion_mnist_cnn": models.fashion_mnist_cnn}


def compile_model(name: str) -> keras.Model:
    """A model of `BUILDERS`, compiled with plain SGD."""
    model = BUILDERS[name]()
    model.compile(keras.optimizers.SGD(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def time_in_turns(epochs: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """Median seconds of each epoch; all are run once before, and then take turns."""
    seconds = [[] for _ in epochs]
    for repeat in range(repeats + 1):
        for epoch, taken in zip(epochs, seconds):
            started = time.perf_counter()
            epoch()
            if repeat:
                taken.append(time.perf_counter() - started)
    return [float(np.median(taken)) for taken in seconds]


def main(arguments: Sequence[str]) -> int:
    """Times the methods of the flags."""
    check_no_arguments(arguments)
    given = flags.FLAGS
    with explaining():
        calls = read_methods(given.methods, methods.names())
        chosen = [call.make() for call in calls]
    rng = np.random.default_rng(0)
    rows = given.steps * given.batch_size * given.workers
    x, y = rng.integers(0, 256, (rows, 28, 28)).astype(np.uint8), rng.integers(0, 10, rows)
    share = rows // given.workers
    fit = {"batch_size": given.batch_size, "verbose": 0}
    with local_cluster(given.workers, 1) as cluster:
        epochs = []
        for method in chosen:
            with SlimDPStrategy(cluster, method).scope():
                model = compile_model(given.model)
            epochs.append(lambda model=model: model.fit(x, y, **fit))
        plain = compile_model(given.model)  # made when the process is a chief already: its devices have their names
        epochs.insert(0, lambda: plain.fit(x[:share], y[:share], **fit))
        one, *others = (1e3 * seconds / given.steps for seconds in time_in_turns(epochs, given.repeats))
    print(f"{'':<28}{'ms/step':>9}{'x Keras':>9}{'examples/s, x Keras':>21}")
    print(f"{'one Keras process':<28}{one:>9.2f}{1:>9.2f}{1:>21.2f}")
    for call, ms in zip(calls, others):
        print(f"{call.label:<28}{ms:>9.2f}{ms / one:>9.2f}{given.workers * one / ms:>21.2f}")
    return 0


def run() -> None:
    """The program slimdp-bench-step; its flags are made here, as other programs have some of the same names."""
    flags.DEFINE_enum("model", "fashion_mnist_mlp", list(BUILDERS), "Which model.")
    flags.DEFINE_string("methods", "plump(p=1),plump(p=16),slim(p=16)", "Methods to time, with commas between.")
    flags.DEFINE_integer("workers", 2, "Workers of the cluster.", lower_bound=1)
    flags.DEFINE_integer("steps", 320, "Steps per epoch.", lower_bound=1)
    flags.DEFINE_integer("batch_size", 32, "Examples per worker and step.", lower_bound=1)
    flags.DEFINE_integer("repeats", 5, "Epochs of each, in turns.", lower_bound=1)
    run_program(main)


if __name__ == "__main__":
    run()
