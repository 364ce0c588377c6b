"""What other schedulers need to run a cluster: Kubernetes objects, a Slurm script, TF_CONFIG for every host.

Every task runs the same program; in it the strategy serves where the task is a worker or ps.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

PORT = 2222
_RESTARTS = 1000  # of a pod that failed, before its Job gives up
_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
# The resolver counts tasks of a node by its GPUs: it is told of one for each, and binds none.
_SLURM_TASK = """\
import json
import tensorflow as tf
resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(
    {jobs}, port_base={port}, gpus_per_node={tasks}, gpus_per_task=1, auto_set_gpu=False
)
cluster = resolver.cluster_spec().as_dict()
job, index = resolver.get_task_info()
print(json.dumps({{"cluster": cluster, "task": {{"type": job, "index": index}}}}))"""


def name_tasks(name: str, workers: int, ps: int) -> dict[str, list[str]]:
    """Returns the addresses of a cluster whose hosts are called <name>-<job>-<index>."""
    counts = {"chief": 1, "worker": workers, "ps": ps}
    return {job: [f"{name}-{job}-{i}:{PORT}" for i in range(count)] for job, count in counts.items()}


def format_tf_config(spec: dict[str, list[str]]) -> str:
    """Returns a line per task that sets TF_CONFIG, to be run on its host before the program starts."""
    lines = []
    for job, addresses in spec.items():
        for index, address in enumerate(addresses):
            config = json.dumps({"cluster": spec, "task": {"type": job, "index": index}})
            lines += [f"# {job} {index}, on {address.rpartition(':')[0]}", f"export TF_CONFIG={shlex.quote(config)}"]
    return "\n".join(lines)


def format_slurm(name: str, workers: int, ps: int, program: str) -> str:
    """Returns a script for sbatch: a task per process, whose TF_CONFIG is what SlurmClusterResolver finds."""
    jobs = {"chief": 1, "worker": workers, "ps": ps}
    task = f'export TF_CONFIG="$(python3 -c "$RESOLVE")" && exec {program}'
    return "\n".join(
        [
            "#!/bin/bash",
            f"#SBATCH --job-name={name}",
            f"#SBATCH --ntasks={sum(jobs.values())}",
            "#SBATCH --cpus-per-task=2",
            "#SBATCH --time=24:00:00",
            "#SBATCH --requeue",
            "RESOLVE=$(cat <<'END'",
            _SLURM_TASK.format(jobs=json.dumps(jobs), port=PORT, tasks=sum(jobs.values())),
            "END",
            ")",
            "export RESOLVE",
            "# Task 0 is the chief, then come the PS, then the workers.",
            f"srun --kill-on-bad-exit=0 bash -c {shlex.quote(task)}",
        ]
    )


def make_kubernetes(name: str, workers: int, ps: int, image: str, program: str) -> dict[str, Any]:
    """Returns a List of Kubernetes objects: storage, a headless Service, a NetworkPolicy and a Job for every job.

    Raises:
        ValueError: the name cannot be that of a Service.
    """
    if not re.fullmatch(r"[a-z]([a-z0-9-]{0,40}[a-z0-9])?", name):
        raise ValueError(
            "name must be that of a Kubernetes Service: lower-case letters, digits and -, at most 42. "
            f"Received: {name!r}"
        )
    labels = {"app": name}
    service = {
        "clusterIP": "None",  # headless: every pod has a name of its own
        "selector": labels,
        "publishNotReadyAddresses": True,
        "ports": [{"name": "grpc", "port": PORT}],
    }
    own_pods = {"from": [{"podSelector": {"matchLabels": labels}}]}
    policy = {"podSelector": {"matchLabels": labels}, "policyTypes": ["Ingress"], "ingress": [own_pods]}
    storage = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}}
    objects = [
        _object("v1", "PersistentVolumeClaim", name, labels, storage),
        _object("v1", "Service", name, labels, service),
        _object("networking.k8s.io/v1", "NetworkPolicy", name, labels, policy),
    ]
    addresses = {
        job: [f"{host.rpartition(':')[0]}.{name}:{PORT}" for host in hosts]
        for job, hosts in name_tasks(name, workers, ps).items()
    }
    for job in addresses:
        spec = _make_job(name, job, addresses, image, program)
        objects.append(_object("batch/v1", "Job", f"{name}-{job}", labels, spec))
    return {"apiVersion": "v1", "kind": "List", "items": objects}


def _make_job(name: str, job: str, addresses: dict[str, list[str]], image: str, program: str) -> dict[str, Any]:
    count, is_chief = len(addresses[job]), job == "chief"
    # Kubernetes puts the index in: TF_CONFIG is JSON only then.
    config = f'{{"cluster": {json.dumps(addresses)}, "task": {{"type": "{job}", "index": $(TASK_INDEX)}}}}'
    container = {
        "name": job,
        "image": image,
        # What serves ends when the chief does, and must be there again when the chief is.
        "command": ["sh", "-c", f"exec {program}" if is_chief else f"while true; do {program}; sleep 1; done"],
        "env": [
            {"name": "TASK_INDEX", "valueFrom": {"fieldRef": {"fieldPath": _INDEX}}},
            {"name": "TF_CONFIG", "value": config},
        ],
        "ports": [{"containerPort": PORT}],
    }
    pod = {"subdomain": name, "restartPolicy": "OnFailure", "containers": [container]}
    if is_chief:
        container["volumeMounts"] = [{"name": "workdir", "mountPath": "/workdir"}]
        pod["volumes"] = [{"name": "workdir", "persistentVolumeClaim": {"claimName": name}}]
    return {
        "completions": count,
        "parallelism": count,
        "completionMode": "Indexed",
        "backoffLimit": _RESTARTS,
        "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
    }


def _object(version: str, kind: str, name: str, labels: dict[str, str], spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": labels}, "spec": spec}
