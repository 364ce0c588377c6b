"""Runs the line-up at every rate, one contender after another, each on a network of its own."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import platform
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from slimdp_tf.bench.lineup import Contender
from slimdp_tf.bench.probe import measure_mbit_s
from slimdp_tf.bench.rates import Rate
from slimdp_tf.bench.referee import Referee, RunFailed
from slimdp_tf.bench.result import Result
from slimdp_tf.bench.setting import Setting
from slimdp_tf.bench.work import Examiner, Work


@dataclasses.dataclass(frozen=True)
class Bench:
    """Everything that is to be run.

    Attributes:
        work: what every contender does.
        contenders: who does it.
        rates: of the links.
        network: makes a network of hosts and a rate: `Network` or `Loopback`.
        data: folder with Fashion-MNIST.
        examiner: measures the accuracy.
        folder: where logs go.
        torch_python: the interpreter that has PyTorch.
    """

    work: Work
    contenders: Sequence[Contender]
    rates: Sequence[Rate]
    network: Callable[[Sequence[str], Rate], Any]
    data: pathlib.Path
    examiner: Examiner
    folder: pathlib.Path
    torch_python: str

    @property
    def setting(self) -> Setting:
        """The setting, addresses not yet known."""
        return Setting(self.work.workers, self.work.ps, torch_python=self.torch_python)

    def check(self) -> None:
        """Finds out whether everything can run, before anything runs.

        Raises:
            ValueError, TypeError, ImportError: a contender says that it cannot.
            OSError: the network cannot be made.
        """
        for contender in self.contenders:
            programs = contender.launch(self.setting)
            reporting = sum(program.is_reporting for program in programs)
            unknown = sorted({program.host for program in programs} - set(self.setting.hosts))
            if reporting != 1 or unknown:
                raise ValueError(
                    f"The contender {contender.label} must have one reporting program, on hosts among "
                    f"{', '.join(self.setting.hosts)}. "
                    f"Received: {reporting} reporting, unknown hosts: {', '.join(unknown) or 'none'}."
                )
        for rate in self.rates:
            with self.network(self.setting.hosts[:2], rate):
                pass

    def run(self) -> Iterator[Result]:
        """Yields a result per rate and contender; a contender that fails does not keep the others from running."""
        for rate in self.rates:
            for contender in self.contenders:
                yield self.run_one(contender, rate)

    def run_one(self, contender: Contender, rate: Rate) -> Result:
        """Returns the result of one contender at one rate."""
        folder = self.folder / "logs" / f"{rate.name}-{make_name(contender.label)}"
        task = self.work.write(folder, self.data)
        about = {"busy": measure_busy(), "load": os.getloadavg()[0]}
        with self.network(self.setting.hosts, rate) as network:
            addresses = {host: network.address(host) for host in self.setting.hosts}
            programs = contender.launch(dataclasses.replace(self.setting, addresses=addresses))
            one, other = self.setting.worker_hosts[0], self.setting.ps_hosts[0]
            about["mbit_s"] = [measure_mbit_s(network, *pair) for pair in ((one, other), (other, one))]
            about["notes"] = network.notes
            referee = Referee(network, self.work, self.examiner, folder)
            try:
                outcome = referee.conduct(programs, task)
            except RunFailed as failure:
                outcome = f"failed: {failure}"
        for path in (task.initial, task.weights):
            pathlib.Path(path).unlink(missing_ok=True)
        return Result(
            label=contender.label,
            contender=contender.text,
            is_outside=contender.is_outside,
            rate=rate.name,
            workers=self.work.workers,
            outcome=outcome,
            marks=tuple(referee.marks),
            network=about,
            about=referee.about,
            setup_s=referee.setup_s,
        )


def measure_busy(seconds: float = 1.0) -> float:
    """Returns the share of this machine's processors that is in use, over a time in which this process only sleeps."""

    def read() -> tuple[int, int]:
        with open("/proc/stat") as file:
            counts = [int(count) for count in file.readline().split()[1:9]]
        return sum(counts), counts[3] + counts[4]  # all, idle and waiting for disks

    whole, idle = read()
    time.sleep(seconds)
    whole_then, idle_then = read()
    return 1.0 - (idle_then - idle) / max(1, whole_then - whole)


def describe_machine() -> dict[str, Any]:
    """Returns processor, cores, memory and kernel of this machine."""
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    processor = names[0] if names else platform.machine()
    return {
        "processor": processor,
        "cores": os.cpu_count(),
        "memory_gb": round(memory_gb, 1),
        "kernel": platform.release(),
    }


def make_name(label: str) -> str:
    """Returns a label as a name for a folder."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", label).strip("-.") or "contender"
