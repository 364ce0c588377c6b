"""What is printed for other schedulers has the fields their schemas require, and says one and the same cluster."""

import json
import re
import shlex
import subprocess

import pytest
import tensorflow as tf

from slimdp_tf.cli import manifests
from slimdp_tf.distribute.spec import check_spec

# What the API references of Kubernetes 1.30 call required, for the kinds that are printed.
REQUIRED = {
    "PersistentVolumeClaim": ("accessModes", "resources"),
    "Service": ("selector", "ports"),
    "NetworkPolicy": ("podSelector",),
    "Job": ("template",),
}


def make() -> list[dict]:
    made = manifests.make_kubernetes("slim", 3, 2, "registry/image:1", "python3 train.py")
    assert (made["apiVersion"], made["kind"]) == ("v1", "List")
    return json.loads(json.dumps(made["items"]))


def by_name(kind: str) -> dict[str, dict]:
    return {item["metadata"]["name"]: item["spec"] for item in make() if item["kind"] == kind}


def test_every_object_has_what_its_schema_requires():
    for item in make():
        assert set(item) == {"apiVersion", "kind", "metadata", "spec"}
        assert re.fullmatch(r"[a-z0-9-]{1,63}", item["metadata"]["name"])
        assert set(REQUIRED[item["kind"]]) <= set(item["spec"])
    versions = {item["kind"]: item["apiVersion"] for item in make()}
    assert versions == {
        "PersistentVolumeClaim": "v1",
        "Service": "v1",
        "NetworkPolicy": "networking.k8s.io/v1",
        "Job": "batch/v1",
    }


def test_jobs_are_indexed_and_their_pods_find_one_another():
    service = by_name("Service")["slim"]
    assert service["clusterIP"] == "None" and service["selector"] == {"app": "slim"}
    jobs = by_name("Job")
    assert {name: job["completions"] for name, job in jobs.items()} == {"slim-chief": 1, "slim-worker": 3, "slim-ps": 2}
    for name, job in jobs.items():
        pod = job["template"]["spec"]
        assert (job["completionMode"], job["parallelism"]) == ("Indexed", job["completions"])
        assert (pod["subdomain"], pod["restartPolicy"]) == ("slim", "OnFailure")
        assert job["template"]["metadata"]["labels"] == {"app": "slim"}
        (container,) = pod["containers"]
        assert container["image"] == "registry/image:1" and "python3 train.py" in container["command"][-1]
        index, config = container["env"]
        assert index["name"] == "TASK_INDEX" and "job-completion-index" in index["valueFrom"]["fieldRef"]["fieldPath"]
        filled = json.loads(config["value"].replace("$(TASK_INDEX)", "0"))
        assert filled["task"] == {"type": name.removeprefix("slim-"), "index": 0}
        assert len(check_spec(filled["cluster"])["worker"]) == 3
        assert filled["cluster"]["worker"][2] == "slim-worker-2.slim:2222"


def test_only_the_chief_has_storage_and_ends_by_itself():
    jobs = by_name("Job")
    volumes = jobs["slim-chief"]["template"]["spec"]["volumes"]
    assert volumes[0]["persistentVolumeClaim"]["claimName"] in by_name("PersistentVolumeClaim")
    assert "volumes" not in jobs["slim-worker"]["template"]["spec"]
    commands = {name: job["template"]["spec"]["containers"][0]["command"][-1] for name, job in jobs.items()}
    assert commands["slim-chief"] == "exec python3 train.py" and commands["slim-ps"].startswith("while true")


def test_only_the_jobs_own_pods_are_let_in():
    policy = by_name("NetworkPolicy")["slim"]
    assert policy["podSelector"] == {"matchLabels": {"app": "slim"}}
    assert policy["policyTypes"] == ["Ingress"]
    assert policy["ingress"] == [{"from": [{"podSelector": {"matchLabels": {"app": "slim"}}}]}]


@pytest.mark.parametrize("name", ["Slim", "1slim", "slim_dp", "slim-", "x" * 50, ""])
def test_names_that_kubernetes_refuses(name):
    with pytest.raises(ValueError, match="name must be that of a Kubernetes Service"):
        manifests.make_kubernetes(name, 1, 1, "image", "program")


def test_tf_config_for_every_host():
    spec = manifests.name_tasks("host", 2, 1)
    text = manifests.format_tf_config(spec)
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    configs = [json.loads(shlex.split(line)[1].removeprefix("TF_CONFIG=")) for line in lines]
    assert [tuple(config["task"].values()) for config in configs] == [
        ("chief", 0),
        ("worker", 0),
        ("worker", 1),
        ("ps", 0),
    ]
    assert all(config["cluster"] == spec for config in configs)
    assert "# worker 1, on host-worker-1" in text


def test_the_slurm_script_is_bash_with_a_task_for_every_process():
    script = manifests.format_slurm("slim", 3, 2, "python3 train.py --epochs=5")
    assert script.startswith("#!/bin/bash\n#SBATCH ")
    assert "#SBATCH --ntasks=6" in script.splitlines() and "#SBATCH --job-name=slim" in script
    checked = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, timeout=20)
    assert checked.returncode == 0, checked.stderr
    task = shlex.split(script.splitlines()[-1])
    assert task[0] == "srun" and task[-1].endswith("&& exec python3 train.py --epochs=5")


def test_a_slurm_task_finds_its_place(monkeypatch, capsys):
    script = manifests.format_slurm("slim", 2, 1, "true")
    code = script.split("<<'END'\n")[1].split("\nEND\n")[0]
    monkeypatch.setenv("SLURM_PROCID", "2")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    monkeypatch.setenv("SLURM_STEP_NODELIST", "node[1-2]")
    monkeypatch.setenv("SLURM_STEP_TASKS_PER_NODE", "2(x2)")
    exec(code, {})
    config = json.loads(capsys.readouterr().out)
    assert config["task"] == {"type": "worker", "index": 0}
    spec = check_spec(config["cluster"])
    assert [len(spec[job]) for job in ("chief", "worker", "ps")] == [1, 2, 1]
    assert spec["worker"][0] == "node2:2222"
    assert isinstance(tf.train.ClusterSpec(spec), tf.train.ClusterSpec)
