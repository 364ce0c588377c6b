"""Calls to the servers: bounded, and those that do not answer are named."""

import threading
import time

import pytest
import tensorflow as tf

from slimdp_tf.distribute import _tf, servers
from slimdp_tf.distribute.calls import ClusterError
from slimdp_tf.distribute.servers import ServerLost, Servers

NAMES = ["ps 0 at a:1", "ps 1 at b:1"]


@pytest.fixture
def gate():
    """An event that a call waits for; it is set at the end, so that no thread stays behind."""
    event = threading.Event()
    yield event
    event.set()


def make_servers(deadline_s: float = 5.0) -> Servers:
    return Servers(["/job:ps/task:0", "/job:ps/task:1"], NAMES, deadline_s)


def fail(error: BaseException):
    raise error


def test_servers_are_called():
    assert make_servers().call(lambda: 7, "for nothing") == 7
    with pytest.raises(KeyError):
        make_servers().call(lambda: fail(KeyError()), "for nothing")


def test_a_server_that_does_not_answer_is_named(monkeypatch, gate):
    monkeypatch.setattr(_tf, "is_alive", lambda device: "task:0" in device)
    with pytest.raises(ClusterError, match="No answer within 0.1 s from ps 1 at b:1, while round 3 was merged"):
        make_servers(0.1).call(gate.wait, "while round 3 was merged")


def test_a_call_may_have_a_deadline_of_its_own(monkeypatch, gate):
    monkeypatch.setattr(_tf, "is_alive", lambda device: True)
    with pytest.raises(ClusterError, match="within 0.1 s from one of ps 0 at a:1, ps 1 at b:1, now"):
        make_servers(60.0).call(gate.wait, "now", seconds=0.1)


@pytest.mark.parametrize("kind", [tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError])
def test_a_server_that_is_gone_is_named(monkeypatch, kind):
    monkeypatch.setattr(_tf, "is_alive", lambda device: "task:1" in device)
    with pytest.raises(ClusterError, match="Lost ps 0 at a:1, now: connection reset") as raised:
        make_servers().call(lambda: fail(kind(None, None, "connection reset\nand more")), "now")
    assert isinstance(raised.value.__cause__, kind)


def test_servers_are_asked_whether_they_answer(monkeypatch):
    monkeypatch.setattr(_tf, "is_alive", lambda device: True)
    make_servers().check("in round 3")
    monkeypatch.setattr(_tf, "is_alive", lambda device: "task:0" in device)
    with pytest.raises(ClusterError, match="No answer from ps 1 at b:1, in round 3"):
        make_servers().check("in round 3")


# -- long waits -------------------------------------------------------------------------------------------------------


def test_a_server_is_named_long_before_the_deadline(monkeypatch, gate, caplog):
    monkeypatch.setattr(servers, "WATCH_S", 0.05)
    monkeypatch.setattr(_tf, "is_alive", lambda device: "task:0" in device)
    with pytest.raises(ServerLost, match="within 0.3 s from ps 1 at b:1"):
        make_servers(0.3).call(gate.wait, "in round 2")
    assert caplog.text.count("No answer from ps 1 at b:1, in round 2; waiting for it.") == 1


def test_a_long_wait_goes_on_while_the_servers_answer(monkeypatch, caplog):
    monkeypatch.setattr(servers, "WATCH_S", 0.02)
    monkeypatch.setattr(_tf, "is_alive", lambda device: True)
    assert make_servers().call(lambda: threading.Event().wait(0.2), "in round 2") is False
    assert caplog.text == ""


def test_watching_ends_when_a_server_has_been_silent_for_too_long(monkeypatch):
    monkeypatch.setattr(_tf, "is_alive", lambda device: False)
    silent = make_servers(0.3)
    assert silent.watch("in round 2")
    with pytest.raises(ServerLost, match="No answer within 0.3 s from ps 0 at a:1, ps 1 at b:1, in round 2"):
        for _ in range(100):
            time.sleep(0.01)
            silent.watch("in round 2")


def test_watching_ends_when_a_server_was_started_anew(monkeypatch):
    """What was asked of the one before may never be answered."""
    monkeypatch.setattr(_tf, "is_alive", lambda device: "task:0" in device)
    monkeypatch.setattr(_tf, "is_another", lambda device: "task:1" in device)
    with pytest.raises(ServerLost, match="^ps 1 at b:1 was started anew, in round 2.$") as lost:
        make_servers(60.0).watch("in round 2")
    assert time.monotonic() - lost.value.since < 10.0  # it has all of its time to come back


def test_asking_who_was_started_anew_does_not_put_the_deadline_off(monkeypatch, gate):
    monkeypatch.setattr(servers, "WATCH_S", 0.05)
    monkeypatch.setattr(_tf, "is_alive", lambda device: gate.wait())
    monkeypatch.setattr(_tf, "is_another", lambda device: gate.wait())
    started = time.monotonic()
    with pytest.raises(ServerLost, match="within 1 s from ps 0 at a:1, ps 1 at b:1"):
        make_servers(1.0).call(gate.wait, "in round 2")
    assert time.monotonic() - started < 1.0 + servers._LAST_LOOK_S + 1.0


def test_waits_until_all_are_back_and_connects_again(monkeypatch):
    alive, connected = [False], []

    def connect(missing):
        connected.append(missing)
        alive[0] = True

    monkeypatch.setattr(_tf, "is_alive", lambda device: alive[0])
    monkeypatch.setattr(_tf, "address_of", lambda device: f"there:{device[-1]}")
    monkeypatch.setattr(_tf, "update_cluster", connect)
    monkeypatch.setattr(servers, "answers", lambda address: address != "there:7")
    make_servers().await_return(["/job:worker/task:7"], time.monotonic())
    assert connected == [frozenset(["there:7"])]  # the worker is not waited for


def test_a_server_that_stays_away_is_named(monkeypatch):
    monkeypatch.setattr(_tf, "is_alive", lambda device: "task:0" in device)
    monkeypatch.setattr(_tf, "address_of", lambda device: f"there:{device[-1]}")
    monkeypatch.setattr(servers, "answers", lambda address: False)
    monkeypatch.setattr(_tf, "update_cluster", lambda missing: None)
    with pytest.raises(ClusterError, match="^ps 1 at b:1 did not come back within 0.1 s"):
        make_servers(0.1).await_return([], time.monotonic())


def test_silence_before_counts_and_connecting_again_is_bounded(monkeypatch, gate):
    monkeypatch.setattr(_tf, "is_alive", lambda device: False)
    monkeypatch.setattr(_tf, "address_of", lambda device: f"there:{device[-1]}")
    monkeypatch.setattr(servers, "answers", lambda address: True)
    monkeypatch.setattr(servers, "PATIENCE_S", 0.2)
    monkeypatch.setattr(_tf, "update_cluster", lambda missing: gate.wait())  # a task falls silent meanwhile
    started = time.monotonic()
    for since in (started - 5.0, started):
        with pytest.raises(ClusterError, match="^ps 0 at a:1, ps 1 at b:1 did not come back within 1 s"):
            make_servers(1.0).await_return([], since)
        assert time.monotonic() - started < (0.5 if since < started else 3.0)
