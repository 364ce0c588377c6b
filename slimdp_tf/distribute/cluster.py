"""A local cluster: workers and servers as processes of this machine.

TensorFlow's own distributed runtime does the work; this file sees to it that every wait ends and that no process of a
local cluster outlives its chief.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import tensorflow as tf

from slimdp_tf.distribute import _tf, loopback, task_process
from slimdp_tf.distribute.calls import ClusterError, run_apart
from slimdp_tf.distribute.spec import Spec, answers, check_spec
from slimdp_tf.environment import LARGE_PAGES


class PartialCluster(tf.distribute.cluster_resolver.ClusterResolver):
    """A resolver for the first tasks of a cluster that is already there."""

    def __init__(self, spec: Spec):
        self._spec = check_spec(spec)
        self.task_type, self.task_id = "chief", 0
        self.rpc_layer = "grpc"
        self._farewells: list[Callable[[], None]] = []

    def before_stop(self, farewell: Callable[[], None]) -> None:
        """Calls `farewell` while the processes still live, before they are ended."""
        self._farewells.append(farewell)

    def say_goodbye(self) -> None:
        """Does what was asked for by `before_stop`, once."""
        farewells, self._farewells = self._farewells, []
        for farewell in farewells:
            farewell()

    def cluster_spec(self):
        return tf.train.ClusterSpec(self._spec)

    def master(self, task_type=None, task_id=None, rpc_layer=None):
        return f"grpc://{self._spec[task_type or 'chief'][task_id or 0]}"

    def num_accelerators(self, task_type=None, task_id=None, config_proto=None):
        return {}


class LocalCluster(PartialCluster):
    """Workers and servers as processes of this machine, on loopback ports; this process is the chief.

    Args:
        workers, ps: how many of each.
        timeout_s: seconds within which all of them must serve.
        threads: threads for one operation in each process, 0 for a fair share of the cores.
    """

    def __init__(self, workers: int, ps: int, timeout_s: float = 60.0, threads: int = 0):
        for name, value in (("workers", workers), ("ps", ps)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be an integer of at least 1. Received: {value!r}")
        addresses = [f"127.0.0.1:{port}" for port in _free_ports(1 + workers + ps)]
        chief = _tf.chief_address() or addresses[-1]  # a process that was a chief before stays at its address
        super().__init__({"chief": [chief], "worker": addresses[:workers], "ps": addresses[workers:-1]})
        if loopback.why_open():
            loopback.warn_of([f"{job} {i} at {a}" for job in ("worker", "ps") for i, a in enumerate(self._spec[job])])
        self.timeout_s = timeout_s
        self._threads = threads or max(1, (os.cpu_count() or 1) // workers)
        self._logs = tempfile.TemporaryDirectory(prefix="slimdp_", ignore_cleanup_errors=True)
        self._processes: dict[tuple[str, int], subprocess.Popen] = {}
        for job in ("worker", "ps"):
            for index in range(len(self._spec[job])):
                self._start(job, index)
        try:
            self._await(list(self._processes))
        except ClusterError:
            self.stop()
            raise

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(self, *exception) -> None:
        self.stop()

    @property
    def addresses(self) -> Spec:
        """host:port of every task."""
        return {job: list(addresses) for job, addresses in self._spec.items()}

    def part(self, workers: int, ps: int) -> PartialCluster:
        """A resolver for the first `workers` workers and the first `ps` servers of this cluster."""
        spec = {**self._spec, "worker": self._spec["worker"][:workers], "ps": self._spec["ps"][:ps]}
        part = PartialCluster(spec)
        self.before_stop(part.say_goodbye)
        return part

    def pid(self, job: str, index: int) -> int:
        """Process id of a task."""
        return self._process(job, index).pid

    def kill(self, job: str, index: int) -> None:
        """Ends a task at once (SIGKILL)."""
        process = self._process(job, index)
        process.kill()
        process.wait()

    def suspend(self, job: str, index: int) -> None:
        """Stops a task where it is (SIGSTOP) until `resume`."""
        self._process(job, index).send_signal(signal.SIGSTOP)

    def resume(self, job: str, index: int) -> None:
        """Lets a task go on that was suspended."""
        self._process(job, index).send_signal(signal.SIGCONT)

    def restart(self, job: str, index: int) -> None:
        """Starts a task again at its address and waits until it serves; kills it first if it lives."""
        self.kill(job, index)
        self._start(job, index)
        self._await([(job, index)])

    def stop(self) -> None:
        """Brings home what models hold on the cluster, then ends its processes. May be called twice."""
        for process in self._processes.values():
            process.send_signal(signal.SIGCONT)  # nobody waits for a task that is suspended
        self.say_goodbye()
        farewell = run_apart(lambda: _tf.disconnect(self._spec), "slimdp leaves a cluster")
        farewell.ends_within(_FAREWELL_S)  # tasks that are busy answer late; when they are killed they answer no more
        for process in self._processes.values():
            process.kill()
        farewell.ends_within(_FAREWELL_S)
        for process in self._processes.values():
            process.wait()
            process.stdin.close()
        self._processes.clear()
        self._logs.cleanup()

    def _process(self, job: str, index: int) -> subprocess.Popen:
        if (job, index) not in self._processes:
            tasks = ", ".join(f"{j} {i}" for j, i in sorted(self._processes)) or "none, the cluster is stopped"
            raise ValueError(f"Tasks of this cluster: {tasks}. Received: {job} {index}")
        return self._processes[job, index]

    def _log(self, job: str, index: int) -> pathlib.Path:
        return pathlib.Path(self._logs.name) / f"{job}{index}.log"

    def _start(self, job: str, index: int) -> None:
        task = {"spec": self._spec, "job": job, "index": index, "threads": self._threads, "parent": os.getpid()}
        environment = {"TF_CPP_MIN_LOG_LEVEL": "2", **LARGE_PAGES, **os.environ}
        environment.pop("TF_CONFIG", None)
        environment["PYTHONPATH"] = os.pathsep.join(p for p in (str(_ROOT), environment.get("PYTHONPATH")) if p)
        with open(self._log(job, index), "ab") as log:
            self._processes[job, index] = subprocess.Popen(
                [sys.executable, task_process.__file__, json.dumps(task)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the chief, which then ends them
            )

    def _await(self, tasks: list[tuple[str, int]]) -> None:
        give_up = time.monotonic() + self.timeout_s
        for job, index in tasks:
            while not answers(self._spec[job][index]):
                ended = self._processes[job, index].poll()
                if ended is not None or time.monotonic() > give_up:
                    what = f"ended with code {ended}" if ended is not None else f"no answer within {self.timeout_s:g} s"
                    tail = "\n".join(self._log(job, index).read_text(errors="replace").splitlines()[-8:])
                    raise ClusterError(
                        f"{job} {index} of the local cluster did not start: {what}. Its log ends:\n{tail}"
                    )
                time.sleep(0.05)


def local_cluster(workers: int = 2, ps: int = 1, timeout_s: float = 60.0, threads: int = 0) -> LocalCluster:
    """Starts workers and servers as processes of this machine; ends them on leaving the `with` block.

    Args:
        workers, ps: how many of each.
        timeout_s: seconds within which all of them must serve.
        threads: threads for one operation in each process, 0 for a fair share of the cores.
    """
    return LocalCluster(workers, ps, timeout_s, threads)


_ROOT = pathlib.Path(__file__).resolve().parents[2]
_FAREWELL_S = 10.0


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()
