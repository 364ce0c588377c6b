"""Trains on a cluster whose processes are killed, stopped and cut off at random, and says whether all of it held.

    tools/soak                                         30 minutes, 4 workers, 2 ps
    tools/soak --minutes=3 --seed=7 --faults=kill,stop
    tools/soak --loopback                              without the rights to make a network; no link can be cut
    tools/soak --method="quant(p=4)" --workdir=runs/soak

Every task runs on a host of its own, a network namespace. Memory, threads and open files of every process are watched:
after the first half of the time, 5 minutes at most, they must stay as they are, memory to 5 %. A process that was
started anew has a warm-up of its own. Worker 0 and ps 0 are never killed, so that one of each kind lives all along.
"""

from __future__ import annotations

import datetime
import json
import os
import pathlib
import signal
from collections.abc import Sequence
from typing import Any

from absl import flags

from slimdp_tf import methods
from slimdp_tf.bench.loopback import Loopback
from slimdp_tf.bench.network import Network
from slimdp_tf.bench.rates import UNSHAPED, read_rate
from slimdp_tf.bench.setting import Setting
from slimdp_tf.bench.soak.cast import Cast
from slimdp_tf.bench.soak.faults import KINDS, check_kinds, draw
from slimdp_tf.bench.soak.report import write_all
from slimdp_tf.bench.soak.run import Outcome, Soak
from slimdp_tf.bench.soak.story import Story
from slimdp_tf.cli import soak_chief
from slimdp_tf.cli.method_list import MethodCall, read_methods
from slimdp_tf.cli.program import check_no_arguments, explaining, run_program

_METHOD = "slim(alpha=0.4,beta=0.2,p=2,q=50,memory='carry',average='contributors')"
_MOST_WARM_UP_S = 300.0
_WARM_UP = 1 / 2  # of the time
_LOOKS = 120  # at the processes, in the whole time; every 10 s at the least often
_DEADLINES = {"worker_deadline_s": 8.0, "cluster_deadline_s": 60.0}


def main(arguments: Sequence[str]) -> int:
    """Runs what the flags say; returns 1 when it did not hold."""
    check_no_arguments(arguments)
    given = flags.FLAGS
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with explaining():
        call, kinds = read_flags(given)
        folder = make_folder(given.workdir)
        outcome, facts = run_soak(given, call, kinds, folder)
    print("\n" + write_all(outcome, facts, folder))
    print(f"everything: {folder}/ (soak.txt, soak.json, faults.csv, vitals.csv, soak.png, a log per task)")
    return int(bool(outcome.complaints))


def run() -> None:
    """The program slimdp-soak."""
    define_flags()
    run_program(main)


def define_flags() -> None:
    """Defines the flags; not on import, because other programs have some of the same names."""
    flags.DEFINE_float("minutes", 30.0, "How long faults are tried.")
    flags.DEFINE_integer("workers", 4, "Workers, each on a host of its own.")
    flags.DEFINE_integer("ps", 2, "Parameter servers, each on a host of its own.")
    flags.DEFINE_integer("seed", 0, "Of the faults, and of the training.")
    flags.DEFINE_string("method", _METHOD, "How weights are exchanged, as in tools/compare.")
    flags.DEFINE_list("faults", None, f"Some of {','.join(KINDS)}; default: all, without cuts on the loopback device.")
    flags.DEFINE_boolean("loopback", False, "Run on the loopback device: no rights needed, no link can be cut.")
    flags.DEFINE_string("workdir", None, "Folder for tables, the picture and logs (default: a new one under runs/).")


def read_flags(given: Any) -> tuple[MethodCall, list[str]]:
    """Returns the method and the kinds of faults.

    Raises:
        ValueError: a flag is wrong.
    """
    for name, least, most in (("minutes", 0.5, 10_000), ("workers", 2, 100), ("ps", 1, 50), ("seed", 0, 2**31 - 1)):
        value = getattr(given, name)
        if not least <= value <= most:
            raise ValueError(f"--{name} must be a number from {least:g} to {most:g}. Received: {value:g}.")
    kinds = check_kinds(given.faults if given.faults is not None else [k for k in KINDS if not _is_cut_off(given, k)])
    if any(_is_cut_off(given, kind) for kind in kinds):
        raise ValueError("--faults=cut needs a network of its own, and --loopback has none. Received: both.")
    calls = read_methods(given.method, methods.names())
    if len(calls) != 1:
        raise ValueError(f"--method must be one method. Received: {len(calls)}.")
    calls[0].make()
    return calls[0], kinds


def _is_cut_off(given: Any, kind: str) -> bool:
    """Whether a kind of fault needs what the loopback device does not have."""
    return kind == "cut" and given.loopback


def make_folder(workdir: str | None) -> pathlib.Path:
    """Returns the folder to write into, which is there and holds nothing of another soak.

    Raises:
        ValueError: it does.
    """
    folder = pathlib.Path(workdir or f"runs/soak-{datetime.datetime.now():%Y%m%d-%H%M%S}").expanduser().resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise ValueError(f"--workdir must be a new or an empty folder. Received: {folder}, which holds files.")
    return folder


def run_soak(
    given: Any, call: MethodCall, kinds: Sequence[str], folder: pathlib.Path
) -> tuple[Outcome, dict[str, Any]]:
    """Runs the soak that the flags describe; returns what came of it, and what it was.

    Raises:
        OSError: the network cannot be made.
    """
    setting, seconds = Setting(given.workers, given.ps), 60.0 * given.minutes
    warm_up_s = min(_MOST_WARM_UP_S, _WARM_UP * seconds)
    tasks = [*setting.worker_hosts, *setting.ps_hosts]
    mortal = [*setting.worker_hosts[1:], *setting.ps_hosts[1:]]
    options = {"method": call.name, "options": call.options, "seed": given.seed, **_DEADLINES}
    chief = ["-m", soak_chief.__name__, str(folder), json.dumps(options)]
    with (Loopback if given.loopback else Network)(setting.hosts, read_rate(UNSHAPED)) as network:
        print(f"{call.label}: {given.minutes:g} minutes of {', '.join(kinds)}, into {folder}", flush=True)
        soak = Soak(
            Cast(network, setting, chief, folder),
            Story(folder / soak_chief.STORY),
            folder / soak_chief.STOP,
            given.workers,
            seconds,
            min(10.0, seconds / _LOOKS),
            warm_up_s,
            lambda text: print(text, flush=True),
        )
        outcome = soak.run(draw(given.seed, kinds, tasks, mortal))
    facts = {name: getattr(given, name) for name in ("minutes", "workers", "ps", "seed", "loopback")}
    facts |= {"method": call.label, "faults": "+".join(kinds), "warm-up s": warm_up_s, "cores": os.cpu_count()}
    return outcome, facts


if __name__ == "__main__":
    run()
