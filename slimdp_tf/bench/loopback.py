"""The bench without rights: every host is this machine, and links are what its loopback device carries."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from slimdp_tf.bench.rates import Rate
from slimdp_tf.bench.setting import clean_environment

_WAIT_S = 20.0


class Loopback:
    """Stands for a `Network`: the same verbs, nothing shaped, the bytes of the whole loopback device.

    Args:
        hosts: their names.
        rate: must be unshaped.
    """

    def __init__(self, hosts: Sequence[str], rate: Rate):
        if rate.mbit_s is not None:
            raise ValueError(f"--loopback cannot shape links: the rate must be unshaped. Received: {rate.name}.")
        self.rate = rate
        self.notes = [
            "loopback: nothing is shaped, and whatever else uses this machine's loopback device is in the bytes"
        ]
        self._addresses = {host: f"127.0.0.1:{port}" for host, port in zip(hosts, _find_ports(len(hosts)))}
        self._children: list[subprocess.Popen] = []

    def __enter__(self) -> Loopback:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends every program that was started here, with what it started. May be called twice."""
        for child in self._children:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
        for child in self._children:
            child.wait(timeout=_WAIT_S)
            for pipe in (child.stdin, child.stdout, child.stderr):
                if pipe is not None:
                    pipe.close()
        self._children.clear()

    def address(self, host: str) -> str:
        """Returns the host:port at which a host's own program may listen."""
        return self._addresses[host]

    def start(
        self, host: str, command: Sequence[str], environment: Mapping[str, str] | None = None, **popen: Any
    ) -> subprocess.Popen:
        """Starts a program; where setpriv is there to ask for it, it is killed however this process ends."""
        bind = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        popen = {"stdin": subprocess.DEVNULL, **popen, "env": clean_environment(environment), "text": True}
        child = subprocess.Popen([*bind, *command], start_new_session=True, **popen)
        self._children.append(child)
        return child

    def find_pid(self, child: subprocess.Popen) -> int:
        """Returns the process id of a program that `start` started.

        Raises:
            ProcessLookupError: it has ended.
        """
        if child.poll() is not None:
            raise ProcessLookupError(f"{' '.join(child.args)} has ended with code {child.returncode}.")
        return child.pid

    def read_bytes(self) -> dict[str, tuple[int, int]]:
        """Returns {"loopback": (sent, received)}: which host sent what cannot be told apart."""
        with open("/proc/net/dev") as file:
            counts = next(line.partition(":")[2].split() for line in file if line.strip().startswith("lo:"))
        return {"loopback": (int(counts[8]), int(counts[0]))}


def _find_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
