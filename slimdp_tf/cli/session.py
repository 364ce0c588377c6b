"""A cluster, and the runs on it: what train and compare have in common."""

from __future__ import annotations

import contextlib
import datetime
import os
import pathlib
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import keras

from slimdp_tf.cli.program import explaining
from slimdp_tf.distribute.cluster import local_cluster
from slimdp_tf.distribute.strategy import SlimDPStrategy
from slimdp_tf.measure.runs import Run, save_run
from slimdp_tf.training.config import ConfigDict, save_config
from slimdp_tf.training.experiment import Experiment
from slimdp_tf.training.tensorboard import RunLog


@contextlib.contextmanager
def open_cluster(config: ConfigDict) -> Iterator[Any]:
    """Starts a cluster of this machine's processes for as long as the block runs; with TF_CONFIG set, uses that one.

    Yields:
        a ClusterResolver, or None for the cluster of TF_CONFIG.
    """
    if os.environ.get("TF_CONFIG"):
        print("cluster: the one of TF_CONFIG", flush=True)
        yield None
        return
    print(f"cluster: {config.workers} workers and {config.ps} PS on this machine, starting ...", flush=True)
    with contextlib.ExitStack() as stack:
        with explaining():
            cluster = stack.enter_context(local_cluster(workers=config.workers, ps=config.ps))
        yield cluster


def make_strategy(experiment: Experiment, cluster: Any) -> SlimDPStrategy:
    """Returns a strategy for one run. Where TF_CONFIG makes this host a worker or PS, it serves and does not return.

    Args:
        experiment: its method and seed are used.
        cluster: from `open_cluster`.
    """
    keras.utils.clear_session()  # of the run before: layers are counted anew
    return SlimDPStrategy(cluster, experiment.method, seed=experiment.config.seed, overlap=experiment.config.overlap)


def train_in(
    folder: pathlib.Path,
    experiment: Experiment,
    strategy: SlimDPStrategy,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    **fit: Any,
) -> Run:
    """Trains an experiment and writes config.json, run.json and TensorBoard's files into a folder.

    Args:
        folder: the run's own.
        experiment: what to train.
        strategy: from `make_strategy`.
        callbacks: more of them.
        fit: more arguments of `fit`.
    """
    save_config(experiment.config, folder / "config.json")
    run = experiment.train(strategy, [RunLog(folder, strategy, experiment.config), *callbacks], **fit)
    save_run(run, folder / "run.json")
    return run


def choose_folder(config: ConfigDict) -> pathlib.Path:
    """Returns the folder of a config's runs: its workdir, or a new one, runs/<name>-<time>."""
    if config.workdir:
        return pathlib.Path(config.workdir).expanduser()
    return pathlib.Path("runs") / f"{config.name}-{datetime.datetime.now():%Y%m%d-%H%M%S}"


def choose_run_folder(folder: pathlib.Path, label: str) -> pathlib.Path:
    """Returns a folder for one run that does not exist yet: <label>, or <label>-2 and so on."""
    path, number = folder / make_slug(label), 1
    while path.exists():
        number += 1
        path = folder / f"{make_slug(label)}-{number}"
    return path


def make_slug(label: str) -> str:
    """Returns a label as a name for a folder: slim(alpha=0.1) -> slim-alpha-0.1."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", label).strip("-.") or "run"


def describe_tensorboard(folder: pathlib.Path) -> str:
    """Returns the command that shows a folder of runs on TensorBoard."""
    program = "tensorboard" if shutil.which("tensorboard") else f"{sys.executable} -m tensorboard.main"
    return f"{program} --logdir {folder}"
