"""Records and listeners, on reports made by hand."""

import types

import numpy as np

from slimdp_tf.distribute import ledger as ledgers
from slimdp_tf.distribute.ledger import Ledger
from slimdp_tf.distribute.reports import Report


def make_ledger() -> Ledger:
    shared = {"weights": types.SimpleNamespace(blocks=[0, 1])}
    servers = types.SimpleNamespace(devices=["a", "b"])
    workers = types.SimpleNamespace(missed=0)
    return Ledger(types.SimpleNamespace(shared=shared, servers=servers, workers=workers, take_chief_bytes=lambda: 5))


def make_report(pushed: int) -> Report:
    moved = np.array([[pushed, 0, 2, 0], [0, 1, 0, 0]], float)
    return Report(np.array([0.1, 0.2, 0.3]), 2, 0.5, moved, np.zeros(3), 0.0, False, np.zeros(0), [])


def test_who_came_too_late_counts_with_the_next_round():
    ledger = make_ledger()
    ledger.note_late(make_report(100)), ledger.note_late(None)
    for number in range(2):
        ledger.add([make_report(10)], 0.0, 1.0, round=number, steps=2, core_entries=0, refused=0)
    first, second = (record.traffic for record in ledger.records)
    assert (first.push_bytes, first.pull_bytes, first.keys_bytes, first.chief_bytes) == (110, 4, 2, 5)
    assert (second.push_bytes, second.ps_bytes) == (10, (12, 1))


def test_listeners_hear_of_new_records_alone():
    ledger, heard = make_ledger(), []
    ledger.listeners.append(lambda record: heard.append(record.round))
    for number in range(3):
        ledger.add([make_report(1)], 0.0, 1.0, round=number, steps=2, core_entries=0, refused=0)
    ledger.tell(1)
    assert heard == [1, 2]


def test_who_was_given_up_is_missed_once():
    ledger = make_ledger()
    ledger.cache.workers.missed = 2
    for more in ({}, {"missed": 3}):
        ledger.add([make_report(1)], 0.0, 1.0, round=0, steps=2, core_entries=0, refused=0, **more)
    assert [record.missed for record in ledger.records] == [2, 3]


def test_the_last_records_are_kept_and_all_are_counted_and_told(monkeypatch):
    monkeypatch.setattr(ledgers, "KEPT", 3)
    ledger, heard = make_ledger(), []
    ledger.listeners.append(lambda record: heard.append(record.round))
    for number in range(5):
        known = ledger.count
        ledger.add([make_report(10)], 0.0, 1.0, round=number, steps=2, core_entries=0, refused=0)
        ledger.tell(known)
    assert [record.round for record in ledger.records] == [2, 3, 4]
    assert (ledger.count, heard) == (5, [0, 1, 2, 3, 4])
    assert (ledger.total.push_bytes, ledger.total.chief_bytes, ledger.total.ps_bytes) == (50, 25, (60, 5))
