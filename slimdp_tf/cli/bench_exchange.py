"""What an exchange costs on this machine, unshaped: milliseconds per round, bytes and memory, at several sizes.

    tools/bench_exchange --sizes=1e6,1e7,1.28e8 --workers=2 --ps=2 --methods="plump,quant,slim(alpha=0.2,beta=0.1)"

The model is a matrix and a row of 64, and a local step changes the row, so that a round is its exchange. Methods take
turns, a round each. `--model=vgg16` trains a whole model on zeros instead, one example a step, every method on a
cluster of its own. `--bare` adds the weights alone, from one worker to one ps and back: as one tensor, as TensorFlow's
own parameter servers send them, and in pieces, as this package does.
"""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import flags

from slimdp_tf import methods
from slimdp_tf.cli.costs import fit_rounds
from slimdp_tf.cli.method_list import read_methods
from slimdp_tf.cli.program import check_folder, check_no_arguments, explaining, read_sizes, run_program
from slimdp_tf.distribute.cluster import LocalCluster, local_cluster
from slimdp_tf.distribute.strategy import SlimDPStrategy
from slimdp_tf.distribute.transport import there_and_back
from slimdp_tf.measure.record import RoundRecord
from slimdp_tf.method import Method
from slimdp_tf.training.models import BUILDERS

_ROW = 64  # entries
_ONE, _PIECES = "one tensor, there and back", "pieces, there and back"
_COLUMNS = (
    f"{'method':<28}{'n':>13}{'MB/round':>10}{'ms/round':>10}{'x first':>9}{'compute':>9}{'exchange':>10}{'wait':>8}"
    f"{'chief cpu':>11}"
)


@dataclasses.dataclass(frozen=True)
class Cost:
    """A round of one method, medians; the parts are those of `measure.record.RoundRecord`.

    `chief_ms` is the processor time of the chief's process.
    """

    method: str
    entries: int
    mb: float
    ms: float
    compute_ms: float = 0.0
    exchange_ms: float = 0.0
    wait_ms: float = 0.0
    chief_ms: float = 0.0


def make_rounds(cluster: LocalCluster, method: Method, entries: int) -> tuple[SlimDPStrategy, Callable[[], None]]:
    """A strategy of the method and a function that runs one round of it."""
    strategy = SlimDPStrategy(cluster, method)
    with strategy.scope():
        weights = [keras.Variable(tf.zeros(shape)) for shape in ([max(1, entries // _ROW - 1), _ROW], [_ROW])]

    def step(batch):
        matrix, row = (weight.value for weight in weights)
        matrix.assign(matrix.read_value())  # what is assigned is exchanged; this costs nothing
        row.assign_sub(tf.fill([_ROW], 1e-3))

    data = strategy.distribute_datasets_from_function(lambda context: tf.data.Dataset.from_tensors(0).repeat())
    batches = iter(data)

    def run() -> None:
        for _ in range(strategy.method.p):
            strategy.run(step, (next(batches),))

    return strategy, run


def measure(cluster: LocalCluster, chosen: dict[str, Method], entries: int, repeats: int, bare: bool) -> list[Cost]:
    """Runs all methods (label -> method) at one size, in turns."""
    made = [make_rounds(cluster, method, entries) for method in chosen.values()]
    moves = {label: there_and_back(entries, label == _PIECES) for label in ((_ONE, _PIECES) if bare else ())}
    taken: dict[str, list[float]] = {label: [] for label in (*chosen, *moves)}
    for warm_up in (True,) * 3 + (False,) * repeats:  # the first pulls everything, the second the first answer
        for label, (_, run) in zip(chosen, made):
            before = time.process_time()
            run()
            taken[label] += [] if warm_up else [1e3 * (time.process_time() - before)]
        for label, move in moves.items():
            started = time.perf_counter()
            move()
            taken[label] += [] if warm_up else [1e3 * (time.perf_counter() - started)]
    costs = [
        cost_of(label, entries, strategy.records[-repeats:], float(np.median(taken[label])))
        for label, (strategy, _) in zip(chosen, made)
    ]
    return costs + [Cost(label, entries, 8e-6 * entries, float(np.median(taken[label]))) for label in moves]


def measure_model(
    name: str, chosen: dict[str, Method], workers: int, ps: int, repeats: int
) -> tuple[list[Cost], dict[str, dict[str, float]]]:
    """Trains a model by all methods (label -> method), each on a cluster of its own.

    Returns:
        Their costs, and for each label the peak resident MB of every task.
    """
    costs, peaks = [], {}
    for label, method in chosen.items():
        with local_cluster(workers, ps) as cluster:
            strategy = SlimDPStrategy(cluster, method)
            before = time.process_time()
            records = fit_rounds(strategy, BUILDERS[name], 1, repeats)
            chief_ms = 1e3 * (time.process_time() - before) / len(strategy.records)
            costs.append(cost_of(label, count_entries(name), records, chief_ms))
            peaks[label] = read_memory(cluster)
    return costs, peaks


def cost_of(label: str, entries: int, records: Sequence[RoundRecord], chief_ms: float) -> Cost:
    """The medians of some rounds."""
    mb = float(np.median([record.traffic.exchange_mb for record in records]))
    parts = [(r.round_s, r.compute_s, r.exchange_s, r.wait_s) for r in records]
    return Cost(label, entries, mb, *[1e3 * float(seconds) for seconds in np.median(parts, 0)], chief_ms)


def read_memory(cluster: LocalCluster) -> dict[str, float]:
    """Peak resident MB of every task."""
    peaks = {}
    for job, addresses in cluster.addresses.items():
        for index in range(len(addresses)) if job != "chief" else ():
            status = pathlib.Path(f"/proc/{cluster.pid(job, index)}/status").read_text()
            peaks[f"{job} {index}"] = int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1000
    return peaks


def check_memory(entries: int, workers: int, ps: int, methods_at_once: int) -> None:
    """Refuses what this machine has no memory for, before anything is made.

    A worker holds its weights, their anchor and what it packs and unpacks (5 x 4n bytes, as a peak), the servers hold
    the block, its state, and for every worker a push and an answer; each for every method that is measured at once.

    Raises:
        ValueError: less is available.
    """
    needed = 4 * entries * (5 * workers + 2 + 2 * workers) * methods_at_once
    lines = pathlib.Path("/proc/meminfo").read_text()
    available = 1024 * int(re.search(r"MemAvailable:\s+(\d+)", lines)[1])
    if needed > available:
        raise ValueError(
            f"{entries:,} entries on {workers} workers and {ps} ps, {methods_at_once} methods at once, need about "
            f"{needed / 1e9:.1f} GB; this machine has {available / 1e9:.1f} GB left. Name fewer methods or workers."
        )


def format_line(cost: Cost, first: Cost) -> str:
    """One line of the table."""
    split = f"{cost.compute_ms:>9.1f}{cost.exchange_ms:>10.1f}{cost.wait_ms:>8.1f}{cost.chief_ms:>11.1f}"
    return f"{cost.method:<28}{cost.entries:>13,}{cost.mb:>10.2f}{cost.ms:>10.1f}{cost.ms / first.ms:>9.2f}{split}"


def show(costs: Sequence[Cost], peaks: dict[str, float], first: Cost) -> list[dict[str, Any]]:
    """Prints the lines of some costs and the memory they took together, and returns both as plain data."""
    for cost in costs:
        print(format_line(cost, first), flush=True)
    print("  peak MB: " + ", ".join(f"{task} {mb:.0f}" for task, mb in peaks.items()), flush=True)
    return [{**dataclasses.asdict(cost), "peak_mb": peaks} for cost in costs]


def count_entries(name: str) -> int:
    """Trainable parameters of a model of `slimdp_tf.training.models`; none of them is made."""
    with keras.StatelessScope():
        return sum(math.prod(v.shape) for v in BUILDERS[name]().trainable_variables)


def main(arguments: Sequence[str]) -> int:
    """Measures the methods of the flags at the sizes of the flags."""
    check_no_arguments(arguments)
    given = flags.FLAGS
    with explaining():
        check_folder(given.json)
        sizes, calls = read_sizes(given.sizes), read_methods(given.methods, methods.names())
        chosen = {call.label: call.make() for call in calls}
        entries, at_once = (max(sizes), len(chosen)) if not given.model else (count_entries(given.model), 1)
        check_memory(entries, given.workers, given.ps, at_once)
    print(_COLUMNS)
    found = []
    if given.model:
        costs, peaks = measure_model(given.model, chosen, given.workers, given.ps, given.repeats)
        for cost in costs:
            found += show([cost], peaks[cost.method], costs[0])
    for entries in () if given.model else sizes:
        with local_cluster(given.workers, given.ps) as cluster:
            costs = measure(cluster, chosen, entries, given.repeats, given.bare)
            found += show(costs, read_memory(cluster), costs[0])
    if given.json:
        pathlib.Path(given.json).write_text(json.dumps(found, indent=1))
    return 0


def run() -> None:
    """The program slimdp-bench-exchange; its flags are made here, as other programs have some of the same names."""
    flags.DEFINE_list("sizes", ["1e6", "1e7"], "Entries n of the model, one or more.")
    flags.DEFINE_string("methods", "plump,quant,slim(alpha=0.2,beta=0.1)", "Methods, with commas between.")
    flags.DEFINE_enum("model", None, list(BUILDERS), "Train this model instead, every method on a cluster of its own.")
    flags.DEFINE_integer("workers", 2, "Workers of the cluster.", lower_bound=1)
    flags.DEFINE_integer("ps", 2, "Servers of the cluster.", lower_bound=1)
    flags.DEFINE_integer("repeats", 7, "Rounds of each, in turns.", lower_bound=1)
    flags.DEFINE_bool("bare", False, "Whether to move the weights bare, too: as one tensor, and in pieces.")
    flags.DEFINE_string("json", None, "Where to write the figures as JSON.")
    run_program(main)


if __name__ == "__main__":
    run()
