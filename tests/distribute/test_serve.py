"""A process that serves: refused in words, ended with its chief."""

import time

import pytest

from slimdp_tf import ClusterError
from slimdp_tf.distribute import serve
from tests.distribute.ports import free_address, listening

SPEC = {"chief": ["a:1"], "worker": ["b:1", "b:2"], "ps": ["c:1"]}


@pytest.mark.parametrize(("job", "index"), [("chief", 0), ("worker", 2), ("worker", -1), ("evaluator", 0)])
def test_serves_only_tasks_of_the_cluster(job, index):
    with pytest.raises(ValueError, match="A task that serves is one of: worker 0..1, ps 0..0"):
        serve.start_server(SPEC, job, index, 0)


def test_does_not_serve_at_a_port_in_use():
    with listening("0.0.0.0") as port:
        spec = {**SPEC, "ps": [f"127.0.0.1:{port}"]}
        with pytest.raises(ClusterError, match=f"Port {port} for ps 0 is in use"):
            serve.serve(spec, "ps", 0)


def test_a_chief_that_never_appears_ends_the_wait(monkeypatch):
    monkeypatch.setattr(serve, "start_server", lambda *task: None)
    address = free_address()
    with pytest.raises(ClusterError, match=f"The chief at {address} did not appear within 0.2 s"):
        serve.serve({**SPEC, "chief": [address]}, "ps", 0, chief_timeout_s=0.2)


@pytest.mark.slow
def test_a_task_ends_when_the_chief_has_ended(monkeypatch):
    codes = []
    monkeypatch.setattr(serve, "start_server", lambda *task: None)
    monkeypatch.setattr(serve, "_end_process", codes.append)
    seen = iter(["silent", "answers", "answers", "refuses", "answers"])  # appears, is gone once, is back, is gone
    monkeypatch.setattr(serve, "reach", lambda address: next(seen, "refuses"))
    serve.serve(SPEC, "worker", 0, grace_s=1.2)
    assert codes == [0]
    assert next(seen, None) is None


@pytest.mark.slow
@pytest.mark.parametrize(("said", "least"), [("refuses", 0.5), ("silent", 1.5)])
def test_a_chief_that_is_only_silent_has_not_ended_yet(monkeypatch, said, least):
    monkeypatch.setattr(serve, "start_server", lambda *task: None)
    monkeypatch.setattr(serve, "_end_process", lambda code: None)
    monkeypatch.setattr(serve, "_LOOK_S", 0.05)
    seen = iter(["answers"])
    monkeypatch.setattr(serve, "reach", lambda address: next(seen, said))
    started = time.monotonic()
    serve.serve(SPEC, "worker", 0, grace_s=0.5, silence_s=1.5)
    assert least <= time.monotonic() - started < least + 0.7
