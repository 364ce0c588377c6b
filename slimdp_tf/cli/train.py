"""Trains one config.

    tools/train --config=fashion_mnist_mlp:slim --config.options.alpha=0.1 --config.epochs=2

On a cluster of this machine's processes (--config.workers, --config.ps), or, with TF_CONFIG set, on that cluster:
start the same command on every host; workers and PS serve, the chief trains.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import keras

from slimdp_tf.cli import config_flag
from slimdp_tf.cli.program import check_no_arguments, explaining, run_program
from slimdp_tf.cli.session import (
    choose_folder,
    choose_run_folder,
    describe_tensorboard,
    make_strategy,
    open_cluster,
    train_in,
)
from slimdp_tf.measure.report import compare_runs, format_text
from slimdp_tf.training.experiment import Experiment


def main(arguments: Sequence[str]) -> int:
    """Trains the config of the flags and prints what came of it."""
    check_no_arguments(arguments)
    with explaining():
        config = config_flag.read_config()
        experiment = Experiment.prepare(config)
    folder = choose_run_folder(choose_folder(config), config.method)
    print(f"{config.name} with {experiment.method.name}, {config.epochs} epochs, into {folder}", flush=True)
    with open_cluster(config) as cluster:
        with explaining():
            strategy = make_strategy(experiment, cluster)
        verbose = 1 if sys.stdout.isatty() else 2  # a bar, or a line per epoch
        run = train_in(folder, experiment, strategy, [keras.callbacks.TerminateOnNaN()], verbose=verbose)
    print(f"\n{format_text(compare_runs([run]))}\n")
    print(f"written: {folder}/run.json, {folder}/config.json")
    print(f"TensorBoard: {describe_tensorboard(folder.parent)}")
    return 0


def run() -> None:
    """The program slimdp-train."""
    run_program(main, config_flag.read_arguments)


if __name__ == "__main__":
    run()
