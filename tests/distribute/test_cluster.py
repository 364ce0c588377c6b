"""Local clusters: processes that do not outlive their chief, and models that do outlive their cluster."""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

import slimdp_tf
from slimdp_tf import ClusterError
from slimdp_tf.distribute import cluster
from slimdp_tf.distribute.spec import answers
from tests import sources


def is_gone(pid: int) -> bool:
    """Whether a process has ended (one that nobody has asked for its exit code yet has ended too)."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_until(condition, seconds: float) -> bool:
    give_up = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize("name", ["workers", "ps"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "2", True])
def test_a_local_cluster_has_at_least_one_of_each(name, value):
    with pytest.raises(ValueError, match=f"{name} must be an integer of at least 1. Received: {value!r}"):
        slimdp_tf.local_cluster(**{name: value})


def test_a_process_that_dies_at_its_start_is_named_with_its_log(monkeypatch):
    monkeypatch.setattr(cluster.sys, "executable", "/bin/ls")
    with pytest.raises(ClusterError, match="(?s)worker 0 of the local cluster did not start: ended with code.*ls: "):
        slimdp_tf.local_cluster(workers=1, ps=1)


def test_ports_that_cannot_be_kept_to_this_machine_are_named(monkeypatch, caplog):
    monkeypatch.setattr(cluster.sys, "executable", "/bin/ls")
    monkeypatch.setattr(cluster.loopback, "why_open", lambda: "no devices here")
    monkeypatch.setattr(tf.get_logger(), "propagate", True)
    with pytest.raises(ClusterError):
        slimdp_tf.local_cluster(workers=2, ps=1)
    (warning,) = caplog.messages
    port = r"127\.0\.0\.1:\d+"
    assert re.search(rf": worker 0 at {port}, worker 1 at {port}, ps 0 at {port} \(no devices here\)\.$", warning)


def test_a_process_that_never_serves_is_named(monkeypatch, tmp_path):
    sleeper = tmp_path / "sleeper"
    sleeper.write_text("#!/bin/sh\necho still thinking\nexec sleep 60\n")
    sleeper.chmod(0o755)
    monkeypatch.setattr(cluster.sys, "executable", str(sleeper))
    with pytest.raises(ClusterError, match="(?s)worker 0 .* no answer within 0.5 s. Its log ends:\nstill thinking"):
        slimdp_tf.local_cluster(workers=1, ps=1, timeout_s=0.5)


# -- processes --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def own():
    """A cluster that tests may harm, in this process."""
    with slimdp_tf.local_cluster(workers=1, ps=1) as made:
        yield made


@pytest.mark.cluster
def test_kills_and_restarts_a_task(own):
    address, pid = own.addresses["worker"][0], own.pid("worker", 0)
    assert answers(address)
    own.kill("worker", 0)
    assert is_gone(pid)
    assert not answers(address)
    own.restart("worker", 0)
    assert answers(address)
    assert own.pid("worker", 0) != pid
    assert own.addresses["worker"][0] == address


@pytest.mark.cluster
def test_suspends_and_resumes_a_task(own):
    def state() -> str:
        return pathlib.Path(f"/proc/{own.pid('ps', 0)}/stat").read_text().rpartition(")")[2].split()[0]

    own.suspend("ps", 0)
    assert wait_until(lambda: state() == "T", 5)
    own.resume("ps", 0)
    assert wait_until(lambda: state() != "T", 5)


@pytest.mark.cluster
@pytest.mark.parametrize("verb", ["kill", "restart", "suspend", "resume", "pid"])
def test_names_the_tasks_there_are(own, verb):
    with pytest.raises(ValueError, match="Tasks of this cluster: ps 0, worker 0. Received: worker 7"):
        getattr(own, verb)("worker", 7)


ENDINGS = {  # how the chief ends: (what it is told to do, the signal it gets, its exit codes)
    "returns": ("returns", None, {0}),
    "sys.exit": ("exits", None, {3}),
    "an exception": ("fails", None, {1}),
    "Ctrl-C while training": ("trains", signal.SIGINT, {-signal.SIGINT, 130, 1}),
    "SIGTERM while training": ("trains", signal.SIGTERM, {-signal.SIGTERM}),
    "SIGKILL while training": ("trains", signal.SIGKILL, {-signal.SIGKILL}),
    "SIGKILL with a suspended worker": ("idles", signal.SIGKILL, {-signal.SIGKILL}),
    "SIGKILL with a forked child that lives on": ("forks", signal.SIGKILL, {-signal.SIGKILL}),
}


@pytest.mark.cluster
@pytest.mark.parametrize("name", ENDINGS)
def test_the_processes_are_gone_after_the_chief_ended(name, tmp_path):
    ending, number, codes = ENDINGS[name]
    path, log = tmp_path / "pids", tmp_path / "log"
    with log.open("wb") as output:
        chief = subprocess.Popen(
            [sys.executable, "-m", "tests.distribute.chief_program", ending, str(path)],
            cwd=sources.ROOT,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    pids = []
    try:
        assert wait_until(lambda: path.exists() or chief.poll() is not None, 120), log.read_text()
        assert path.exists(), log.read_text()
        pids = json.loads(path.read_text())
        if number is not None:
            chief.send_signal(number)
        if not wait_until(lambda: chief.poll() is not None, 60):
            chief.send_signal(signal.SIGUSR1)  # it says where it stands
            time.sleep(1.0)
        assert chief.poll() in codes, log.read_text()
        assert wait_until(lambda: all(is_gone(pid) for pid in pids), 10), "a process outlived its chief"
        if ending == "forks":
            os.killpg(chief.pid, signal.SIGKILL)  # an error if its child, which it left in its group, has ended, too
    finally:
        chief.kill()
        chief.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(chief.pid, signal.SIGKILL)
        for pid in pids:
            if not is_gone(pid):
                os.kill(pid, signal.SIGKILL)


def _fitted(strategy, value: float):
    """A model of one weight, trained one round from `value`: every worker's gradient is 2 * value."""
    import keras

    with strategy.scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
        model.compile(keras.optimizers.SGD(0.25), "mse")
    model.set_weights([np.full((1, 1), value, "float32")])
    _fit(model)
    return model


def _fit(model) -> None:
    model.fit(np.ones((2, 1), "float32"), np.zeros((2, 1), "float32"), batch_size=1, verbose=0)


@pytest.mark.cluster
def test_two_clusters_one_after_another_and_models_that_outlive_them():
    models, pids = [], []
    for value in (1.0, 8.0):
        with slimdp_tf.local_cluster(workers=2, ps=1) as made:
            strategy = slimdp_tf.SlimDPStrategy(made)
            models.append(_fitted(strategy, value))
            pids += [made.pid("worker", 0), made.pid("worker", 1), made.pid("ps", 0)]
        assert all(is_gone(pid) for pid in pids)
    for model, value in zip(models, (1.0, 8.0)):
        np.testing.assert_allclose(model.get_weights(), [[[value / 2]]])
        np.testing.assert_allclose(model.predict(np.ones((1, 1)), verbose=0), [[value / 2]])
        with pytest.raises(ClusterError, match="has been stopped"):
            _fit(model)
        np.testing.assert_allclose(model.get_weights(), [[[value / 2]]])
    made.stop()  # may be called twice
    with pytest.raises(ValueError, match="none, the cluster is stopped"):
        made.pid("worker", 0)
