"""The bench from the check to the results, on the loopback device and with a contender that needs nothing."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from slimdp_tf.bench import probe
from slimdp_tf.bench.run import describe_machine, make_name, measure_busy
from slimdp_tf.bench.setting import Program
from tests import sources
from tests.bench.small_bench import OWN, make_bench
from tests.bench.test_network import await_end, list_namespaces_of, permitted

__all__ = ["permitted"]


@pytest.fixture(autouse=True)
def few_bytes(monkeypatch):
    monkeypatch.setattr(probe, "_UNSHAPED_BYTES", 5_000_000)


@pytest.mark.slow
def test_results_of_all_even_when_one_fails(tmp_path):
    bench = make_bench(tmp_path, own=[f"good={OWN}", f"bad={OWN}", f"last={OWN}"])
    good, bad, last = bench.contenders
    bad = dataclasses.replace(bad, launch=lambda setting: good.launch.func(setting, mistake="ends"))
    bench = dataclasses.replace(bench, contenders=[good, bad, last])
    bench.check()
    results = list(bench.run())
    assert [result.label for result in results] == ["good", "bad", "last"]
    assert [result.has_failed for result in results] == [False, True, False]
    assert "no such device" in results[1].outcome
    result = results[0]
    assert (result.outcome, result.rate, result.is_outside, len(result.marks)) == ("epochs", "unshaped", True, 2)
    assert len(result.network["mbit_s"]) == 2 and min(result.network["mbit_s"]) > 0
    assert 0 <= result.network["busy"] <= 1
    left = {path.suffix for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {".log"}  # weights are not kept


@pytest.mark.parametrize(
    ("programs", "message"),
    [
        ([Program("worker0", ["a"])], "Received: 0 reporting"),
        ([Program("worker0", ["a"], is_reporting=True)] * 2, "Received: 2 reporting"),
        ([Program("worker9", ["a"], is_reporting=True)], "unknown hosts: worker9"),
    ],
)
def test_contenders_are_checked_before_anything_runs(tmp_path, programs, message):
    bench = make_bench(tmp_path)
    contender = dataclasses.replace(bench.contenders[0], launch=lambda setting: programs)
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(bench, contenders=[contender]).check()


def test_missing_torch_is_found_by_the_check(tmp_path):
    bench = dataclasses.replace(make_bench(tmp_path, "torch_ddp", ()), torch_python=sys.executable)
    if subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode:
        with pytest.raises(ImportError, match="needs PyTorch"):
            bench.check()


def test_facts_about_the_machine():
    assert 0 <= measure_busy(0.05) <= 1
    assert {"processor", "cores", "memory_gb", "kernel"} == set(describe_machine())
    assert make_name("slim(alpha=0.1)") == "slim-alpha-0.1" and make_name("()") == "contender"


def start_program(folder, *flags):
    """tools/bench_network on two workers, one ps and 100 Mbit/s."""
    small = ["--rates=100mbit", "--workers=2", "--ps=1", "--every=8", f"--workdir={folder}"]
    command = [sys.executable, "-m", "slimdp_tf.cli.bench_network", *small, *flags]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=sources.ROOT, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}, **pipes)


@pytest.mark.cluster
def test_a_small_network_from_end_to_end(permitted, tmp_path):
    contenders = "plump(p=4), slim=slim(alpha=0.1, beta=0.05, p=4, memory='carry', average='contributors'), tf_ps"
    program = start_program(tmp_path, "--epochs=0.015", f"--contenders={contenders}", "--baseline=plump(p=4)")
    namespaces = await_hosts(program, tmp_path / "logs" / "100mbit-plump-p-4" / "chief-3.log")
    output, errors = program.communicate(timeout=280)
    assert program.returncode == 0, output + errors
    assert output.count("86 % NOT REACHED") == 6  # while it runs, and in the table
    content = json.loads((tmp_path / "results.json").read_text())
    dense, slim, outside = content["runs"]
    speeds = dense["network"]["mbit_s"]
    assert all(75 < speed < 100 for speed in speeds), speeds
    assert [mark["steps"] for mark in slim["marks"]] == [8, 16]
    sent = [run["marks"][-1]["sent_bytes"] for run in (dense, slim, outside)]
    rounds, whole = 4, 2 * 2 * 4 * 269_322  # push and pull of all weights by both workers
    assert rounds * whole < sent[0] < 1.3 * rounds * whole
    assert sent[1] < 0.6 * sent[0]
    assert 16 * whole < sent[2] < 1.3 * 16 * whole  # it exchanges in every step
    assert dense["marks"][-1]["seconds"] > 0.8 * rounds * whole / 2 * 8 / 100e6  # the server's link is full
    for run in (dense, slim):
        assert 0 < run["marks"][-1]["compute_s"] < run["marks"][-1]["seconds"]
    names = {path.name for path in tmp_path.iterdir()}
    assert {"table.txt", "table.md", "table.csv", "100mbit-time_split.png", "100mbit-accuracy_by_mb.pdf"} <= names
    assert await_end(namespaces)


def await_hosts(program, log):
    """The network namespaces of a program that has started a contender's chief."""
    give_up = time.monotonic() + 120
    while not log.exists() and program.poll() is None and time.monotonic() < give_up:
        time.sleep(0.1)
    namespaces = list_namespaces_of(program.pid)
    assert len(namespaces) == 1 + 4  # the bridge, and a host for each task
    return namespaces


@pytest.mark.cluster
def test_a_kill_leaves_nothing(permitted, tmp_path):
    program = start_program(tmp_path, "--contenders=plump")
    namespaces = await_hosts(program, tmp_path / "logs" / "100mbit-plump" / "chief-3.log")
    program.send_signal(signal.SIGKILL)
    program.communicate()
    assert await_end(namespaces)  # and with them the programs that stood in them
