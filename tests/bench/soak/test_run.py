"""A soak of a stand-in: faults follow one another, and what is wrong is said."""

import itertools
import json
import time
import types

import pytest

from slimdp_tf.bench.soak import run as runs
from slimdp_tf.bench.soak.faults import Fault
from slimdp_tf.bench.soak.run import Soak
from slimdp_tf.bench.soak.story import Story
from slimdp_tf.bench.soak.vitals import Sample


class StandIn:
    """A cluster of 2 workers that trains when it is looked at; a fault of "ps9" ends its training.

    Args:
        path: where its chief writes.
        memory: age in looks -> MB.
    """

    def __init__(self, path, memory=lambda look: 500.0):
        self.path, self.memory, self.samples, self.inflicted, self.dead = path, memory, [], [], []
        self.began, self.is_training, self.looks = time.monotonic(), True, itertools.count()
        self.chief = types.SimpleNamespace(wait=lambda timeout: 0)

    def start_all(self):
        self.write([{"round": n, "workers": 2} for n in range(30)])
        self.write([{"epoch": n, "loss": 2.0 - n, "is_finite": True, "lost": 4 * n} for n in range(2)])

    def write(self, lines):
        with open(self.path, "a") as file:
            file.writelines(json.dumps({"at": time.monotonic(), **line}) + "\n" for line in lines)

    def inflict(self, fault):
        self.inflicted.append(fault)
        self.write([{"round": 0, "workers": 1}])
        self.is_training = fault.task != "ps9"
        return time.monotonic()

    def find_dead(self):
        if self.is_training:
            self.write([{"round": 0, "workers": 2}])
        return self.dead

    def sample(self):
        look = next(self.looks)
        self.samples.append(Sample(look, "chief", 0, float(look), self.memory(look), 20, 30))


@pytest.fixture
def make(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "_RECOVER_S", 0.5)

    def make(seconds=1.5, **arguments):
        cast = StandIn(tmp_path / "chief.jsonl", **arguments)
        story, said = Story(tmp_path / "chief.jsonl"), []
        soak = Soak(cast, story, tmp_path / "stop", 2, seconds, 0.02, 5.0, said.append)
        return soak, cast, said

    return make


def faults(*tasks):
    return itertools.cycle([Fault("kill", task, 0.1, 0.1) for task in tasks])


@pytest.mark.slow
def test_tries_faults_until_the_time_is_over(make, tmp_path):
    soak, cast, said = make()
    outcome = soak.run(faults("worker1", "ps0"))
    assert outcome.complaints == [] and (tmp_path / "stop").exists()
    assert len(outcome.tried) == len(cast.inflicted) == len(said) >= 3
    assert all(one.recovered_s < 0.5 and one.missing >= 1 for one in outcome.tried)
    assert "kill of worker1 for 0.1 s: all train again after" in said[0]
    assert outcome.lost_rounds == 4 and outcome.rounds > 30
    assert outcome.growth[0].is_known


@pytest.mark.slow
def test_a_fault_without_recovery_ends_it(make):
    soak, _, _ = make()
    outcome = soak.run(faults("worker1", "ps9"))
    assert "Waited 0.5 s for a round of all workers after a kill of ps9." in outcome.complaints
    assert [one.recovered_s is None for one in outcome.tried] == [False, True]


@pytest.mark.slow
def test_a_task_that_dies_by_itself_ends_it(make):
    soak, cast, _ = make()
    cast.dead.append("chief ended with code 1: MemoryError")
    assert "chief ended with code 1: MemoryError" in soak.run(faults("worker1")).complaints


@pytest.mark.slow
def test_what_grew_and_what_was_not_learned_is_said(make):
    soak, cast, _ = make(memory=lambda look: 500.0 + 10 * look)
    cast.start_all = lambda: [
        cast.write([{"round": n, "workers": 2} for n in range(30)]),
        cast.write([{"epoch": n, "loss": 2.0, "is_finite": n == 0, "lost": 0} for n in range(2)]),
    ]
    grew, *others = reversed(soak.run(faults("worker1")).complaints)
    assert grew.startswith("chief (process 1) grew: memory ")
    assert others == ["Weights were not finite.", "The loss did not fall: 2.0000, in the end 2.0000."]
