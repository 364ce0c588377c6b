"""Calls that may hang: every wait for them ends and says what was waited for."""

import contextlib
import gc
import threading
import time
import weakref

import pytest
import tensorflow as tf

from slimdp_tf.distribute.calls import (
    Call,
    CallThread,
    ClusterError,
    brief,
    call_within,
    constant_here,
    fetch_here,
)


@pytest.fixture
def gate():
    """An event that a call waits for; it is set at the end, so that no thread stays behind."""
    event = threading.Event()
    yield event
    event.set()


def fail(error: BaseException):
    raise error


# -- a call -----------------------------------------------------------------------------------------------------------


def test_a_call_keeps_its_result():
    call = Call(lambda: 7)
    assert not call.ends_within(0.0)
    call.run()
    assert call.ends_within(0.0)
    assert (call.result, call.error) == (7, None)


def test_a_call_keeps_its_error():
    error = KeyError("x")
    call = Call(lambda: fail(error))
    call.run()
    assert call.ends_within(0.0)
    assert (call.result, call.error) == (None, error)


def test_a_negative_wait_is_no_wait(gate):
    call = CallThread("waits").submit(gate.wait)
    started = time.monotonic()
    assert not call.ends_within(-5.0)
    assert time.monotonic() - started < 1.0


# -- a thread ---------------------------------------------------------------------------------------------------------


def test_a_thread_runs_calls_one_after_another_within_its_context():
    entered, seen = [], []

    @contextlib.contextmanager
    def around():
        entered.append(threading.current_thread().name)
        yield

    thread = CallThread("this one", around)
    calls = [thread.submit(lambda i=i: seen.append(i)) for i in range(5)]
    assert all(call.ends_within(5.0) for call in calls)
    assert seen == [0, 1, 2, 3, 4]
    assert entered == ["this one"] * 5


def test_a_thread_survives_an_error():
    thread = CallThread("survives")
    assert thread.submit(lambda: fail(SystemExit())).ends_within(5.0)
    after = thread.submit(lambda: 3)
    assert after.ends_within(5.0) and after.result == 3


def test_a_thread_holds_nothing_of_calls_that_ended():
    class Thing:
        pass

    thread, thing = CallThread("lets go"), Thing()
    thread.submit(lambda thing=thing: thing).ends_within(5.0)
    gone = weakref.ref(thing)
    del thing
    thread.submit(lambda: None).ends_within(5.0)
    gc.collect()
    assert gone() is None


def test_a_thread_ends_with_its_object_after_what_is_queued(gate):
    thread, ended = CallThread("goes"), []
    threads = [thread for thread in threading.enumerate() if thread.name == "goes"]
    calls = [thread.submit(gate.wait), thread.submit(lambda: ended.append(True))]
    del thread
    gate.set()
    assert all(call.ends_within(5.0) for call in calls)
    threads[0].join(5.0)
    assert (ended, threads[0].is_alive()) == ([True], False)


def test_call_within_returns_raises_and_complains(gate):
    assert call_within(lambda: 7, 5.0, "too slow") == 7
    with pytest.raises(KeyError):
        call_within(lambda: fail(KeyError()), 5.0, "too slow")
    with pytest.raises(ClusterError, match="too slow"):
        call_within(gate.wait, 0.1, "too slow")
    with pytest.raises(ClusterError, match="looked, too slow"):
        call_within(gate.wait, 0.1, lambda: "looked, too slow")


# -- constants and messages --------------------------------------------------------------------------------------------


def test_constants_and_fetched_tensors_are_here_whatever_the_device():
    with tf.device("/device:CPU:0"):
        constant = constant_here(7, tf.int64)
        fetched = fetch_here(tf.constant([1, 2]))
    assert constant.device == fetched.device == tf.zeros([]).device
    assert (constant.dtype, constant.numpy(), fetched.numpy().tolist()) == (tf.int64, 7, [1, 2])


def test_says_the_first_line_of_an_error():
    assert brief(ValueError("first\nsecond")) == "first"
    assert brief(ValueError("\n  first\nsecond")) == "first"
    assert brief(KeyError()) == "KeyError"
    assert len(brief(ValueError("x" * 1000))) == 200
