"""Calls that may hang, in threads of their own, so that every wait for them ends and says what was waited for."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable

import tensorflow as tf

from slimdp_tf.distribute import _tf

GONE = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError, tf.errors.DeadlineExceededError)


class ClusterError(RuntimeError):
    """A task of the cluster failed or did not answer; the message names it."""


class NonFiniteUpdateError(ArithmeticError):
    """A worker's update held a nan or an infinity; the servers refused it and the weights are untouched."""

    @classmethod
    def of(cls, number: int, names: list[str]) -> NonFiniteUpdateError:
        """The error to raise when the updates of round `number` from some workers were refused."""
        return cls(
            f"The update of round {number} from {', '.join(names)} is not finite; the servers refused it and it did "
            "not touch the weights. on_nonfinite='skip' would go on without it."
        )


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
    """A thread that runs one call after another.

    Args:
        name: of the thread.
        around: makes a context in which each call runs.
    """

    def __init__(self, name: str, around: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext):
        self._calls: queue.SimpleQueue[Call] = queue.SimpleQueue()
        self._around = around
        threading.Thread(target=self._serve, daemon=True, name=name).start()

    def submit(self, function: Callable[[], object]) -> Call:
        """Queues a call of `function`."""
        call = Call(function)
        self._calls.put(call)
        return call

    def _serve(self) -> None:
        while True:
            call = self._calls.get()
            with self._around():
                call.run()
            del call  # what it holds must not live until the next one


class Servers:
    """The parameter servers of a cluster: calls to them from the chief, each with a deadline.

    Args:
        devices: a device per server.
        names: what errors call each server, with its address.
        deadline_s: seconds after which a call counts as failed.
    """

    def __init__(self, devices: list[str], names: list[str], deadline_s: float):
        self.devices, self.names, self.deadline_s = devices, names, deadline_s
        self._thread = CallThread("slimdp servers")

    def call(self, function: Callable[[], object], purpose: str, seconds: float | None = None) -> object:
        """Runs `function`, which reads or writes on the servers, and returns its result.

        Args:
            function: what to do.
            purpose: what an error says it was for, such as "while round 3 was merged".
            seconds: the deadline of this call, `deadline_s` by default.

        Raises:
            Whatever `function` raised, unless it says that a server is gone.
            ClusterError: a server is gone or did not answer in time; it says which, and what for.
        """
        call, seconds = self._thread.submit(function), seconds or self.deadline_s
        if not call.ends_within(seconds):
            raise ClusterError(f"No answer within {seconds:g} s from {self._silent()}, {purpose}.")
        if isinstance(call.error, GONE):
            raise self.explain(call.error, purpose) from call.error
        if call.error is not None:
            raise call.error
        return call.result

    def explain(self, error: BaseException, purpose: str) -> ClusterError:
        """The error to raise when `error` says that a server is gone."""
        return ClusterError(f"Lost {self._silent()}, {purpose}: {brief(error)}")

    def check(self, purpose: str) -> None:
        """Raises ClusterError if a server does not answer now."""
        silent = self._find_silent()
        if silent:
            raise ClusterError(f"No answer from {', '.join(silent)}, {purpose}.")

    def _silent(self) -> str:
        """Names the servers that do not answer, or all of them where that cannot be told."""
        return ", ".join(self._find_silent()) or "one of " + ", ".join(self.names)

    def _find_silent(self) -> list[str]:
        asked = [CallThread("slimdp asks a server").submit(lambda d=device: _tf.is_alive(d)) for device in self.devices]
        return [name for name, call in zip(self.names, asked) if not (call.ends_within(2.0) and call.result)]


def call_within(function: Callable[[], object], seconds: float, complaint: str) -> object:
    """Runs `function` in a thread of its own; raises ClusterError(`complaint`) when it does not end in time."""
    call = CallThread("slimdp call").submit(function)
    if not call.ends_within(seconds):
        raise ClusterError(complaint)
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
