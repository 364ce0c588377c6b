"""Merges one by one: what is late, refused or due is told from what a merge says."""

from __future__ import annotations

import types

import pytest
import tensorflow as tf

from slimdp_tf import methods
from slimdp_tf.distribute import merging as mergings
from slimdp_tf.distribute.lanes import Lane, Task, Turn
from slimdp_tf.distribute.local_variable import worker_here
from slimdp_tf.distribute.merging import Merging
from slimdp_tf.inspection import MERGED, NOT_FINITE, WRONG_SIGNATURE


class Functions:
    """Merges that say what they are told to, and keep what they were called with."""

    def __init__(self):
        self.verdict, self.calls, self.versions = MERGED, [], []

    def merge_one(self, whole: bool):
        def merge(number, worker, others):
            self.calls.append((int(number), int(worker), worker_here(), others.numpy().tolist(), whole))
            return tf.constant([self.verdict, 7])

        return merge

    def faults(self, verdict: int, number: int, worker: int, whole: bool) -> list[str]:
        return [f"block 3: round {number} of {worker} is wrong."]

    def refresh(self):
        return lambda version: self.versions.append(int(version))


@pytest.fixture
def merging():
    workers = types.SimpleNamespace(live={0, 1, 2}, names=[f"worker {w} at h:{w}" for w in range(3)])
    made = Merging(methods.slim(q=2, pacing="async"), workers, [Lane() for _ in range(3)], set())
    made.functions = Functions()
    return made


def turn(number: int = 0, push: str = "chosen", ticket: int = 0) -> Turn:
    return Turn(Task(None, {}, None, [], True), ticket, number, None, push, 1)


def test_merges_for_the_worker_as_one_of_those_that_are_live(merging):
    merging.workers.live.discard(2)
    merging.merge(turn(4), 1)
    assert merging.functions.calls == [(4, 1, 1, [True, False, False], False)]
    assert merging.order == [1] and merging._lanes[1].has_answer


def test_staleness_is_the_merges_since_its_own(merging):
    for worker in (0, 1, 0, 2):
        merging.merge(turn(), worker)
    assert merging.take_figures() == (7, 0, {"staleness_mean": (0 + 1 + 1 + 3) / 4, "staleness_max": 3, "late": 0})
    assert merging.take_figures() == (7, 0, {"staleness_mean": 0.0, "staleness_max": 0, "late": 0})


def test_the_order_of_the_last_merges_is_kept_and_all_are_counted(merging, monkeypatch):
    monkeypatch.setattr(mergings, "_KEPT", 2)
    for worker in (0, 1, 0, 2):
        merging.merge(turn(), worker)
    assert (merging.merges, merging.order) == (4, [0, 2])
    assert merging.take_figures()[2]["staleness_max"] == 3


def test_the_core_is_due_when_every_live_worker_has_delivered_a_whole_update(merging):
    for worker in (0, 0, 1):
        merging.merge(turn(push="whole"), worker)
    assert merging.functions.versions == []
    merging.merge(turn(), 2)
    merging.workers.live.discard(2)
    merging.merge(turn(), 0)
    assert merging.functions.versions == [1]
    merging.begin_anew(merging.functions)
    merging.merge(turn(push="whole"), 0), merging.merge(turn(push="whole"), 1)
    assert merging.functions.versions == [1, 1]


def test_what_was_refused_pulls_everything_and_what_is_not_finite_is_held(merging, monkeypatch, caplog):
    monkeypatch.setattr(tf.get_logger(), "propagate", True)
    merging.functions.verdict = WRONG_SIGNATURE
    merging.merge(turn(), 0)
    merging.functions.verdict = NOT_FINITE
    merging.merge(turn(), 1)
    assert (merging.needs_everything, merging.not_finite, merging.order) == ({0, 1}, {1}, [])
    assert [lane.is_held for lane in merging._lanes] == [False, True, False]
    assert merging.take_figures()[1] == 2
    (warning,) = caplog.messages
    assert warning.startswith("worker 0 at h:0: the servers refused its push of round 0; it did not touch")
    assert warning.endswith("block 3: round 0 of 0 is wrong.")


def test_a_push_of_a_lost_worker_is_late_and_one_from_before_it_came_back_is_given_up(merging):
    lane = merging._lanes[1]
    lane.forsake()
    merging.merge(turn(ticket=0), 1)
    assert merging.order == [1] and not lane.has_answer
    lane.welcome(None, 1)
    merging.merge(turn(ticket=0), 1)
    assert merging.order == [1]
    assert merging.take_figures()[2]["late"] == 1
