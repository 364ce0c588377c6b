"""Calls that may hang, in threads of their own, so that every wait for them ends and says what was waited for."""

from __future__ import annotations

import contextlib
import functools
import queue
import threading
import time
import weakref
from collections.abc import Callable

import tensorflow as tf

GONE = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError, tf.errors.DeadlineExceededError)
WATCH_S = 2.5  # seconds between two looks at the servers during a long wait


class ClusterError(RuntimeError):
    """A task of the cluster failed or did not answer; the message names it."""


class Call:
    """A function that runs in another thread, and what came of it."""

    def __init__(self, function: Callable[[], object]):
        self._function = function
        self._is_done = threading.Event()
        self.result: object = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Runs the function and keeps its result or its error."""
        try:
            self.result = self._function()
        except BaseException as error:  # handed to whoever waits, whatever it is
            self.error = error
        self._is_done.set()

    def ends_within(self, seconds: float) -> bool:
        """Waits for the end, for at most `seconds`."""
        return self._is_done.wait(max(0.0, seconds))


class CallThread:
    """A thread that runs one call after another, and ends with this object.

    Args:
        name: of the thread.
        around: makes a context in which each call runs; what it holds stays as long as the thread.
    """

    def __init__(self, name: str, around: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext):
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self.ended_at = time.monotonic()  # when its last call ended
        weakref.finalize(self, self._calls.put, None).atexit = False
        serve = functools.partial(_serve, self._calls, around, weakref.ref(self))
        threading.Thread(target=serve, daemon=True, name=name).start()

    def submit(self, function: Callable[[], object]) -> Call:
        """Queues a call of `function`."""
        call = Call(function)
        self._calls.put(call)
        return call

    def end(self) -> None:
        """Ends the thread after the calls that are queued."""
        self._calls.put(None)


def _serve(calls: queue.SimpleQueue, around: Callable, owner: Callable[[], CallThread | None]) -> None:
    """Runs what is queued. Held by a thread, it must not hold who queues: that could never go."""
    while (call := calls.get()) is not None:
        with around():
            call.run()
        if (thread := owner()) is not None:
            thread.ended_at = time.monotonic()
        del call, thread  # what they hold must not live until the next one


def run_apart(function: Callable[[], object], name: str) -> Call:
    """A call of `function` in a thread that ends with it."""
    call = Call(function)
    threading.Thread(target=call.run, daemon=True, name=name).start()
    return call


def call_within(function: Callable[[], object], seconds: float, complaint: str | Callable[[], str]) -> object:
    """Runs `function` in a thread of its own; raises ClusterError(`complaint`) when it does not end in time.

    A complaint that has to look around first is a function.
    """
    call = run_apart(function, "slimdp call")
    if not call.ends_within(seconds):
        raise ClusterError(complaint if isinstance(complaint, str) else complaint())
    if call.error is not None:
        raise call.error
    return call.result


def constant_here(value, dtype: tf.DType | None = None) -> tf.Tensor:
    """A constant in this process, whatever device this is called under.

    TensorFlow holds all of Python's threads while it makes a constant on another task, or reads a tensor from there: if
    that task hangs, so does this process. An operation that needs the constant moves it while other threads go on.
    """
    with tf.device(None):
        return tf.constant(value, dtype)


def fetch_here(tensor: tf.Tensor) -> tf.Tensor:
    """`tensor`, which may be on another task, in this process; other threads go on meanwhile (see `constant_here`)."""
    with tf.device(None):
        return tf.identity(tensor)


def brief(error: BaseException) -> str:
    """The first line of an error's message."""
    return str(error).strip().split("\n")[0][:200] or type(error).__name__
