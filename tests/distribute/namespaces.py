"""Hosts for tests: network namespaces joined by a bridge that stands in a namespace too.

Nothing has a name outside: a namespace lives as long as the process that holds it, and that process ends with the
test's, so nothing is left behind however the test ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time


def why_not() -> str:
    """Why network namespaces cannot be made here; empty if they can."""
    parts = "ip link add left type veth peer name right && ip link add middle type bridge"
    make = f"ip link set lo up && {parts} && ss -tinpOH"
    try:
        made = subprocess.run(["unshare", "--net", "sh", "-c", make], capture_output=True, text=True, timeout=20)
    except OSError as error:
        return str(error)
    return made.stderr.strip() if made.returncode else ""


class Hosts:
    """`count` hosts with the addresses 10.77.0.1, 10.77.0.2, ... on one network of their own."""

    def __init__(self, count: int):
        self.addresses = [f"10.77.0.{number + 1}" for number in range(count)]
        self._holders: list[subprocess.Popen] = []
        self._started: list[subprocess.Popen] = []
        try:
            self._switch, *self._hosts = [self._hold() for _ in range(count + 1)]
            self._run(self._switch, "ip link add bridge type bridge", "ip link set bridge up")
            for number, (host, address) in enumerate(zip(self._hosts, self.addresses)):
                self._run(
                    self._switch,
                    f"ip link add port{number} type veth peer name eth0 netns {host}",
                    f"ip link set port{number} master bridge up",
                )
                self._run(host, "ip link set lo up", f"ip addr add {address}/24 dev eth0", "ip link set eth0 up")
        except BaseException:
            self.remove()
            raise

    def __enter__(self) -> Hosts:
        return self

    def __exit__(self, *exception) -> None:
        self.remove()

    def start(self, host: int, module: str, *arguments: str, log: str, **environment: str) -> subprocess.Popen:
        """Starts a program on a host."""
        command = [*IN_OUR_LIFE, "nsenter", f"--net=/proc/{self._hosts[host]}/ns/net", sys.executable, "-m", module]
        with open(log, "wb") as output:
            process = subprocess.Popen(
                [*command, *arguments], stdout=output, stderr=output, env={**os.environ, **environment}
            )
        self._started.append(process)
        return process

    def remove(self) -> None:
        """Ends the programs and the hosts."""
        for process in [*self._started, *self._holders]:
            process.kill()
            process.wait()
        self._started, self._holders = [], []

    def _hold(self) -> int:
        holder = subprocess.Popen([*IN_OUR_LIFE, "unshare", "--net", "sleep", "900"])
        self._holders.append(holder)
        namespace, give_up = f"/proc/{holder.pid}/ns/net", time.monotonic() + 20
        while os.readlink(namespace) == os.readlink("/proc/self/ns/net"):
            if holder.poll() is not None or time.monotonic() > give_up:
                raise RuntimeError("A network namespace could not be made.")
            time.sleep(0.01)
        return holder.pid

    def _run(self, holder: int, *commands: str) -> None:
        for command in commands:
            subprocess.run(["nsenter", f"--net=/proc/{holder}/ns/net", *command.split()], check=True, timeout=20)


IN_OUR_LIFE = ("setpriv", "--pdeathsig", "KILL")  # the kernel ends it when the process that started it has ended
