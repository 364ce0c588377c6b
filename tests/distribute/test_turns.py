"""Rounds of single workers: how they catch up with one another, and what is left of those that count no more."""

import threading

import numpy as np
import pytest

from tests.distribute.one_process import Drill
from tests.distribute.test_arrivals import hold_back, make_drill, wait_for
from tests.distribute.test_rounds import FLAT, MOVES

pytestmark = pytest.mark.slow


def run_with_one_behind(ahead: int) -> tuple[Drill, threading.Event]:
    """Worker 0 has done three rounds of a call that asked for one; worker 1 waits in its first for the event."""
    drill = make_drill()
    may_go = hold_back(drill)
    drill.run(ahead=ahead)
    wait_for(lambda: len(drill.rounds.merging.order) == 3)
    return drill, may_go


def test_comes_to_rest_where_everybody_is_as_far_as_the_one_that_is_furthest():
    drill, may_go = run_with_one_behind(ahead=5)
    threading.Timer(0.3, may_go.set).start()
    drill.rounds.rest()
    assert sorted(drill.rounds.merging.order) == [0, 0, 0, 1, 1, 1]
    place = drill.rounds.tell_place()
    assert (place["round"], place["steps"], place["lead"]) == (3, 3, 2)
    assert (place["signal"]["round"], place["signal"]["steps"]) == (3, 3)
    assert [lane["number"] for lane in place["lanes"]] == [3, 3]
    np.testing.assert_allclose(drill.values(), FLAT - 3 * MOVES.mean(0), atol=1e-6)
    for left in reversed(range(5)):  # what they did before is what these calls are told of first
        drill.run(ahead=left)
    assert sorted(drill.rounds.merging.order) == [0] * 6 + [1] * 6
    assert (drill.rounds.round, drill.rounds.steps, drill.loss.numpy()) == (6, 6, 12)
    np.testing.assert_allclose(drill.values(), FLAT - 6 * MOVES.mean(0), atol=1e-5)
    bytes_pulled = sum(record.traffic.pull_bytes for record in drill.rounds.records)
    assert bytes_pulled == 2 * 6 * 4 * FLAT.size  # everything once, five answers; what resting pulled is counted


def test_a_round_that_counts_no_more_is_not_merged_whenever_it_ends():
    drill, may_go = run_with_one_behind(ahead=5)
    drill.rounds.abandon()
    may_go.set()
    drill.rounds.workers.call(lambda worker: None)  # what they were at has ended
    assert drill.rounds.merging.order == [0, 0, 0]
    assert drill.rounds.tell_place()["lead"] == 0
    drill.run()
    assert sorted(drill.rounds.merging.order) == [0, 0, 0, 0, 1]
