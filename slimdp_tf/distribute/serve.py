"""A process that serves one task of a cluster, for as long as the chief, or the process that started it, lives."""

from __future__ import annotations

import ctypes
import math
import os
import select
import signal
import sys
import threading
import time

import tensorflow as tf

from slimdp_tf.distribute import loopback, sockets
from slimdp_tf.distribute.calls import ClusterError
from slimdp_tf.distribute.spec import Spec, check_port_is_free, check_spec, reach


def serve(
    spec: Spec,
    job: str,
    index: int,
    *,
    chief_timeout_s: float = 300.0,
    grace_s: float = 10.0,
    silence_s: float = 300.0,
    threads: int = 0,
) -> None:
    """Serves one task until the chief has ended, then ends the process.

    Args:
        spec: the cluster.
        job, index: the task, "worker" or "ps".
        chief_timeout_s: seconds to wait for the chief to appear.
        grace_s: seconds after which the chief counts as ended where its host says that it is not there.
        silence_s: the same where nothing is heard of its host: a link may be down.
        threads: threads for one operation, 0 for all cores.

    Raises:
        ClusterError: the port is in use, or no chief appeared.
    """
    start_server(spec, job, index, threads)
    chief, give_up = spec["chief"][0], time.monotonic() + chief_timeout_s
    while reach(chief) != "answers":
        if time.monotonic() > give_up:
            raise ClusterError(f"The chief at {chief} did not appear within {chief_timeout_s:g} s.")
        time.sleep(_LOOK_S)
    _await_end(chief, {"refuses": grace_s, "silent": silence_s})
    _end_process(0)


def _await_end(chief: str, patience: dict[str, float]) -> None:
    """Waits until `reach` has said the same of the chief for as many seconds as it has patience with that."""
    said, since = "answers", time.monotonic()
    while time.monotonic() - since < patience.get(said, math.inf):
        time.sleep(_LOOK_S)
        if (now := reach(chief)) != said:
            said, since = now, time.monotonic()


def start_server(spec: Spec, job: str, index: int, threads: int) -> tf.distribute.Server:
    """Starts the server of one task in this process; TensorFlow cannot stop it again."""
    spec = check_spec(spec)
    if job not in ("worker", "ps") or not 0 <= index < len(spec[job]):
        tasks = ", ".join(f"{j} 0..{len(spec[j]) - 1}" for j in ("worker", "ps"))
        raise ValueError(f"A task that serves is one of: {tasks}. Received: {job} {index}")
    check_port_is_free(spec[job][index], f"{job} {index}")
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threads, inter_op_parallelism_threads=max(_CALLS, os.cpu_count() or 1)
    )
    with loopback.kept(spec, spec[job][index], f"{job} {index}"):
        server = tf.distribute.Server(
            tf.train.ClusterSpec(spec), job_name=job, task_index=index, protocol="grpc", config=config, start=False
        )  # it listens, and serves nobody yet
    if not loopback.is_local(spec):
        sockets.watch_over(address for tasks in spec.values() for address in tasks)
    server.start()
    return server


def _end_process(code: int) -> None:
    """Ends the process although TensorFlow's server has threads that never end."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


_LOOK_S = 0.5  # seconds between two looks at the chief
# A call holds a thread until it ends, and one whose tensors were lost with a connection may never end. With a thread
# per core, as by default, two such calls silence a task on two cores for good.
_CALLS = 16
_PR_SET_PDEATHSIG = 1


def serve_for_parent(task: dict) -> None:
    """Serves until the process that started this one, task["parent"], is gone.

    Then this one has another parent. Its end of our standard input closes, too, unless a child of it, which was forked,
    holds that.
    """

    def watch():
        while os.getppid() == task["parent"]:
            if select.select([sys.stdin], [], [], _LOOK_S)[0] and not os.read(sys.stdin.fileno(), 4096):
                break
        os._exit(0)

    if sys.platform == "linux":  # while it is suspended it sees nothing: the end of its parent wakes it
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)
    threading.Thread(target=watch, daemon=True).start()
    try:
        start_server(task["spec"], task["job"], task["index"], task["threads"])
    except ClusterError as error:
        sys.exit(str(error))
    threading.Event().wait()
