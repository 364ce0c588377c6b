"""One program on five hosts, started with TF_CONFIG and nothing else: chief, 2 workers, 2 servers."""

import contextlib
import inspect
import json
import os
import signal
import subprocess
import sys
import time

import keras
import numpy as np
import pytest

import slimdp_tf
from slimdp_tf.distribute.serve import serve
from tests import sources
from tests.distribute import host_program
from tests.distribute.namespaces import IN_OUR_LIFE, Hosts, why_not
from tests.distribute.ports import free_addresses
from tests.distribute.test_cluster import wait_until

JOBS = [("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0), ("ps", 1)]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """(folder, job -> (exit code, seconds from the chief's end to its own, log)) after the program has run."""
    if reason := why_not():
        pytest.skip(f"hosts cannot be made: network namespaces are not permitted here ({reason})")
    folder, processes, ended = tmp_path_factory.mktemp("hosts"), {}, {}
    with Hosts(len(JOBS)) as hosts:
        cluster = {}
        for (job, _), address in zip(JOBS, hosts.addresses):
            cluster.setdefault(job, []).append(f"{address}:2222")
        for host, (job, index) in enumerate(JOBS):
            config = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
            log, path = str(folder / f"{job}{index}.log"), str(sources.ROOT)
            processes[job, index] = hosts.start(
                host, "tests.distribute.host_program", str(folder), log=log, TF_CONFIG=config, PYTHONPATH=path
            )
        code, chief_ended = processes["chief", 0].wait(timeout=200), time.monotonic()
        ended["chief", 0] = code, 0.0, (folder / "chief0.log").read_text(errors="replace")
        for (job, index), process in processes.items():
            code = process.wait(timeout=60)
            log = (folder / f"{job}{index}.log").read_text(errors="replace")
            ended[job, index] = code, time.monotonic() - chief_ended, log
    return folder, ended


@pytest.mark.cluster
def test_every_program_ends_well_and_by_itself(run):
    _, ended = run
    for task, (code, _, log) in ended.items():
        assert code == 0, f"{task} ended with code {code}:\n{log[-3000:]}"
    assert all(seconds < 40 for _, seconds, _ in ended.values()), "a worker or ps stayed on after the chief"


@pytest.mark.cluster
def test_both_workers_and_both_servers_took_part(run):
    seen = json.loads((run[0] / "seen.json").read_text())
    assert seen["workers"] == [2] * host_program.ROUNDS
    assert seen["ps"] == 2


@pytest.mark.cluster
def test_the_chief_saved_what_the_method_gives(run):
    folder, _ = run
    saved = keras.saving.load_model(folder / "model.keras")
    x, y = host_program.make_data(host_program.ROUNDS * 2 * host_program.BATCH * 2)
    start = host_program.make_model()
    loss = saved.evaluate(x, y, verbose=0)
    assert loss == pytest.approx(json.loads((folder / "seen.json").read_text())["loss"], rel=1e-5)
    assert loss < 0.5 * start.evaluate(x, y, verbose=0)
    expected = _simulated(start, x, y)
    np.testing.assert_allclose(np.concatenate([w.ravel() for w in saved.get_weights()]), expected, atol=1e-5)


def _simulated(model: keras.Model, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The same training in this process, by `slimdp_tf.simulate`."""
    shapes = [w.shape for w in model.get_weights()]
    cuts = np.cumsum([np.prod(shape) for shape in shapes])[:-1]

    def train(worker: int, weights: np.ndarray, steps: int, number: int) -> np.ndarray:
        model.set_weights([part.reshape(shape) for part, shape in zip(np.split(weights, cuts), shapes)])
        for step in range(2 * number, 2 * number + steps):
            rows = np.arange(step * host_program.BATCH, (step + 1) * host_program.BATCH) * 2 + worker
            model.train_on_batch(x[rows], y[rows])
        return np.concatenate([w.ravel() for w in model.get_weights()])

    weights = np.concatenate([w.ravel() for w in model.get_weights()])
    method = slimdp_tf.methods.slim(alpha=0.6, beta=0.4, p=2, q=8)
    return slimdp_tf.simulate(method, weights, train, host_program.ROUNDS, 2, 2, seed=3).weights


# -- a chief that does not end well -----------------------------------------------------------------------------------


@pytest.mark.cluster
def test_every_task_ends_after_its_chief_whether_that_was_killed_or_failed(tmp_path):
    with contextlib.ExitStack() as started:  # two clusters at once: most of the time goes into starting
        killed, tasks_of_killed = _start_here(started, tmp_path / "trains", workers=2, ps=2)
        failed, tasks_of_failed = _start_here(started, tmp_path / "fails", workers=1, ps=1)
        under_way = tmp_path / "trains" / "training"
        assert wait_until(lambda: under_way.exists() or killed.poll() is not None, 120), _logs(tmp_path)
        assert failed.wait(timeout=60) == 1, _logs(tmp_path)
        assert all(task.poll() is None for task in (killed, *tasks_of_killed)), _logs(tmp_path)
        killed.kill()
        assert killed.wait() == -signal.SIGKILL
        tasks = [*tasks_of_killed, *tasks_of_failed]
        assert wait_until(lambda: all(task.poll() is not None for task in tasks), _GRACE_S + 10), _logs(tmp_path)
        assert [task.poll() for task in tasks] == [0] * 6, _logs(tmp_path)
    assert "RuntimeError: the program failed" in (tmp_path / "fails" / "chief0.log").read_text()


_GRACE_S = inspect.signature(serve).parameters["grace_s"].default


def _start_here(started, folder, workers: int, ps: int) -> tuple[subprocess.Popen, list[subprocess.Popen]]:
    """The chief and the tasks of a cluster on this machine; its chief ends as the folder's name says.

    They end with the block, and whatever becomes of this process.
    """
    folder.mkdir()
    chief, *rest = free_addresses(1 + workers + ps)
    cluster = {"worker": rest[:workers], "ps": rest[workers:], "chief": [chief]}
    program = [*IN_OUR_LIFE, sys.executable, "-m", "tests.distribute.host_program", str(folder), folder.name]
    processes = []
    for job, addresses in cluster.items():
        for index in range(len(addresses)):
            config = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
            log = started.enter_context((folder / f"{job}{index}.log").open("wb"))
            environment = {**os.environ, "TF_CONFIG": config}
            process = subprocess.Popen(program, cwd=sources.ROOT, stdout=log, stderr=log, env=environment)
            started.callback(process.wait)
            started.callback(process.kill)
            processes.append(process)
    return processes[-1], processes[:-1]


def _logs(folder) -> str:
    return "\n".join(f"{path}:\n{path.read_text(errors='replace')[-1500:]}" for path in folder.glob("*/*.log"))


# -- what TF_CONFIG may not say ---------------------------------------------------------------------------------------


def _strategy(monkeypatch, cluster: dict | None, job: str = "chief", index: int = 0):
    config = {} if cluster is None else {"cluster": cluster, "task": {"type": job, "index": index}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    return slimdp_tf.SlimDPStrategy()


ADDRESSES = {"chief": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"], "ps": ["127.0.0.1:3"]}


@pytest.mark.parametrize(
    ("cluster", "job", "says"),
    [
        (ADDRESSES | {"evaluator": ["127.0.0.1:4"]}, "chief", "evaluator cannot be part of the cluster"),
        (ADDRESSES | {"evaluator": ["127.0.0.1:4"]}, "worker", "evaluator cannot be part of the cluster"),
        (ADDRESSES, "evaluator", "This task is an evaluator"),
        (None, "chief", "No cluster: set TF_CONFIG"),
        ({"chief": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"]}, "chief", "Missing: ps"),
    ],
)
def test_refuses_in_words_and_at_once(monkeypatch, cluster, job, says):
    started = time.monotonic()
    with pytest.raises(ValueError, match=says):
        _strategy(monkeypatch, cluster, job)
    assert time.monotonic() - started < 5.0
