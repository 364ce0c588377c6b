"""Processes are started, killed, stopped and watched, each on a host of its own."""

import os
import threading
import time

import pytest

from slimdp_tf.bench.loopback import Loopback
from slimdp_tf.bench.rates import read_rate
from slimdp_tf.bench.setting import Setting
from slimdp_tf.bench.soak import cast as casts
from slimdp_tf.bench.soak.cast import Cast
from slimdp_tf.bench.soak.faults import Fault

SAY = "import os, time; print(os.environ['TF_CONFIG'], flush=True); time.sleep(600)"


@pytest.fixture
def cast(monkeypatch, tmp_path):
    monkeypatch.setattr(casts, "_SERVE", ("-c", SAY))
    setting = Setting(2, 1)
    with Loopback(setting.hosts, read_rate("unshaped")) as network:
        cast = Cast(network, setting, ("-c", "import time; time.sleep(600)"), tmp_path)
        cast.start_all()
        cast.pids = lambda: {host: network.find_pid(child) for host, child in cast._children.items()}
        yield cast


def await_text(path, count: int) -> list[str]:
    give_up = time.monotonic() + 20
    while len(lines := path.read_text().splitlines()) < count:
        assert time.monotonic() < give_up
        time.sleep(0.02)
    return lines


@pytest.mark.slow
def test_a_kill_starts_the_task_anew(cast, tmp_path):
    (first,) = await_text(tmp_path / "worker1.log", 1)
    assert '"task": {"type": "worker", "index": 1}' in first
    before = cast.pids()
    cast.sample()
    undone = cast.inflict(Fault("kill", "worker1", 0.0, 0.1))
    assert undone <= time.monotonic() and cast.find_dead() == []
    assert {host for host, pid in cast.pids().items() if pid != before[host]} == {"worker1"}
    assert await_text(tmp_path / "worker1.log", 2) == [first, first]
    cast.sample()
    lives = [(sample.task, sample.life) for sample in cast.samples]
    assert ("worker1", 0) in lives[:4] and ("worker1", 1) in lives[4:] and ("ps0", 0) in lives[4:]
    assert all(sample.rss_mb > 1 and sample.threads == 1 for sample in cast.samples)


@pytest.mark.slow
def test_a_stop_lasts_as_long_as_it_says(cast):
    pid = cast.pids()["ps0"]

    def read_state() -> str:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]

    thread = threading.Thread(target=cast.inflict, args=(Fault("stop", "ps0", 0.0, 1.0),))
    thread.start()
    time.sleep(0.5)
    assert read_state() == "T"
    thread.join()
    give_up = time.monotonic() + 5
    while read_state() == "T":
        assert time.monotonic() < give_up
        time.sleep(0.01)


@pytest.mark.slow
def test_who_has_ended_is_named(cast):
    os.kill(cast.pids()["ps0"], 9)
    cast._children["ps0"].wait(timeout=10)
    (dead,) = cast.find_dead()
    assert dead.startswith("ps0 ended with code -9: ")
    cast.sample()
    assert "ps0" not in [sample.task for sample in cast.samples]
