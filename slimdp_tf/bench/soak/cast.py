"""The processes of a soak, each on a host of its own: started, killed, stopped, cut off, and watched."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from slimdp_tf.bench.setting import Setting
from slimdp_tf.bench.soak.faults import Fault
from slimdp_tf.bench.soak.vitals import Sample, read_vitals

_SERVE = ("-m", "slimdp_tf.cli.launch")
_LATEST_S = 5.0  # how late a restart may be to its port


class Cast:
    """All tasks of a cluster on a network.

    Args:
        network: a `Network` or a `Loopback`, which is there.
        setting: workers and ps.
        chief: the arguments of Python that run the chief.
        folder: where logs go.

    Attributes:
        began: when (monotonic clock).
        samples: what was seen of the processes.
    """

    def __init__(self, network: Any, setting: Setting, chief: Sequence[str], folder: pathlib.Path):
        self._network, self._folder = network, folder
        self._setting = Setting(setting.workers, setting.ps, {host: network.address(host) for host in setting.hosts})
        self._commands: dict[str, Sequence[str]] = dict.fromkeys(setting.hosts, _SERVE) | {"chief": chief}
        self._places = {"chief": ("chief", 0)}
        for job, hosts in (("worker", setting.worker_hosts), ("ps", setting.ps_hosts)):
            self._places |= {host: (job, index) for index, host in enumerate(hosts)}
        self._children: dict[str, subprocess.Popen] = {}
        self._born: dict[str, float] = {}
        self._lives: dict[str, int] = {}
        self._lock = threading.Lock()  # between who starts processes anew and who samples them
        self.began = time.monotonic()
        self.samples: list[Sample] = []

    def start_all(self) -> None:
        """Starts every task."""
        for host in self._setting.hosts:
            self._start(host)

    @property
    def chief(self) -> subprocess.Popen:
        """The chief's program."""
        return self._children["chief"]

    def inflict(self, fault: Fault) -> float:
        """Does what a fault says, and undoes it; returns the moment when it was undone."""
        child = self._children[fault.task]
        if fault.kind == "cut":
            self._network.set_link(fault.task, False)
            time.sleep(fault.away_s)
            self._network.set_link(fault.task, True)
        elif fault.kind == "stop":
            pid = self._network.find_pid(child)
            os.kill(pid, signal.SIGSTOP)
            time.sleep(fault.away_s)
            for one in dict.fromkeys((child.pid, pid)):  # who entered the host for it stops together with it
                os.kill(one, signal.SIGCONT)
        else:
            os.kill(self._network.find_pid(child), signal.SIGKILL)
            child.wait(timeout=_LATEST_S)
            time.sleep(fault.away_s)
            self._start(fault.task)
        return time.monotonic()

    def find_dead(self) -> list[str]:
        """Names the tasks whose process has ended, with the end of its log."""
        dead = [host for host, child in self._children.items() if child.poll() is not None]
        return [f"{host} ended with code {self._children[host].returncode}: {self._read_log(host)}" for host in dead]

    def sample(self) -> None:
        """Looks at every process."""
        with self._lock:
            now = time.monotonic()
            for host, child in self._children.items():
                try:
                    vitals = read_vitals(self._network.find_pid(child))
                except ProcessLookupError:
                    continue
                age = now - self._born[host]
                self.samples.append(Sample(now - self.began, host, self._lives[host], age, *vitals))

    def _start(self, host: str) -> None:
        job, index = self._places[host]
        config = json.dumps({"cluster": self._setting.cluster, "task": {"type": job, "index": index}})
        environment: Mapping[str, str] = {"TF_CONFIG": config}
        with self._lock, open(self._folder / f"{host}.log", "a") as log:
            self._children[host] = self._network.start(
                host, [sys.executable, *self._commands[host]], environment, stdout=log, stderr=log
            )
            self._born[host], self._lives[host] = time.monotonic(), self._lives.get(host, -1) + 1

    def _read_log(self, host: str) -> str:
        lines = (self._folder / f"{host}.log").read_text(errors="replace").splitlines()
        return " / ".join(lines[-3:])[-600:]
