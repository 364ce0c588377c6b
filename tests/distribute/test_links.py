"""Links that are cut for 10 s, slowed down to a hundredth and cut for good, all in one run.

Whatever happens ends in a run that goes on or in an error that names who is away, within its deadline.
"""

import collections
import contextlib
import json
import pathlib
import time

import pytest

from slimdp_tf.bench.network import Network
from slimdp_tf.bench.rates import read_rate
from slimdp_tf.bench.setting import Setting
from tests.distribute.link_program import CLUSTER_DEADLINE_S, WORKERS

pytestmark = [pytest.mark.cluster, pytest.mark.alone]  # deadlines of 6 s, within which a worker must trace anew

RATE, HUNDREDTH = read_rate("100mbit"), read_rate("1mbit")
CUT_S, SLOW_S = 10.0, 30.0
PATIENCE_S = 45.0  # for what is to happen after a fault

Fault = collections.namedtuple("Fault", ["begun", "ended", "recovered"])


class Run:
    """A cluster on a network of its own, and what its chief has written."""

    def __init__(self, network: Network, folder: pathlib.Path):
        self.network, self.folder = network, folder
        setting = Setting(WORKERS, 2)
        setting = Setting(WORKERS, 2, {host: network.address(host) for host in setting.hosts})
        self.tasks = {}
        for job, hosts in (("worker", setting.worker_hosts), ("ps", setting.ps_hosts), ("chief", ["chief"])):
            for index, host in enumerate(hosts):
                config = json.dumps({"cluster": setting.cluster, "task": {"type": job, "index": index}})
                command = setting.run_module("tests.distribute.link_program", str(folder))
                with open(folder / f"{host}.log", "w") as log:
                    environment = {"TF_CONFIG": config}
                    self.tasks[host] = network.start(host, command, environment, stdout=log, stderr=log)

    def read(self, kind: str) -> list[dict]:
        """The lines of a kind: "round", "loss" or "error"."""
        path = self.folder / "seen.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [line for line in map(json.loads, (one for one in lines if one.endswith("\n"))) if kind in line]

    def await_rounds(self, rounds: int, workers: int, patience_s: float = PATIENCE_S) -> float:
        """Waits for so many more rounds of so many workers each; the moment of the first of them."""
        begun = time.monotonic()
        while True:
            seen = [line["at"] for line in self.read("round") if line["at"] > begun and line["workers"] == workers]
            if len(seen) >= rounds:
                return seen[0]
            log = (self.folder / "chief.log").read_text(errors="replace")[-3000:]
            assert self.tasks["chief"].poll() is None, f"the chief has ended: {self.read('error')}\n{log}"
            assert time.monotonic() < begun + patience_s, f"only {len(seen)} rounds of {workers} workers:\n{log}"
            time.sleep(0.1)

    def cut(self, host: str) -> Fault:
        """Cuts a link for a while, and waits until all workers train again."""
        begun = time.monotonic()
        self.network.set_link(host, False)
        time.sleep(CUT_S)
        self.network.set_link(host, True)
        return Fault(begun, time.monotonic(), self.await_rounds(5, WORKERS))

    def slow_down(self) -> Fault:
        """Slows every link down for a while, and waits until all workers train again."""
        begun = time.monotonic()
        self.network.set_rate(HUNDREDTH)
        time.sleep(SLOW_S)
        self.network.set_rate(RATE)
        return Fault(begun, time.monotonic(), self.await_rounds(5, WORKERS))

    def lose(self, host: str, workers: int) -> Fault:
        """Cuts a link for good, and waits until those that are left train, or for the end if none can."""
        begun = time.monotonic()
        self.network.set_link(host, False)
        if workers:
            return Fault(begun, begun, self.await_rounds(30, workers))
        self.tasks["chief"].wait(timeout=CLUSTER_DEADLINE_S + PATIENCE_S)
        return Fault(begun, begun, time.monotonic())


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The run after all faults, with `faults`: name -> Fault."""
    folder = tmp_path_factory.mktemp("links")
    with contextlib.ExitStack() as stack:
        try:
            network = stack.enter_context(Network(Setting(WORKERS, 2).hosts, RATE))
        except OSError as error:
            pytest.skip(f"links cannot be cut: network namespaces are not permitted here ({error})")
        run = Run(network, folder)
        run.await_rounds(10, WORKERS, patience_s=100.0)
        run.faults = {"worker cut": run.cut("worker1")}
        run.faults["ps cut"] = run.cut("ps1")
        run.faults["slow"] = run.slow_down()
        run.faults["worker lost"] = run.lose("worker2", workers=2)
        run.faults["ps lost"] = run.lose("ps1", workers=0)
        run.code = run.tasks["chief"].returncode
        for name, fault in run.faults.items():
            print(f"{name}: {fault.ended - fault.begun:.1f} s, then {fault.recovered - fault.ended:.1f} s")
        yield run


def rounds_between(run: Run, begun: float, ended: float) -> list[int]:
    """How many workers took part in each round of a time."""
    return [line["workers"] for line in run.read("round") if begun < line["at"] < ended]


def test_a_worker_whose_link_is_cut_for_10_s_is_left_out_and_comes_back(run):
    fault = run.faults["worker cut"]
    assert 2 in rounds_between(run, fault.begun, fault.ended)
    assert fault.recovered - fault.ended < 30.0


def test_a_ps_whose_link_is_cut_for_10_s_is_waited_for_and_nothing_is_lost(run):
    fault = run.faults["ps cut"]
    assert len(rounds_between(run, fault.begun + 1.0, fault.ended)) == 0
    assert fault.recovered - fault.ended < 15.0
    assert {line["lost"] for line in run.read("loss")} == {0}


def test_a_hundredth_of_the_rate_slows_a_run_down_and_no_more(run):
    fault, cut = run.faults["slow"], run.faults["ps cut"]
    seen = rounds_between(run, fault.begun + 5.0, fault.ended)
    assert len(seen) >= 5 and set(seen) == {WORKERS}
    before = rounds_between(run, cut.recovered, fault.begun)
    assert len(seen) / (SLOW_S - 5.0) < 0.5 * len(before) / (fault.begun - cut.recovered)


def test_without_a_worker_whose_link_is_cut_for_good_the_others_go_on(run):
    fault, end = run.faults["worker lost"], run.faults["ps lost"]
    assert fault.recovered - fault.begun < 20.0
    assert set(rounds_between(run, fault.recovered, end.begun)) == {2}


def test_a_ps_whose_link_is_cut_for_good_is_named_within_the_deadline(run):
    fault, (line,) = run.faults["ps lost"], run.read("error")
    print(f"ps lost: the error after {line['at'] - fault.begun:.1f} s")
    assert f"ps 1 at {run.network.address('ps1')}" in line["error"]
    assert "To resume, start the cluster and the same program again" in line["error"]
    assert line["at"] - fault.begun < CLUSTER_DEADLINE_S + 2.0
    assert run.code == 3 and fault.recovered - line["at"] < 20.0  # the program ends although two hosts are away


def test_the_loss_falls_all_along_and_weights_stay_finite(run):
    epochs = run.read("loss")
    assert all(line["is_finite"] for line in epochs)
    moments = [run.faults[name].recovered for name in ("worker cut", "ps cut", "slow")]
    later = [[line["loss"] for line in epochs if line["at"] > moment][0] for moment in moments]
    losses = [epochs[0]["loss"], *later]
    assert losses == sorted(losses, reverse=True) and losses[-1] < 0.5 * losses[0]
