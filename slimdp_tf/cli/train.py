"""Trains one config.

    tools/train --config=fashion_mnist_mlp:slim --config.options.alpha=0.1 --config.epochs=2

On a cluster of this machine's processes (--config.workers, --config.ps), or, with TF_CONFIG set, on that cluster:
start the same command on every host; workers and PS serve, the chief trains.

With --config.workdir, the same command started again goes on from the last snapshot of a run that was interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import keras

from slimdp_tf.cli import config_flag
from slimdp_tf.cli.program import check_no_arguments, explaining, run_program
from slimdp_tf.cli.resume import State, find_run
from slimdp_tf.cli.session import (
    choose_folder,
    describe_tensorboard,
    make_strategy,
    open_cluster,
    train_in,
)
from slimdp_tf.measure.report import compare_runs, format_text
from slimdp_tf.training.experiment import Experiment
from slimdp_tf.training.snapshots import Snapshots

_SNAPSHOT_S = 30.0  # between two snapshots


def main(arguments: Sequence[str]) -> int:
    """Trains the config of the flags and prints what came of it."""
    check_no_arguments(arguments)
    with explaining():
        config = config_flag.read_config()
        experiment = Experiment.prepare(config)
        folder, state = find_run(choose_folder(config), config)
    if state is State.COMPLETE:
        print(f"{folder} holds this run, and it is complete: nothing is left to train.", flush=True)
        return 0
    how = "going on in" if state is State.BEGUN else "into"
    print(f"{config.name} with {experiment.method.name}, {config.epochs} epochs, {how} {folder}", flush=True)
    with open_cluster(config) as cluster:
        with explaining():
            strategy = make_strategy(experiment, cluster)
        verbose = 1 if sys.stdout.isatty() else 2  # a bar, or a line per epoch
        callbacks = [keras.callbacks.TerminateOnNaN(), Snapshots(folder / "snapshots", every_s=_SNAPSHOT_S)]
        run = train_in(folder, experiment, strategy, callbacks, verbose=verbose)
    print(f"\n{format_text(compare_runs([run]))}\n")
    print(f"written: {folder}/run.json, {folder}/config.json")
    print(f"TensorBoard: {describe_tensorboard(folder.parent)}")
    return 0


def run() -> None:
    """The program slimdp-train."""
    run_program(main, config_flag.read_arguments)


if __name__ == "__main__":
    run()
