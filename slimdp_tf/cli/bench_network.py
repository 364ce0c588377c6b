"""Trains the same model with several systems on a slow network of this machine's own, and compares seconds and bytes.

    tools/bench_network                                        everything, at 100mbit, 1gbit and unshaped
    tools/bench_network --rates=100mbit --contenders="plump, slim(alpha=0.05, p=16, memory='carry'), torch_localsgd"
    tools/bench_network --contenders=plump --contender=mine:launch   one of your own beside it
    tools/bench_network --loopback                             without the rights to make a network

Every task runs on a host of its own, a network namespace, whose link is shaped in both directions. See docs/bench.md.
"""

from __future__ import annotations

import datetime
import pathlib
import signal
import sys
from collections.abc import Sequence

from absl import flags

from slimdp_tf.bench.contenders.torch_ddp import has_torch
from slimdp_tf.bench.lineup import NEEDS_TORCH, OUTSIDE, list_default, read_contenders
from slimdp_tf.bench.loopback import Loopback
from slimdp_tf.bench.network import Network
from slimdp_tf.bench.rates import UNSHAPED, Rate, read_rates
from slimdp_tf.bench.report import (
    describe_network,
    describe_outcome,
    format_csv,
    format_json,
    format_markdown,
    format_text,
    make_rows,
    write_pictures,
)
from slimdp_tf.bench.result import Result
from slimdp_tf.bench.run import Bench, describe_machine
from slimdp_tf.bench.work import Work, load_examiner
from slimdp_tf.cli.program import check_no_arguments, explaining, run_program

_BASELINE = "plump"
_DEFAULT_RATES = ["100mbit", "1gbit", UNSHAPED]


def main(arguments: Sequence[str]) -> int:
    """Runs what the flags say; returns 1 when a contender failed."""
    check_no_arguments(arguments)
    given = flags.FLAGS
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what is finished is reported
    with explaining():
        bench = prepare(given)
        bench.check()
    labels = ", ".join(contender.label for contender in bench.contenders)
    print(f"{labels} at {', '.join(rate.name for rate in bench.rates)}, into {bench.folder}", flush=True)
    results = run_all(bench, given.baseline)
    if results:
        publish(results, bench, given.baseline)
    return int(any(result.has_failed for result in results))


def run() -> None:
    """The program slimdp-bench-network."""
    define_flags()
    run_program(main)


def define_flags() -> None:
    """Defines the flags; not on import, because other programs have some of the same names."""
    work = Work()
    outside = ", ".join(OUTSIDE)
    flags.DEFINE_string("contenders", None, f"Who runs: methods as in tools/compare, and {outside}; default: all.")
    flags.DEFINE_multi_string("contender", [], "One of your own: module:function or label=module:function.")
    flags.DEFINE_list("rates", None, "Rates of the links: 100mbit, 1gbit, unshaped.")
    flags.DEFINE_boolean("loopback", False, "Run on the loopback device: no rights needed, nothing shaped.")
    flags.DEFINE_integer("workers", work.workers, "Workers, each on a host of its own.")
    flags.DEFINE_integer("ps", work.ps, "Parameter servers, each on a host of its own.")
    flags.DEFINE_float("target", work.target, "Test accuracy at which a run ends.")
    flags.DEFINE_float("epochs", work.epochs, "Epochs after which a run ends at the latest.")
    flags.DEFINE_float("time_limit_s", work.time_limit_s, "Seconds of training after which a run ends at the latest.")
    flags.DEFINE_integer("every", work.every, "Steps per worker between two evaluations.")
    flags.DEFINE_integer("seed", work.seed, "Of initial weights, order of examples and the methods' draws.")
    flags.DEFINE_string("baseline", _BASELINE, "Label of the contender that ratios refer to.")
    flags.DEFINE_string("torch_python", sys.executable, "The Python interpreter that has PyTorch.")
    flags.DEFINE_string("data_dir", None, "Folder with Fashion-MNIST.")
    flags.DEFINE_string("workdir", None, "Folder for tables, pictures and logs (default: a new one under runs/).")


def prepare(given: flags.FlagValues) -> Bench:
    """Returns the bench that the flags describe.

    Raises:
        ValueError, OSError, ImportError: a mistake in one of them.
    """
    fields = ("workers", "ps", "target", "epochs", "time_limit_s", "every", "seed")
    work = Work(**{field: getattr(given, field) for field in fields})
    rates = read_rates(given.rates or ([UNSHAPED] if given.loopback else _DEFAULT_RATES))
    text = given.contenders
    if text is None:
        text = "" if given.contender else choose_contenders(given.torch_python)
    contenders = read_contenders(text, given.contender)
    labels = [contender.label for contender in contenders]
    if given.baseline not in (_BASELINE, *labels):
        raise ValueError(f"--baseline must be a label: {', '.join(labels)}. Received: {given.baseline!r}.")
    data, examiner = load_examiner(given.data_dir)
    folder = given.workdir or f"runs/bench_network-{datetime.datetime.now():%Y%m%d-%H%M%S}"
    network = Loopback if given.loopback else Network
    path = pathlib.Path(folder).expanduser().resolve()
    return Bench(work, contenders, rates, network, data, examiner, path, given.torch_python)


def choose_contenders(torch_python: str) -> str:
    """Returns the list of all contenders that can run here, and says which ones are left out."""
    is_there = has_torch(torch_python)
    if not is_there:
        print(f"without {', '.join(NEEDS_TORCH)}: {torch_python} has no PyTorch (pip install 'slimdp_tf[torch]')")
    return list_default(is_there)


def run_all(bench: Bench, baseline: str) -> list[Result]:
    """Returns all results, and writes the tables anew with each; Ctrl-C ends with those that are there."""
    results: list[Result] = []
    total = len(bench.rates) * len(bench.contenders)
    try:
        for result in bench.run():
            results.append(result)
            write_tables(results, bench, baseline)
            seconds, mb = result.seconds_to(bench.work.target), result.mb_to(bench.work.target)
            reached = f" in {seconds:.1f} s and {mb:.1f} MB" if result.first_at(bench.work.target) else ""
            outcome = result.outcome if result.has_failed else describe_outcome(result, bench.work.target) + reached
            head = f"[{len(results)}/{total}] {result.label} at {result.rate}"
            print(f"{head}: {outcome}; best {result.best_accuracy:.4f}, {result.step_ms:.1f} ms/step", flush=True)
    except KeyboardInterrupt:
        print("\nstopped; what was finished is reported")
    return results


def publish(results: Sequence[Result], bench: Bench, baseline: str) -> None:
    """Writes tables and pictures into the bench's folder, prints the table and where everything is."""
    table = write_tables(results, bench, baseline)
    pictures = write_pictures(results, bench.folder)
    print(f"\n{table}")
    print(f"table:    {bench.folder}/table.txt (and .md, .csv; every evaluation: results.json)")
    print("pictures: " + ", ".join(path.name for path in pictures if path.suffix == ".png") + " (and as .pdf)")


def write_tables(results: Sequence[Result], bench: Bench, baseline: str) -> str:
    """Writes table.txt, table.md, table.csv and results.json, and returns the text of the first."""
    rows = make_rows(results, bench.work, baseline)
    machine, wanted = describe_machine(), list_mbit_s(bench.rates)
    facts = {"command": sys.argv, "machine": machine, "work": vars(bench.work), "baseline": baseline}
    notes = [f"{result.label}: {result.contender}" for result in results if result.label != result.contender]
    notes = [*dict.fromkeys(notes), f"machine: {', '.join(f'{key} {value}' for key, value in machine.items())}"]
    notes += describe_network(results, wanted)
    contents = {
        "table.txt": "\n".join([format_text(rows), "", *notes, ""]),
        "table.md": "\n".join([format_markdown(rows), "", *(f"- {note}" for note in notes), ""]),
        "table.csv": format_csv(rows),
        "results.json": format_json(rows, results, facts),
    }
    bench.folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (bench.folder / name).write_text(content)
    return contents["table.txt"]


def list_mbit_s(rates: Sequence[Rate]) -> dict[str, float | None]:
    """Returns name -> Mbit/s of each rate."""
    return {rate.name: rate.mbit_s for rate in rates}


if __name__ == "__main__":
    run()
