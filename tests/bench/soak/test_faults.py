"""Faults are drawn from a seed, and only those that are asked for."""

import itertools

import pytest

from slimdp_tf.bench.soak.faults import KINDS, check_kinds, draw

TASKS = ["worker0", "worker1", "ps0", "ps1"]


def take(seed, kinds=KINDS, mortal=("worker1", "ps1")):
    return list(itertools.islice(draw(seed, kinds, TASKS, mortal), 200))


def test_the_seed_decides():
    assert take(3) == take(3) != take(4)


def test_every_kind_and_task_comes_and_only_mortals_are_killed():
    faults = take(0)
    assert {fault.kind for fault in faults} == set(KINDS)
    assert {fault.task for fault in faults if fault.kind == "kill"} == {"worker1", "ps1"}
    assert {fault.task for fault in faults if fault.kind != "kill"} == set(TASKS)
    assert {fault.kind for fault in take(0, ["stop"])} == {"stop"}
    assert all(fault.pause_s >= 5.0 and 1.0 <= fault.away_s <= 15.0 for fault in faults)


def test_kinds_are_checked():
    assert check_kinds(["cut", "kill", "cut"]) == ["kill", "cut"]
    for wrong in ([], ["kill", "melt"]):
        with pytest.raises(ValueError, match="faults must be some of kill, stop, cut"):
            check_kinds(wrong)
