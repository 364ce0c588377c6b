"""Trains one config with several methods on one cluster, one after another, and compares them.

    tools/compare --config=fashion_mnist_mlp --methods="plump,slim(alpha=0.1,beta=0.05),carry=slim(memory='carry')"

Ends with a table, which is also written as text, Markdown, CSV and JSON, and with pictures.
"""

from __future__ import annotations

import pathlib
import time
import traceback
from collections.abc import Sequence
from typing import Any

from absl import flags

from slimdp_tf import methods
from slimdp_tf.cli import config_flag
from slimdp_tf.cli.method_list import MethodCall, read_methods
from slimdp_tf.cli.program import check_no_arguments, explaining, run_program
from slimdp_tf.cli.progress import ProgressLine
from slimdp_tf.cli.session import (
    choose_folder,
    choose_run_folder,
    describe_tensorboard,
    make_strategy,
    open_cluster,
    train_in,
)
from slimdp_tf.measure.plots import write_pictures
from slimdp_tf.measure.report import compare_runs, format_text, write_report
from slimdp_tf.measure.runs import Run
from slimdp_tf.training.experiment import Experiment
from slimdp_tf.training.tensorboard import write_ratio

_METHODS = flags.DEFINE_string(
    "methods",
    "plump,quant,slim",
    "Methods to compare: name, name(option=value,...) or label=name(option=value,...), with commas between; or all.",
)


def main(arguments: Sequence[str]) -> int:
    """Compares the methods of the flags; returns 1 when one of them failed."""
    check_no_arguments(arguments)
    with explaining():
        experiments = prepare(read_methods(_METHODS.value, methods.names()))
    folder = choose_folder(experiments[0].config)
    labels = ", ".join(experiment.label for experiment in experiments)
    print(f"{experiments[0].config.name} with {labels}, into {folder}", flush=True)
    with open_cluster(experiments[0].config) as cluster:
        runs, folders = train_all(experiments, folder, cluster)
        for run, row in zip(runs, compare_runs(runs)):  # TensorFlow's work is done while its cluster is there
            write_ratio(folders[run.label], run, row.ratio)
    if runs:
        publish(runs, folder)
    failed = [experiment.label for experiment in experiments if experiment.label not in folders]
    if failed:
        print(f"failed: {', '.join(failed)}; see above")
    return 1 if failed else 0


def run() -> None:
    """The program slimdp-compare."""
    run_program(main, config_flag.read_arguments)


def prepare(calls: Sequence[MethodCall]) -> list[Experiment]:
    """Returns one checked experiment per method; all of them share the data.

    Raises:
        ValueError: a mistake in any of them, or a flag for an option that none of them has.
    """
    path, overrides = config_flag.read_overrides()
    configs = [config_flag.make_config(path, call.name, call.options, overrides) for call in calls]
    for key in overrides:
        option = key.removeprefix("options.")
        if option != key and not any(option in config.options for config in configs):
            raise ValueError(f"--config.{key} must be an option of a compared method. Received: one that none has.")
    first = Experiment.prepare(configs[0], calls[0].label)
    rest = zip(configs[1:], calls[1:], strict=True)
    return [first, *(Experiment.prepare(config, call.label, first.feed) for config, call in rest)]


def train_all(
    experiments: Sequence[Experiment], folder: pathlib.Path, cluster: Any
) -> tuple[list[Run], dict[str, pathlib.Path]]:
    """Trains one after another; one that fails is reported and the others go on, Ctrl-C ends with what is done.

    Args:
        experiments: what to train.
        folder: where each run gets a folder.
        cluster: from `open_cluster`.

    Returns:
        the finished runs, and label -> folder of each.
    """
    runs: list[Run] = []
    folders: dict[str, pathlib.Path] = {}
    width = max(len(experiment.label) for experiment in experiments)
    start = time.monotonic()
    for number, experiment in enumerate(experiments, start=1):
        place = choose_run_folder(folder, experiment.label)
        heading = f"[{number}/{len(experiments)}] {experiment.label.ljust(width)}"
        try:
            strategy = make_strategy(experiment, cluster)
            line = ProgressLine(heading, strategy, experiment.count_steps(strategy.workers))
            runs.append(train_in(place, experiment, strategy, [line], verbose=0))
            folders[experiment.label] = place
        except KeyboardInterrupt:
            print("\nstopped; what was finished is reported")
            break
        except Exception:  # of any kind: hours of other runs must not be lost with it
            traceback.print_exc()
            print(f"{heading}  failed", flush=True)
        left = (time.monotonic() - start) / number * (len(experiments) - number)
        if left:
            print(f"      about {left / 60:.1f} min left for the other methods", flush=True)
    return runs, folders


def publish(runs: Sequence[Run], folder: pathlib.Path) -> None:
    """Writes table and pictures into a folder, prints the table and where everything is."""
    tables = write_report(runs, folder)
    pictures = write_pictures(runs, folder)
    print(f"\n{format_text(compare_runs(runs))}\n")
    for run in runs:
        options = ", ".join(f"{name}={value}" for name, value in run.config["options"].items())
        print(f"{run.label}: {run.method}({options})")
    print()
    print(f"table:       {tables[0]} (and as .md, .csv, .json)")
    print("pictures:    " + ", ".join(str(path) for path in pictures if path.suffix == ".png") + " (and as .pdf)")
    print(f"TensorBoard: {describe_tensorboard(folder)}")


if __name__ == "__main__":
    run()
