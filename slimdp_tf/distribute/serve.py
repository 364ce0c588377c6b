"""A process that serves one task of a cluster, for as long as the chief, or the process that started it, lives."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time

import tensorflow as tf

from slimdp_tf.distribute.calls import ClusterError
from slimdp_tf.distribute.spec import Spec, answers, check_port_is_free, check_spec


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


_PR_SET_PDEATHSIG = 1


def _serve_for_parent(task: dict) -> None:
    """Serves until the process that started this one is gone: its end of our standard input closes then."""

    def watch():
        while sys.stdin.buffer.read(4096):
            continue
        os._exit(0)

    if sys.platform == "linux":  # while it is suspended it sees nothing close: the end of its parent wakes it
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)
    threading.Thread(target=watch, daemon=True).start()
    try:
        start_server(task["spec"], task["job"], task["index"], task["threads"])
    except ClusterError as error:
        sys.exit(str(error))
    threading.Event().wait()


if __name__ == "__main__":
    _serve_for_parent(json.loads(sys.argv[1]))
