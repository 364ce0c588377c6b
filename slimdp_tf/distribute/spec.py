"""The specification of a cluster: read, checked, and whether its tasks answer."""

from __future__ import annotations

import socket
import time

import tensorflow as tf

from slimdp_tf.distribute.calls import ClusterError
from slimdp_tf.distribute.greetings import find_silent

Spec = dict[str, list[str]]
JOBS = ("chief", "worker", "ps")


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
    unknown = sorted(set(spec) - set(JOBS))
    if unknown:
        raise ValueError(f"Jobs of a cluster: {', '.join(JOBS)}. Received also: {', '.join(unknown)}")
    for job in JOBS:
        if not spec.get(job):
            raise ValueError(f"A cluster needs a chief, at least one worker and at least one ps. Missing: {job}")
    if len(spec["chief"]) != 1:
        raise ValueError(f"A cluster has one chief. Received: {', '.join(spec['chief'])}")
    seen: dict[str, str] = {}
    for job in JOBS:
        for index, address in enumerate(spec[job]):
            if address in seen:
                raise ValueError(f"Address {address} stands for two tasks: {seen[address]} and {job} {index}")
            seen[address] = f"{job} {index}"
    return {job: list(spec[job]) for job in JOBS}


def resolve(resolver: tf.distribute.cluster_resolver.ClusterResolver) -> tuple[Spec, str, int]:
    """Specification, own job and own index, from a resolver such as TFConfigClusterResolver."""
    cluster_spec = resolver.cluster_spec()
    if not cluster_spec or not cluster_spec.as_dict():
        raise ValueError(
            "No cluster: set TF_CONFIG, give a ClusterResolver, or use slimdp_tf.local_cluster(workers=4, ps=2)."
        )
    raw = {job: [a for _, a in sorted(_indexed(tasks))] for job, tasks in cluster_spec.as_dict().items()}
    if resolver.task_type == "evaluator":
        raise ValueError(
            "This task is an evaluator; model.evaluate runs on the chief. Start chief, workers and ps only."
        )
    return check_spec(raw), resolver.task_type or "chief", int(resolver.task_id or 0)


def _indexed(tasks) -> list[tuple[int, str]]:
    return list(tasks.items()) if isinstance(tasks, dict) else list(enumerate(tasks))


def await_tasks(spec: Spec, timeout_s: float) -> None:
    """Waits until the server of every worker and ps answers.

    Raises:
        ClusterError: names those whose did not within `timeout_s`.
    """
    silent, give_up = name_tasks(spec), time.monotonic() + timeout_s
    while silent := find_silent(silent):
        if time.monotonic() > give_up:
            raise ClusterError(
                f"No answer within {timeout_s:g} s from: {describe_tasks(silent)}. Are they started, and reachable?"
            )
        time.sleep(0.1)


def name_tasks(spec: Spec) -> dict[str, str]:
    """Name -> host:port of every worker and ps."""
    return {f"{job} {index}": address for job in ("worker", "ps") for index, address in enumerate(spec[job])}


def describe_tasks(tasks: dict[str, str]) -> str:
    """Tasks as messages call them: worker 0 at host:port, ps 1 at host:port."""
    return ", ".join(f"{name} at {address}" for name, address in tasks.items())


def reach(address: str) -> str:
    """What is at host:port: "answers", "refuses" (the host is there, the task is not) or "silent"."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=1.0):
            return "answers"
    except ConnectionRefusedError:
        return "refuses"
    except (OSError, ValueError):
        return "silent"


def answers(address: str) -> bool:
    """Whether something accepts TCP connections at host:port."""
    return reach(address) == "answers"


def check_port_is_free(address: str, task: str) -> None:
    """Raises ClusterError if this host cannot listen at the port of `address`."""
    port = int(address.rpartition(":")[2])
    with socket.socket(socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise ClusterError(f"Port {port} for {task} is in use on this host ({error}). Choose another.") from error
