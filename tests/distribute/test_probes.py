"""Tasks are asked whether they are there, all at once, and the wait ends."""

import threading
import time

from slimdp_tf.distribute import _tf
from slimdp_tf.distribute.probes import are_others, are_there


def test_says_who_answers_in_time(monkeypatch):
    gate = threading.Event()
    monkeypatch.setattr(_tf, "is_alive", lambda device: gate.wait(20) if device == "silent" else device == "there")
    started = time.monotonic()
    assert are_there(["there", "another process", "silent"], 0.2) == [True, False, False]
    assert time.monotonic() - started < 5.0
    gate.set()


def test_an_error_is_no_answer(monkeypatch):
    monkeypatch.setattr(_tf, "is_alive", lambda device: 1 / 0)
    assert are_there(["there"]) == [False]


def test_says_who_answers_as_another_process(monkeypatch):
    monkeypatch.setattr(_tf, "is_another", lambda device: device == "another process")
    assert are_others(["there", "another process"]) == [False, True]
