"""Serves one task of a cluster, or starts a whole cluster on this machine.

tools/launch --workers=4 --ps=2                       a local cluster, until Ctrl-C; prints TF_CONFIG for the chief
tools/launch --job=worker --index=0 --spec=spec.json  one task; the file holds the cluster
TF_CONFIG=... tools/launch                            the task of TF_CONFIG
tools/launch --print=kubernetes --workers=4 --ps=2    what a scheduler needs, on stdout (slurm, tf_config)
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import threading
from collections.abc import Sequence
from typing import Any

from absl import flags

from slimdp_tf.cli import manifests
from slimdp_tf.cli.program import check_no_arguments, explaining, run_program
from slimdp_tf.distribute.cluster import local_cluster
from slimdp_tf.distribute.serve import serve
from slimdp_tf.distribute.spec import check_spec

JOBS = ("worker", "ps")

_JOB = flags.DEFINE_enum("job", None, JOBS, "Which job to serve.")
_INDEX = flags.DEFINE_integer("index", 0, "Which task of the job, from 0.", lower_bound=0)
_SPEC = flags.DEFINE_string("spec", None, "JSON file with the cluster: job -> addresses host:port, or a TF_CONFIG.")
_WORKERS = flags.DEFINE_integer("workers", None, "Start a local cluster of so many workers.", lower_bound=1)
_PS = flags.DEFINE_integer("ps", None, "Start a local cluster of so many PS.", lower_bound=1)
_PRINT = flags.DEFINE_enum(
    "print",
    None,
    ("kubernetes", "slurm", "tf_config"),
    "Start nothing; print a List of Kubernetes objects, a script for sbatch, or TF_CONFIG for every host.",
)
_NAME = flags.DEFINE_string("name", "slimdp", "With --print: what the cluster is called.")
_IMAGE = flags.DEFINE_string("image", "tensorflow/tensorflow", "With --print=kubernetes: the container's image.")
_PROGRAM = flags.DEFINE_string("program", "python3 train.py", "With --print: what every task runs.")


def main(arguments: Sequence[str]) -> int:
    """Does what the flags say."""
    check_no_arguments(arguments)
    with explaining():
        if _PRINT.value:
            print(format_for(_PRINT.value, _WORKERS.value or 1, _PS.value or 1, _SPEC.value))
            return 0
        is_local = _WORKERS.value is not None or _PS.value is not None
        if is_local and (_JOB.value or _SPEC.value):
            raise ValueError(
                "Give --workers and --ps for a local cluster, or --job and --spec for a task. Received: both."
            )
        if is_local:
            return hold_cluster(_WORKERS.value or 1, _PS.value or 1)
        spec, job, index = choose_task(_SPEC.value, _JOB.value, _INDEX.value, os.environ.get("TF_CONFIG", ""))
        print(f"serving {job} {index} at {spec[job][index]}, until it is stopped", flush=True)
        serve(spec, job, index)
    return 0


def run() -> None:
    """The program slimdp-launch."""
    run_program(main)


def choose_task(path: str | None, job: str | None, index: int, tf_config: str) -> tuple[dict[str, list[str]], str, int]:
    """Returns the cluster, and which task of it to serve.

    Args:
        path: of a JSON file with the cluster; TF_CONFIG is used when None.
        job: "worker" or "ps"; the task of TF_CONFIG when None.
        index: of the task.
        tf_config: the value of TF_CONFIG, "" when unset.

    Raises:
        ValueError: the cluster or the task is not said, or is none that can be served.
        FileNotFoundError: no such file.
    """
    if path is None and not tf_config:
        raise ValueError(
            "Say what to launch: --workers=4 --ps=2; or --job=worker --index=0 --spec=FILE; or set TF_CONFIG. "
            "Received: none of these."
        )
    source = f"--spec={path}" if path else "TF_CONFIG"
    content = _parse_json(pathlib.Path(path).expanduser().read_text() if path else tf_config, source)
    spec = content.get("cluster", content)
    if job is None and "task" in content:
        job, index = content["task"].get("type"), int(content["task"].get("index", 0))
    if job not in JOBS:
        raise ValueError(
            f"The job must be one of {', '.join(JOBS)}: the chief is your own program, started with TF_CONFIG. "
            f"Received: {job!r}."
        )
    spec = _read_spec(spec, source)
    if index >= len(spec[job]):
        raise ValueError(f"The index of a {job} must be 0 to {len(spec[job]) - 1}. Received: {index}.")
    return spec, job, index


def format_for(kind: str, workers: int, ps: int, path: str | None) -> str:
    """Returns what a scheduler needs to run a cluster.

    Args:
        kind: "kubernetes", "slurm" or "tf_config".
        workers, ps: how many of each.
        path: for "tf_config": a JSON file with the cluster; None names its hosts after --name.
    """
    if kind == "kubernetes":
        objects = manifests.make_kubernetes(_NAME.value, workers, ps, _IMAGE.value, _PROGRAM.value)
        return json.dumps(objects, indent=2)
    if kind == "slurm":
        return manifests.format_slurm(_NAME.value, workers, ps, _PROGRAM.value)
    if path is None:
        return manifests.format_tf_config(manifests.name_tasks(_NAME.value, workers, ps))
    source = f"--spec={path}"
    content = _parse_json(pathlib.Path(path).expanduser().read_text(), source)
    return manifests.format_tf_config(_read_spec(content.get("cluster", content), source))


def hold_cluster(workers: int, ps: int) -> int:
    """Starts a local cluster, prints TF_CONFIG for its chief, and ends it at Ctrl-C or SIGTERM."""
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with local_cluster(workers=workers, ps=ps) as cluster:
        config = {"cluster": cluster.cluster_spec().as_dict(), "task": {"type": "chief", "index": 0}}
        print(f"{workers} workers and {ps} PS are running. In another terminal:\n")
        print(f"export TF_CONFIG='{json.dumps(config)}'\n")
        print("then start your program, or tools/train. Ctrl-C ends the cluster.", flush=True)
        stopped.wait()
    print("\nended", flush=True)
    return 0


def _parse_json(text: str, source: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{source} must be JSON. Received: {error}.") from error
    if not isinstance(content, dict):
        raise ValueError(f"{source} must be a JSON object. Received: {type(content).__name__}.")
    return content


def _read_spec(spec: Any, source: str) -> dict[str, list[str]]:
    for job, addresses in spec.items() if isinstance(spec, dict) else [("cluster", spec)]:
        if not isinstance(addresses, list) or not all(isinstance(a, str) and ":" in a for a in addresses):
            raise ValueError(f"{source} must give {job} as a list of host:port. Received: {addresses!r}.")
    return check_spec(spec)


if __name__ == "__main__":
    run()
