"""What a cluster may consist of, the own task, and waits that end."""

import json
import time

import pytest
import tensorflow as tf

from slimdp_tf import ClusterError
from slimdp_tf.distribute import spec
from tests.distribute.ports import free_address, greeting, listening

SPEC = {"chief": ["a:1"], "worker": ["b:1", "b:2"], "ps": ["c:1"]}


# -- the specification ------------------------------------------------------------------------------------------------


def test_a_good_specification_is_returned():
    assert spec.check_spec(SPEC) == SPEC


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"worker": []}, "Missing: worker"),
        ({"worker": None}, "Missing: worker"),
        ({"ps": []}, "Missing: ps"),
        ({"chief": []}, "Missing: chief"),
        ({"chief": ["a:1", "a:2"]}, "has one chief. Received: a:1, a:2"),
        ({"evaluator": ["d:1"]}, "evaluator cannot be part of the cluster"),
        ({"master": ["d:1"]}, "Received also: master"),
        ({"ps": ["b:2"]}, "b:2 stands for two tasks: worker 1 and ps 0"),
        ({"worker": ["b:1", "b:1"]}, "b:1 stands for two tasks: worker 0 and worker 1"),
        ({"ps": ["a:1"]}, "a:1 stands for two tasks: chief 0 and ps 0"),
    ],
)
def test_a_bad_specification_is_refused_in_words(changes, says):
    given = {job: tasks for job, tasks in {**SPEC, **changes}.items() if tasks is not None}
    with pytest.raises(ValueError, match=says):
        spec.check_spec(given)


class Resolver(tf.distribute.cluster_resolver.SimpleClusterResolver):
    def __init__(self, given, job="chief", index=0):
        super().__init__(tf.train.ClusterSpec(given), task_type=job, task_id=index)


def test_resolves_the_own_task():
    assert spec.resolve(Resolver(SPEC, "worker", 1)) == (SPEC, "worker", 1)
    assert spec.resolve(Resolver(SPEC, "", None))[1:] == ("chief", 0)


def test_resolves_tasks_given_by_number():
    given = {**SPEC, "worker": {1: "b:2", 0: "b:1"}}
    assert spec.resolve(Resolver(given))[0] == SPEC


def test_resolves_tf_config(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": SPEC, "task": {"type": "ps", "index": 0}}))
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    assert spec.resolve(resolver) == (SPEC, "ps", 0)
    monkeypatch.setenv("TF_CONFIG", "{}")
    with pytest.raises(ValueError, match="No cluster: set TF_CONFIG"):
        spec.resolve(resolver)


def test_an_evaluator_is_refused():
    with pytest.raises(ValueError, match="This task is an evaluator"):
        spec.resolve(Resolver(SPEC, "evaluator"))


# -- waits ------------------------------------------------------------------------------------------------------------


def test_answers_where_something_listens():
    with listening() as port:
        assert spec.answers(f"127.0.0.1:{port}")
    assert not spec.answers(f"127.0.0.1:{port}")
    assert not spec.answers("127.0.0.1:none")
    assert not spec.answers("no such host:1")
    assert (spec.reach(f"127.0.0.1:{port}"), spec.reach("no such host:1")) == ("refuses", "silent")


def test_a_port_in_use_is_named():
    with listening("0.0.0.0") as port:
        with pytest.raises(ClusterError, match=f"Port {port} for worker 3 is in use"):
            spec.check_port_is_free(f"here:{port}", "worker 3")
    spec.check_port_is_free(f"here:{port}", "worker 3")


def test_waits_for_tasks_and_names_those_that_do_not_answer():
    missing = free_address()
    with greeting() as one, greeting() as other, listening() as hung:
        given = {"chief": ["x:1"], "worker": [f"127.0.0.1:{one}", missing], "ps": [f"127.0.0.1:{other}"]}
        given["ps"].append(f"127.0.0.1:{hung}")
        started = time.monotonic()
        with pytest.raises(
            ClusterError, match=f"within 0.5 s from: worker 1 at {missing}, ps 1 at 127.0.0.1:{hung}. Are they started"
        ):
            spec.await_tasks(given, 0.5)
        assert 0.5 <= time.monotonic() - started < 3.0
        for job in ("worker", "ps"):
            given[job].pop()
        spec.await_tasks(given, 0.5)


def test_names_tasks():
    assert spec.name_tasks(SPEC) == {"worker 0": "b:1", "worker 1": "b:2", "ps 0": "c:1"}
    assert spec.describe_tasks({"worker 0": "b:1", "ps 0": "c:1"}) == "worker 0 at b:1, ps 0 at c:1"
