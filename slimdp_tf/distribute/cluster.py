"""The cluster: its specification and checks, a task that serves, and a local cluster of processes.

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
import threading
import time
from collections.abc import Callable

import tensorflow as tf

from slimdp_tf.distribute import _tf
from slimdp_tf.distribute.calls import ClusterError

Spec = dict[str, list[str]]
_JOBS = ("chief", "worker", "ps")


def check_spec(spec: Spec) -> Spec:
    """Returns `spec` if it can train.

    Raises:
        ValueError: a job is missing or not known, an evaluator is in it, or an address stands for two tasks.
    """
    if "evaluator" in spec:
        raise ValueError(
            "An evaluator cannot be part of the cluster: it would be waited for and never answer. Leave it out of "
            "TF_CONFIG; model.evaluate runs on the chief. Received jobs: " + ", ".join(sorted(spec))
        )
    unknown = sorted(set(spec) - set(_JOBS))
    if unknown:
        raise ValueError(f"Jobs of a cluster: {', '.join(_JOBS)}. Received also: {', '.join(unknown)}")
    for job in _JOBS:
        if not spec.get(job):
            raise ValueError(f"A cluster needs a chief, at least one worker and at least one ps. Missing: {job}")
    if len(spec["chief"]) != 1:
        raise ValueError(f"A cluster has one chief. Received: {', '.join(spec['chief'])}")
    seen: dict[str, str] = {}
    for job in _JOBS:
        for index, address in enumerate(spec[job]):
            if address in seen:
                raise ValueError(f"Address {address} stands for two tasks: {seen[address]} and {job} {index}")
            seen[address] = f"{job} {index}"
    return {job: list(spec[job]) for job in _JOBS}


def resolve(resolver: tf.distribute.cluster_resolver.ClusterResolver) -> tuple[Spec, str, int]:
    """Specification, own job and own index, from a resolver such as TFConfigClusterResolver."""
    cluster_spec = resolver.cluster_spec()
    if not cluster_spec or not cluster_spec.as_dict():
        raise ValueError(
            "No cluster: set TF_CONFIG, give a ClusterResolver, or use slimdp_tf.local_cluster(workers=4, ps=2)."
        )
    raw = {job: [a for _, a in sorted(_indexed(tasks))] for job, tasks in cluster_spec.as_dict().items()}
    if resolver.task_type == "evaluator":
        raise ValueError("This task is an evaluator; model.evaluate runs on the chief. Start chief, workers and ps only.")
    return check_spec(raw), resolver.task_type or "chief", int(resolver.task_id or 0)


def _indexed(tasks) -> list[tuple[int, str]]:
    return list(tasks.items()) if isinstance(tasks, dict) else list(enumerate(tasks))


def await_tasks(spec: Spec, timeout_s: float) -> None:
    """Waits until every worker and ps accepts connections.

    Raises:
        ClusterError: names those that did not within `timeout_s`.
    """
    missing = [(job, i, address) for job in ("worker", "ps") for i, address in enumerate(spec[job])]
    give_up = time.monotonic() + timeout_s
    while missing:
        missing = [task for task in missing if not answers(task[2])]
        if missing and time.monotonic() > give_up:
            names = ", ".join(f"{job} {index} at {address}" for job, index, address in missing)
            raise ClusterError(f"No answer within {timeout_s:g} s from: {names}. Are they started, and reachable?")
        if missing:
            time.sleep(0.1)


def answers(address: str) -> bool:
    """Whether something accepts TCP connections at host:port."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=1.0):
            return True
    except (OSError, ValueError):
        return False


def check_port_is_free(address: str, task: str) -> None:
    """Raises ClusterError if this host cannot listen at the port of `address`."""
    port = int(address.rpartition(":")[2])
    with socket.socket(socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise ClusterError(f"Port {port} for {task} is in use on this host ({error}). Choose another.") from error


def serve(
    spec: Spec, job: str, index: int, *, chief_timeout_s: float = 300.0, grace_s: float = 10.0, threads: int = 0
) -> None:
    """Serves one task until the chief has ended, then ends the process.

    Args:
        spec: the cluster.
        job, index: the task, "worker" or "ps".
        chief_timeout_s: seconds to wait for the chief to appear.
        grace_s: seconds without a chief after which it counts as ended.
        threads: threads for one operation, 0 for all cores.

    Raises:
        ClusterError: the port is in use, or no chief appeared.
    """
    start_server(spec, job, index, threads)
    chief, seen = spec["chief"][0], time.monotonic()
    has_appeared = False
    while time.monotonic() - seen < (grace_s if has_appeared else chief_timeout_s):
        if answers(chief):
            has_appeared, seen = True, time.monotonic()
        time.sleep(0.5)
    if not has_appeared:
        raise ClusterError(f"The chief at {chief} did not appear within {chief_timeout_s:g} s.")
    _end_process(0)


def start_server(spec: Spec, job: str, index: int, threads: int) -> tf.distribute.Server:
    """Starts the server of one task in this process; TensorFlow cannot stop it again."""
    spec = check_spec(spec)
    if job not in ("worker", "ps") or not 0 <= index < len(spec[job]):
        tasks = ", ".join(f"{j} 0..{len(spec[j]) - 1}" for j in ("worker", "ps"))
        raise ValueError(f"A task that serves is one of: {tasks}. Received: {job} {index}")
    check_port_is_free(spec[job][index], f"{job} {index}")
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=threads)
    return tf.distribute.Server(
        tf.train.ClusterSpec(spec), job_name=job, task_index=index, protocol="grpc", config=config, start=True
    )


def _end_process(code: int) -> None:
    """Ends the process although TensorFlow's server has threads that never end."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


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
        self.say_goodbye()
        _tf.disconnect(self._spec)
        for process in self._processes.values():
            process.kill()
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
        task = {"spec": self._spec, "job": job, "index": index, "threads": self._threads}
        environment = {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ}
        environment.pop("TF_CONFIG", None)
        environment["PYTHONPATH"] = os.pathsep.join(p for p in (str(_ROOT), environment.get("PYTHONPATH")) if p)
        with open(self._log(job, index), "ab") as log:
            self._processes[job, index] = subprocess.Popen(
                [sys.executable, "-m", "slimdp_tf.distribute.cluster", json.dumps(task)],
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
                    raise ClusterError(f"{job} {index} of the local cluster did not start: {what}. Its log ends:\n{tail}")
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


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


def _serve_for_parent(task: dict) -> None:
    """Serves until the process that started this one is gone: its end of our standard input closes then."""

    def watch():
        while sys.stdin.buffer.read(4096):
            continue
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
    try:
        start_server(task["spec"], task["job"], task["index"], task["threads"])
    except ClusterError as error:
        sys.exit(str(error))
    threading.Event().wait()


if __name__ == "__main__":
    _serve_for_parent(json.loads(sys.argv[1]))
