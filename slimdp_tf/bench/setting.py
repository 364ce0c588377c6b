"""Where a contender runs: hosts, addresses, interpreters; and what it says it wants to run there."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import sys
from collections.abc import Mapping, Sequence

from slimdp_tf.environment import LARGE_PAGES

PORT = 2222  # of every host of a network
_ROOT = pathlib.Path(__file__).resolve().parents[2]
_ALONE = pathlib.Path(__file__).resolve().parent / "alone.py"


@dataclasses.dataclass(frozen=True)
class Program:
    """A program of a contender.

    Attributes:
        host: where it runs.
        command: what is run, with its arguments.
        environment: variables it needs beside those that every program gets.
        is_reporting: whether it talks to the bench (see `task`); one of a contender's programs does.
    """

    host: str
    command: Sequence[str]
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    is_reporting: bool = False


@dataclasses.dataclass(frozen=True)
class Setting:
    """What a contender is told before it starts.

    Attributes:
        workers, ps: how many hosts of each kind there are; one more is the chief's.
        addresses: host -> host:port, for every host.
        torch_python: the interpreter that has PyTorch.
    """

    workers: int
    ps: int
    addresses: Mapping[str, str] = dataclasses.field(default_factory=dict)
    torch_python: str = sys.executable

    @property
    def hosts(self) -> list[str]:
        """Names of all hosts."""
        return [*self.worker_hosts, *self.ps_hosts, "chief"]

    @property
    def worker_hosts(self) -> list[str]:
        """Names of the workers' hosts, in order."""
        return [f"worker{i}" for i in range(self.workers)]

    @property
    def ps_hosts(self) -> list[str]:
        """Names of the servers' hosts, in order."""
        return [f"ps{i}" for i in range(self.ps)]

    @property
    def cluster(self) -> dict[str, list[str]]:
        """The cluster as TF_CONFIG writes it: job -> addresses."""
        places = {"chief": ["chief"], "worker": self.worker_hosts, "ps": self.ps_hosts}
        return {job: [self.addresses.get(host, f"{host}:{PORT}") for host in hosts] for job, hosts in places.items()}

    def run_module(self, module: str, *arguments: str) -> list[str]:
        """Returns the command that runs a module in this interpreter."""
        return [sys.executable, "-m", module, *arguments]

    def run_alone(self, module: str, *arguments: str, python: str = sys.executable) -> list[str]:
        """Returns the command that runs a module which may use `task` and `setting`, but without TensorFlow."""
        return [python, str(_ALONE), module, *arguments]


def clean_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns the variables a program of a contender gets: no proxies (gRPC obeys them), one thread per operation."""
    kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower() and name != "TF_CONFIG"}
    path = os.pathsep.join(p for p in (str(_ROOT), os.environ.get("PYTHONPATH")) if p)
    threads = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS")}
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1", "KERAS_BACKEND": "tensorflow"}
    return {**LARGE_PAGES, **kept, **threads, **quiet, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **(more or {})}
