"""What a method will gain on a network, told before it is tried.

    tools/plan --model=vgg16 --workers=16 --ps=4 --step_ms=350 --rates=1gbit --methods="slim(alpha=0.1,beta=0.05,p=4)"
    tools/plan --model=fashion_mnist_mlp --measure --workers=4 --ps=2 --rates=100mbit

Bytes are counted from payloads. Seconds come from a model (docs/planning.md) of a step, of an exchange where no link
limits it, and of the links. `--measure` finds the first two by running the methods: on the cluster of TF_CONFIG, whose
link it then measures, too; without TF_CONFIG on processes of this machine, which share its cores.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import keras
from absl import flags

from slimdp_tf import methods
from slimdp_tf.bench.rates import read_rates
from slimdp_tf.cli.bench_exchange import check_memory
from slimdp_tf.cli.costs import Costs, measure
from slimdp_tf.cli.method_list import MethodCall, read_methods
from slimdp_tf.cli.program import check_folder, check_no_arguments, explaining, read_sizes, run_program
from slimdp_tf.distribute.cluster import local_cluster
from slimdp_tf.method import Method
from slimdp_tf.planning.forecast import Forecast, Site, advise, find_break_even, forecast, format_rate
from slimdp_tf.planning.load import Load, count_load
from slimdp_tf.training.models import BUILDERS

# What an exchange takes without a limiting link where nothing was measured: calls, and packing, folding and adopting of
# every entry. Of the order that tools/bench_exchange shows for plump on 2 cores (docs/results.md).
_CALLS_S, _ENTRY_S = 20e-3, 20e-9
_ROW = 64  # entries
_COLUMNS = (
    f"{'method':<34}{'rate':>13}{'MB worker':>11}{'MB ps':>9}{'ms round':>10}{'ms step':>9}{'compute':>9}{'links':>9}"
    f"{'exchange':>10}{'chief':>7}  {'bound':<12}{'x dense':>8}  break-even"
)


def read_model(text: str) -> keras.Model:
    """A model by its name in `slimdp_tf.training.models`, or from a .keras file.

    Raises:
        ValueError: it is neither.
    """
    if text in BUILDERS:
        return BUILDERS[text]()
    if pathlib.Path(text).is_file():
        return keras.models.load_model(text, compile=False)
    raise ValueError(f"model must be one of {', '.join(BUILDERS)}, or a .keras file. Received: {text!r}")


def make_rows(entries: int) -> keras.Model:
    """A model of `entries` weights of which a step changes one row: a round of it is its exchange."""
    rows = keras.layers.Embedding(max(1, entries // _ROW), _ROW)
    return keras.Sequential([keras.Input((1,), dtype="int32"), rows])


def dense_of(method: Method) -> Method:
    """What `method` is held against: everything, after as many steps."""
    return methods.plump(p=method.p)


@dataclasses.dataclass(frozen=True)
class Line:
    """A method at one rate, beside plump with its p.

    Attributes:
        label: of the method.
        rate: as it was written.
        method, dense: their rounds.
        limit: the break-even, bit/s.
        bits: bit/s of the links.
    """

    label: str
    rate: str
    method: Forecast
    dense: Forecast
    limit: float
    bits: float

    def format(self) -> str:
        """One line of the table."""
        found = self.method
        seconds = (found.round_s, found.step_s, found.compute_s, found.link_s, found.exchange_s, found.chief_s)
        ms = [1e3 * s for s in seconds]
        even = "always faster" if math.isinf(self.limit) else "never faster" if self.limit == 0 else None
        even = "-" if found == self.dense else even or format_rate(self.limit)
        return (
            f"{self.label:<34}{self.rate:>13}{found.worker_bytes / 1e6:>11.3f}{found.ps_bytes / 1e6:>9.2f}"
            f"{ms[0]:>10.1f}{ms[1]:>9.2f}{ms[2]:>9.1f}{ms[3]:>9.1f}{ms[4]:>10.1f}{ms[5]:>7.1f}  {found.bound:<12}"
            f"{self.dense.step_s / found.step_s:>8.2f}  {even}"
        )


def plan(call: MethodCall, rate: str, site: Site, loads: dict[Method, Load], costs: Costs) -> Line:
    """What is to be said of a method at a site, whose rate is called `rate`."""
    method = call.make()

    def at(bits: float) -> tuple[Forecast, Forecast]:
        found = []
        for m in (method, dense_of(method)):
            there = dataclasses.replace(site, rate=bits, step_s=costs.step_s[m])
            found.append(forecast(loads[m], loads[m].steps or m.p, there, costs.exchange_s[m]))
        return found[0], found[1]

    def gain_at(bits: float) -> float:
        one, dense = at(bits)
        return dense.step_s / one.step_s

    return Line(call.label, rate, *at(site.rate), find_break_even(gain_at), site.rate)


def main(arguments: Sequence[str]) -> int:
    """Prints the table and the advice."""
    check_no_arguments(arguments)
    given = flags.FLAGS
    with explaining():
        check_folder(given.json)
        if given.step_ms is None and not (given.measure and given.model):
            raise ValueError("step_ms is needed, or --measure with --model. Received: neither.")
        calls, rates = read_methods(given.methods, methods.names()), read_rates(given.rates)
        chosen = list({method: 0 for call in calls for method in (call.make(), dense_of(call.make()))})
        entries, shapes = _read_size(given)
        loads = {method: count_load(method, entries, shapes) for method in chosen}
        costs = _find_costs(given, loads, entries)
        lines = []
        for rate in rates:
            bits = costs.rate if rate.mbit_s is None else 1e6 * rate.mbit_s
            chief_s = 0.0 if given.measure else given.chief_ms / 1e3  # what was measured contains it
            is_here = given.measure and not os.environ.get("TF_CONFIG")
            site = Site(given.workers, given.ps, 0.0, bits, chief_s, is_here)
            lines += [plan(call, rate.name, site, loads, costs) for call in calls]
    print(f"n = {entries:,}, {given.workers} workers, {given.ps} ps; ", end="")
    print(f"between worker and ps {format_rate(costs.rate)}" if given.measure else "the exchange was not measured")
    print(_COLUMNS)
    for line in lines:
        print(line.format())
    for line in lines:
        if line.method != line.dense:
            print(f"{line.rate}: {advise(line.label, line.method, line.dense, line.bits, line.limit)}")
    if given.json:
        pathlib.Path(given.json).write_text(json.dumps([_describe(line) for line in lines], indent=1))
    return 0


def _describe(line: Line) -> dict[str, Any]:
    of_round = {"round_s": line.method.round_s, "bound": line.method.bound, "break_even": line.limit}
    return {"method": line.label, "rate": line.rate, **dataclasses.asdict(line.method), **of_round}


def _read_size(given) -> tuple[int, list[tuple[int, ...]]]:
    if (given.model is None) == (given.entries is None):
        raise ValueError("One of --model and --entries is needed, and not both.")
    if given.entries is not None:
        return read_sizes([given.entries])[0], []
    shapes = [tuple(v.shape) for v in read_model(given.model).trainable_variables]
    if not shapes:
        raise ValueError(f"The model must have trainable weights. Received: {given.model} with none")
    return sum(math.prod(shape) for shape in shapes), shapes


def without_links(costs: Costs, loads: dict[Method, Load], workers: int, ps: int) -> Costs:
    """Takes off what the links needed between hosts of their own while the exchange was measured."""
    site = Site(workers, ps, 0.0, costs.rate)
    links = {method: forecast(loads[method], 1, site, 0.0).link_s for method in costs.exchange_s}
    return dataclasses.replace(costs, exchange_s={m: max(0.0, s - links[m]) for m, s in costs.exchange_s.items()})


def _find_costs(given, loads: dict[Method, Load], entries: int) -> Costs:
    chosen = list(loads)
    if not given.measure:
        step_s, exchange_s = given.step_ms / 1e3, _CALLS_S + _ENTRY_S * entries
        return Costs(dict.fromkeys(chosen, step_s), dict.fromkeys(chosen, exchange_s), math.inf)
    build = functools.partial(read_model, given.model) if given.model else functools.partial(make_rows, entries)
    wanted = chosen, build, entries, given.batch_size, given.repeats
    if os.environ.get("TF_CONFIG"):
        costs = without_links(measure(None, *wanted), loads, given.workers, given.ps)
    else:
        check_memory(entries, given.workers, given.ps, 1)
        with local_cluster(given.workers, given.ps) as cluster:
            costs = measure(cluster, *wanted)
    if given.step_ms is None:
        return costs
    return dataclasses.replace(costs, step_s=dict.fromkeys(chosen, given.step_ms / 1e3))


def run() -> None:
    """The program slimdp-plan; its flags are made here, as other programs have some of the same names."""
    flags.DEFINE_string("model", None, f"The model: {', '.join(BUILDERS)}, or a .keras file.")
    flags.DEFINE_string("entries", None, "Its trainable parameters n, such as 1.38e8, instead of a model.")
    flags.DEFINE_string("methods", "plump(p=4),slim(alpha=0.1,beta=0.05,p=4)", "Methods, with commas between.")
    flags.DEFINE_list(
        "rates", ["100mbit", "1gbit", "10gbit"], "Rates of every host's link; unshaped: the measured one."
    )
    flags.DEFINE_integer("workers", 4, "Workers of the cluster.", lower_bound=1)
    flags.DEFINE_integer("ps", 2, "Servers of the cluster.", lower_bound=1)
    flags.DEFINE_float("step_ms", None, "Milliseconds of one mini-batch on a worker.", lower_bound=0.0)
    flags.DEFINE_float("chief_ms", 1.0, "Milliseconds the chief needs per worker and round.", lower_bound=0.0)
    flags.DEFINE_bool("measure", False, "Whether to measure the step, the exchange and the link by running them.")
    flags.DEFINE_integer("batch_size", 32, "Examples per worker and step, for --measure.", lower_bound=1)
    flags.DEFINE_integer("repeats", 7, "Rounds of each method, for --measure.", lower_bound=1)
    flags.DEFINE_string("json", None, "Where to write the figures as JSON.")
    run_program(main)


if __name__ == "__main__":
    run()
