"""The strategy as its users see it: arguments that are refused at once, what it says of itself."""

import gc
import json
import subprocess
import sys
import threading
import time
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

import slimdp_tf
from slimdp_tf import ClusterError, SlimDPStrategy, methods
from slimdp_tf.distribute import _tf
from slimdp_tf.distribute import strategy as module
from slimdp_tf.distribute.cluster import PartialCluster
from tests import sources
from tests.cluster import shared_cluster
from tests.cluster import strategy as make_strategy
from tests.distribute.ports import free_address, greeting, listening
from tests.distribute.test_custom_loop import trained

__all__ = ["trained"]

SPEC = {"chief": ["a:1"], "worker": ["b:1", "b:2"], "ps": ["c:1"]}


# -- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"method": "slim"}, TypeError, "one of slimdp_tf.methods, such as slim.*Received: 'slim'"),
        ({"method": methods.slim}, TypeError, "one of slimdp_tf.methods"),
        ({"seed": -1}, ValueError, "seed must be an integer of at least 0. Received: -1"),
        ({"seed": True}, ValueError, "seed must be an integer"),
        ({"seed": 1.5}, ValueError, "seed must be an integer"),
        ({"on_nonfinite": "ignore"}, ValueError, "'raise', 'skip', 'rollback'. Received: 'ignore'"),
        ({"timeout_s": 0}, ValueError, "must be positive"),
        ({"worker_deadline_s": -1.0}, ValueError, "must be positive"),
        ({"cluster_deadline_s": "60"}, ValueError, "must be positive"),
    ],
)
def test_bad_arguments_are_refused_before_the_cluster_is_looked_at(arguments, error, says):
    with pytest.raises(error, match=says):
        SlimDPStrategy(object(), **arguments)


def test_without_a_cluster_it_says_what_to_do(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(ValueError, match="No cluster: set TF_CONFIG.*local_cluster"):
        SlimDPStrategy()


def test_tasks_that_do_not_answer_are_named_in_time():
    missing = free_address()
    with greeting() as port:
        spec = {"chief": [free_address()], "worker": [f"127.0.0.1:{port}"], "ps": [missing]}
        started = time.monotonic()
        with pytest.raises(ClusterError, match=f"within 1 s from: ps 0 at {missing}"):
            SlimDPStrategy(PartialCluster(spec), timeout_s=1.0)
        assert time.monotonic() - started < 5.0


def test_tasks_that_fall_silent_while_tensorflow_connects_are_named(monkeypatch):
    never = threading.Event()
    monkeypatch.setattr(module, "await_tasks", lambda spec, timeout_s: None)
    monkeypatch.setattr(module._tf, "chief_address", lambda: None)
    monkeypatch.setattr(module._tf, "connect", lambda spec, protocol: never.wait(20))
    with greeting() as port, listening() as hung:
        spec = {"chief": [free_address()], "worker": [f"127.0.0.1:{port}"], "ps": [f"127.0.0.1:{hung}"]}
        says = f"did not connect to all tasks within 0.3 s; no answer any more from: ps 0 at 127.0.0.1:{hung}"
        with pytest.raises(ClusterError, match=says):
            SlimDPStrategy(PartialCluster(spec), timeout_s=0.3)
        spec["ps"] = spec["worker"]
        spec["worker"] = [f"localhost:{port}"]
        with pytest.raises(ClusterError, match=f"all answer: worker 0 at localhost:{port}, ps 0 at 127.0.0.1:{port}"):
            SlimDPStrategy(PartialCluster(spec), timeout_s=0.3)
    never.set()


@pytest.mark.parametrize("job", ["worker", "ps"])
def test_on_the_host_of_another_task_it_serves(monkeypatch, job):
    served = []

    def serve(*task, chief_timeout_s):
        served.append((*task, chief_timeout_s))
        raise SystemExit(0)

    monkeypatch.setattr(module, "serve", serve)
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": SPEC, "task": {"type": job, "index": 0}}))
    with pytest.raises(SystemExit):
        SlimDPStrategy(timeout_s=7.0)
    assert served == [(SPEC, job, 0, 7.0)]


@pytest.mark.cluster
def test_a_port_in_use_and_a_suspended_worker_are_named_and_when_they_are_mended_it_begins():
    program = [sys.executable, "-m", "tests.distribute.refused_program"]  # a process becomes a chief once
    done = subprocess.run(program, cwd=sources.ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    (in_use, at_once), (suspended, waited) = told["in_use"], told["suspended"]
    assert f"Port {told['port']} for the chief is in use on this host" in in_use and at_once < 5.0
    assert suspended.startswith(f"No answer within 2 s from: worker 0 at {told['worker']}. ") and 2.0 <= waited < 12.0
    assert told["workers"] == 1


# -- on a cluster -----------------------------------------------------------------------------------------------------


@pytest.mark.cluster
def test_says_what_it_is_made_of():
    strategy = make_strategy(workers=3, ps=2, seed=5)
    assert isinstance(strategy, tf.distribute.ParameterServerStrategy)
    assert (strategy.workers, strategy.ps, strategy.seed) == (3, 2, 5)
    assert strategy.method == methods.plump()
    assert strategy.records == []
    assert strategy.traffic == slimdp_tf.measure.record.Traffic(ps_bytes=(0, 0))


@pytest.mark.cluster
def test_counts_and_tells_of_every_round(trained):
    strategy, heard, _, _ = trained
    assert heard == strategy.records
    assert [(record.round, record.steps, record.workers) for record in heard] == [(0, 1, 2), (1, 3, 2), (2, 5, 2)] or [
        (record.round, record.steps, record.workers) for record in heard
    ] == [(0, 2, 2), (1, 4, 2), (2, 6, 2)]
    traffic = strategy.traffic
    assert traffic.push_bytes == 3 * 2 * 6 * 4
    assert sum(traffic.ps_bytes) == traffic.exchange_bytes
    assert len(set(traffic.ps_bytes)) == 1  # three servers, two entries each


@pytest.mark.cluster
def test_on_the_chief_it_runs_once_and_here(trained):
    strategy, calls = trained[0], []
    with strategy.on_chief():
        assert strategy.run(lambda x: calls.append(x) or 7, (3,)) == 7
    assert calls == [3]
    assert not strategy._is_on_chief


@pytest.mark.cluster
def test_a_strategy_goes_with_its_model_and_its_functions():
    """Programs make many in one process; every change of the cluster tells the tasks of all functions that are left."""
    held, functions = [], []
    for _ in range(2):
        strategy = make_strategy()
        with strategy.scope():
            model = keras.Sequential([keras.layers.Dense(2)])
            model.compile(keras.optimizers.SGD(0.1), "mse")
        model.fit(np.ones((32, 3), np.float32), np.ones((32, 2), np.float32), batch_size=4, verbose=0)
        held += [weakref.ref(kept) for kept in (strategy, model, strategy.rounds, strategy.rounds.workers)]
        del strategy, model
        gc.collect()
        _tf.let_go()
        functions.append(len(context.context().list_function_names()))
    assert [kept() for kept in held] == [None] * len(held)
    assert functions[0] == functions[1]


@pytest.mark.cluster
def test_a_process_is_the_chief_of_one_address_only():
    spec = {**shared_cluster().part(1, 1)._spec, "chief": [free_address()]}
    make_strategy(workers=1, ps=1)
    with pytest.raises(ValueError, match="This process is a chief at"):
        SlimDPStrategy(PartialCluster(spec))
