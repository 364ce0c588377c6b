"""Calls from the chief to the servers: every wait for them is bounded, and says which one does not answer."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import tensorflow as tf

from slimdp_tf.distribute import _tf
from slimdp_tf.distribute.calls import GONE, WATCH_S, CallThread, ClusterError, brief, call_within
from slimdp_tf.distribute.probes import BUSY_S, PATIENCE_S, are_others, are_there
from slimdp_tf.distribute.spec import answers

_LAST_LOOK_S = 0.5  # when a deadline is over


class ServerLost(ClusterError):
    """A server failed or did not answer.

    Attributes:
        since: when it was last known to be there (seconds of the monotonic clock).
    """

    def __init__(self, message: str, since: float | None = None):
        super().__init__(message)
        self.since = time.monotonic() if since is None else since


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
        self._answered_at, self._is_named = time.monotonic(), False

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
        submitted, thread = time.monotonic(), self._thread
        self.begin_wait()
        while True:
            # calls run one after another: the time of this one begins when the one before has ended
            begun = max(submitted, thread.ended_at)
            if call.ends_within(min(WATCH_S, begun + seconds - time.monotonic())):
                break
            if begun + seconds <= time.monotonic():
                raise ServerLost(f"No answer within {seconds:g} s from {self._silent()}, {purpose}.", begun)
            self.watch(purpose)
        if isinstance(call.error, GONE):
            raise self.explain(call.error, purpose) from call.error
        if call.error is not None:
            raise call.error
        return call.result

    def explain(self, error: BaseException, purpose: str) -> ServerLost:
        """The error to raise when `error` says that a server is gone."""
        return ServerLost(f"Lost {self._silent()}, {purpose}: {brief(error)}")

    def check(self, purpose: str) -> None:
        """Raises ServerLost if a server does not answer now."""
        silent = self.find_silent()
        if silent:
            raise ServerLost(f"No answer from {', '.join(silent)}, {purpose}.")

    def begin_wait(self) -> None:
        """A wait begins: how long servers were silent in another one does not count."""
        self._answered_at, self._is_named = time.monotonic(), False

    def watch(self, purpose: str) -> float:
        """Called every `WATCH_S` of a long wait: names servers that do not answer.

        Returns:
            For how many seconds there have been any, 0 if there are none. Whoever waits for them may need as long again
            when they are back: TCP repeats what was not acknowledged at distances that double.

        Raises:
            ServerLost: they have not answered for `deadline_s`.
        """
        looked, since = time.monotonic(), self._answered_at
        silent = self.find_silent(min(BUSY_S, max(_LAST_LOOK_S, since + self.deadline_s - looked)))
        if not silent:
            self._answered_at, self._is_named = looked, False
        elif (left := since + self.deadline_s - time.monotonic()) <= 0.0:
            raise ServerLost(f"No answer within {self.deadline_s:g} s from {', '.join(silent)}, {purpose}.", since)
        elif anew := self._find_others(min(PATIENCE_S, left)):
            raise ServerLost(f"{', '.join(anew)} was started anew, {purpose}.")  # who waits for it may wait for good
        elif not self._is_named:
            self._is_named = True
            tf.get_logger().warning("No answer from %s, %s; waiting for it.", ", ".join(silent), purpose)
        return time.monotonic() - since if silent else 0.0

    def await_return(self, workers: list[str], since: float) -> None:
        """Waits until every server answers, as the process it was or as a new one, which then is empty.

        Args:
            workers: the devices of the workers; those that do not answer are not waited for.
            since: when the servers were last known to be there.

        Raises:
            ClusterError: one was not there again after `deadline_s`.
        """
        give_up = since + self.deadline_s
        self._thread.end()
        self._thread = CallThread("slimdp servers")  # the one before may hang
        servers, tasks = ([_tf.address_of(d) for d in devices] for devices in (self.devices, (*workers, *self.devices)))
        while silent := self.find_silent(min(PATIENCE_S, max(_LAST_LOOK_S, give_up - time.monotonic()))):
            away = ClusterError(f"{', '.join(silent)} did not come back within {self.deadline_s:g} s.")
            if time.monotonic() > give_up:
                raise away
            time.sleep(0.5)
            missing = frozenset(address for address in tasks if not answers(address))
            if missing & set(servers):
                continue  # every attempt to connect costs TensorFlow some threads
            with contextlib.suppress(tf.errors.OpError):
                left = max(PATIENCE_S, give_up - time.monotonic())
                call_within(lambda missing=missing: _tf.update_cluster(missing), left, str(away))

    def _silent(self) -> str:
        """Names the servers that do not answer, or all of them where that cannot be told."""
        return ", ".join(self.find_silent()) or "one of " + ", ".join(self.names)

    def _find_others(self, seconds: float) -> list[str]:
        """Names of the servers that answer within `seconds` as another process than the one they were."""
        return [name for name, is_another in zip(self.names, are_others(self.devices, seconds)) if is_another]

    def find_silent(self, seconds: float = PATIENCE_S) -> list[str]:
        """Names of the servers that do not answer within `seconds`, or as another process than the one they were."""
        return [name for name, is_there in zip(self.names, are_there(self.devices, seconds)) if not is_there]
