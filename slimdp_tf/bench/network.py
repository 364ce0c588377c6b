"""A network of this machine's own: hosts that are network namespaces, joined by a bridge, shaped in both directions.

Nothing of it has a name in the system. Every namespace lives as long as a process that the network itself started, and
all of those, with whatever runs on the hosts, stand in one process namespace whose first process reads a pipe from
here. However this process ends, SIGKILL included, the pipe closes, that first process ends, and the kernel ends the
others and takes the namespaces down. No cable leads out: what runs on a host reaches the other hosts and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

from slimdp_tf.bench.rates import Rate
from slimdp_tf.bench.setting import PORT, clean_environment

PROGRAMS = ("unshare", "nsenter", "ip", "tc")  # of util-linux and iproute2
_SAY_PID = "read -r pid rest </proc/self/stat; echo $pid; exec "  # as this process sees it: /proc is ours
_QUEUE_S = 0.1  # a shaped link holds so many seconds of packets before it drops some
_WAIT_S = 20.0
_OUT_AND_WITHOUT = "--loopback measures without a network of its own, and without rights"


class Network:
    """Hosts with one link each; a context manager.

    Args:
        hosts: their names, at most 200.
        rate: of every link, in each direction.

    Raises:
        FileNotFoundError: a program is missing.
        PermissionError: this process may not make namespaces.
        OSError: the kernel refused a part of it.
    """

    def __init__(self, hosts: Sequence[str], rate: Rate):
        if not 1 <= len(hosts) <= 200 or len(set(hosts)) != len(hosts):
            raise ValueError(f"A network needs 1 to 200 hosts with different names. Received: {len(hosts)}.")
        self.rate = rate
        self.notes: list[str] = []
        self._ips = {host: f"10.88.0.{10 + i}" for i, host in enumerate(hosts)}
        self._pids: dict[str, int] = {}
        self._children: list[subprocess.Popen] = []
        self._keeper: subprocess.Popen | None = None
        self._switch = 0

    def __enter__(self) -> Network:
        check_programs()
        try:
            self._keeper, self._switch = self._start_keeper()
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends every process of every host, and the network. May be called twice."""
        if self._keeper is not None:
            self._keeper.stdin.close()
            for child in [*self._children, self._keeper]:
                child.wait(timeout=_WAIT_S)
                for pipe in (child.stdin, child.stdout, child.stderr):
                    if pipe is not None:
                        pipe.close()
            self._keeper = None

    # -- what runs on it ------------------------------------------------------------------------------------------

    def address(self, host: str) -> str:
        """Returns the host:port at which a host's own program may listen."""
        return f"{self._ips[host]}:{PORT}"

    def start(
        self, host: str, command: Sequence[str], environment: Mapping[str, str] | None = None, **popen: Any
    ) -> subprocess.Popen:
        """Starts a program on a host; it ends with the network at the latest."""
        popen = {"stdin": subprocess.DEVNULL, **popen, "env": clean_environment(environment), "text": True}
        enter = self._enter(self._pids[host], "--net", "--pid")
        child = subprocess.Popen([*enter, *command], start_new_session=True, **popen)
        self._children.append(child)
        return child

    def find_pid(self, child: subprocess.Popen) -> int:
        """Returns the process id, as seen from here, of a program that `start` started.

        Raises:
            ProcessLookupError: it has ended.
        """
        give_up = time.monotonic() + _WAIT_S
        while child.poll() is None and time.monotonic() < give_up:
            with open(f"/proc/{child.pid}/task/{child.pid}/children") as file:
                pids = file.read().split()
            with contextlib.suppress(FileNotFoundError):  # it has ended meanwhile
                if pids and _command_of(pids[0]) != _command_of(child.pid):  # the program, no longer who starts it
                    return int(pids[0])
            time.sleep(0.01)
        end = (
            f"has ended with code {child.returncode}" if child.poll() is not None else f"did not begin in {_WAIT_S:g} s"
        )
        raise ProcessLookupError(f"{' '.join(child.args)} {end}.")

    def set_link(self, host: str, is_up: bool) -> None:
        """Cuts the link of a host, or mends it."""
        self._run(self._pids[host], ["ip", "link", "set", "eth0", "up" if is_up else "down"])

    def set_rate(self, rate: Rate) -> None:
        """Shapes every link to another rate; the network must be shaped, and stays so."""
        for i, pid in enumerate(self._pids.values()):
            self._shape(pid, "eth0", rate, "change")
            self._shape(self._switch, f"p{i}", rate, "change")

    def read_bytes(self) -> dict[str, tuple[int, int]]:
        """Returns bytes so far, host -> (sent, received), headers of Ethernet, IP and TCP and repeats included.

        They are read at the switch: what a host sent counts once it has passed its own shaping.
        """
        counts = {}
        with open(f"/proc/{self._switch}/net/dev") as file:
            for line in file:
                port, colon, rest = line.partition(":")
                if colon:
                    counts[port.strip()] = rest.split()
        return {host: (int(counts[f"p{i}"][0]), int(counts[f"p{i}"][8])) for i, host in enumerate(self._ips)}

    # -- building -------------------------------------------------------------------------------------------------

    def _start_keeper(self) -> tuple[subprocess.Popen, int]:
        """Starts the first process of the process namespace; its network namespace is the switch."""
        user = ["--user", "--map-root-user"] if os.geteuid() else []
        command = ["unshare", *user, "--net", "--pid", "--fork", "--kill-child", "sh", "-c", f"{_SAY_PID} cat"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        keeper = subprocess.Popen(command, text=True, start_new_session=True, **pipes)
        line = keeper.stdout.readline()
        if not line:
            keeper.stdin.close()
            said = keeper.stderr.read().strip()
            keeper.wait(timeout=_WAIT_S)
            raise PermissionError(
                "Network namespaces need root, or a kernel that lets users make namespaces of their own. Received: "
                f"user id {os.geteuid()}, and {said or 'no answer'}. {_OUT_AND_WITHOUT}."
            )
        return keeper, int(line)

    def _build(self) -> None:
        for host in self._ips:
            self._pids[host] = self._start_holder()
        lines = ["link add br0 type bridge stp_state 0 forward_delay 0", "link set br0 up"]
        for i, host in enumerate(self._ips):
            lines.append(f"link add p{i} type veth peer name eth0 netns {self._pids[host]}")
            lines.append(f"link set p{i} master br0 up")
        self._run(self._switch, ["ip", "-batch", "-"], lines)
        for i, host in enumerate(self._ips):
            pid = self._pids[host]
            self._keep_quiet(pid)
            if self._stop_offloads(pid, "eth0"):
                self._stop_offloads(self._switch, f"p{i}")
            if self.rate.mbit_s is not None:
                self._shape(pid, "eth0", self.rate)
                self._shape(self._switch, f"p{i}", self.rate)
            self._run(
                pid,
                ["ip", "-batch", "-"],
                [f"addr add {self._ips[host]}/24 dev eth0", "link set lo up", "link set eth0 up"],
            )

    def _start_holder(self) -> int:
        """Starts the process that a host's namespace lives by, and returns its id as seen from here."""
        enter = self._enter(self._switch, "--pid")
        command = [*enter, "unshare", "--net", "sh", "-c", f"{_SAY_PID} sleep infinity"]
        holder = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self._children.append(holder)
        line = holder.stdout.readline()
        if not line:
            raise PermissionError(f"A host's namespace could not be made. {_OUT_AND_WITHOUT}.")
        return int(line)

    def _enter(self, pid: int, *namespaces: str) -> list[str]:
        user = ["--user", "--preserve-credentials"] if os.geteuid() else []
        return ["nsenter", "--target", str(pid), *user, *namespaces]

    def _run(self, pid: int, command: Sequence[str], lines: Sequence[str] = (), *, is_needed: bool = True) -> bool:
        """Runs a program in the network namespace of a process, with lines to read; returns whether it worked."""
        done = subprocess.run(
            [*self._enter(pid, "--net"), *command],
            input="\n".join(lines),
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": _list_folders()},
        )
        if done.returncode and is_needed:
            raise OSError(
                f"The kernel refused a part of the network: {' '.join(command)}: {done.stderr.strip()}. "
                f"{_OUT_AND_WITHOUT}."
            )
        return not done.returncode

    def _keep_quiet(self, pid: int) -> None:
        """Switches off IPv6, whose own packets nobody asked for, where the kernel has it."""
        switch = "echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6"
        self._run(pid, ["sh", "-c", switch], is_needed=False)

    def _stop_offloads(self, pid: int, device: str) -> bool:
        """Makes packets as small as on a wire; otherwise 64 kB of them would be counted with one header."""
        features = ["tso", "off", "gso", "off", "gro", "off"]
        is_there = shutil.which("ethtool", path=_list_folders())
        is_done = bool(is_there) and self._run(pid, ["ethtool", "-K", device, *features], is_needed=False)
        if not is_done and not self.notes:
            self.notes.append("packets are not cut as on a wire (ethtool is missing): few headers are in the bytes")
        return is_done

    def _shape(self, pid: int, device: str, rate: Rate, how: str = "add") -> None:
        shape = f"rate {int(rate.mbit_s * 1e6)}bit burst {rate.burst_bytes} latency {_QUEUE_S:g}s"
        self._run(pid, ["tc", "qdisc", how, "dev", device, "root", "tbf", *shape.split()])


def check_programs() -> None:
    """Raises FileNotFoundError if a program that builds networks is missing."""
    missing = [name for name in PROGRAMS if not shutil.which(name, path=_list_folders())]
    if missing:
        raise FileNotFoundError(
            f"A network of its own needs {', '.join(PROGRAMS)} (packages util-linux and iproute2). "
            f"Missing: {', '.join(missing)}. {_OUT_AND_WITHOUT}."
        )


def _command_of(pid: int | str) -> bytes:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read()


def _list_folders() -> str:
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])  # not in every user's PATH
