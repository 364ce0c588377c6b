"""Calls from the chief to the servers: every wait for them is bounded, and says which one does not answer."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import tensorflow as tf

from slimdp_tf.distribute import _tf
from slimdp_tf.distribute.calls import GONE, WATCH_S, CallThread, ClusterError, brief, run_apart
from slimdp_tf.distribute.spec import answers


class ServerLost(ClusterError):
    """A server failed or did not answer."""


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
        self._silent_since: float | None = None

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
            left = max(submitted, thread.ended_at) + seconds - time.monotonic()
            if call.ends_within(min(WATCH_S, left)):
                break
            if max(submitted, thread.ended_at) + seconds <= time.monotonic():
                raise ServerLost(f"No answer within {seconds:g} s from {self._silent()}, {purpose}.")
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
        self._silent_since = None

    def watch(self, purpose: str) -> None:
        """Called every `WATCH_S` of a long wait: names servers that do not answer.

        Raises:
            ServerLost: they have not answered for `deadline_s`.
        """
        silent = self.find_silent(WATCH_S)
        if not silent:
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = time.monotonic()
            tf.get_logger().warning("No answer from %s, %s; waiting for it.", ", ".join(silent), purpose)
        elif time.monotonic() - self._silent_since > self.deadline_s:
            self._silent_since = None
            raise ServerLost(f"No answer within {self.deadline_s:g} s from {', '.join(silent)}, {purpose}.")

    def await_return(self, workers: list[str]) -> None:
        """Waits until every server answers, as the process it was or as a new one, which then is empty.

        Args:
            workers: the devices of the workers; those that do not answer are not waited for.

        Raises:
            ServerLost: one did not within `deadline_s`.
        """
        give_up, self._silent_since = time.monotonic() + self.deadline_s, None
        self._thread = CallThread("slimdp servers")  # the one before may hang
        tasks = [_tf.address_of(device) for device in (*workers, *self.devices)]
        while silent := self.find_silent():
            if time.monotonic() > give_up:
                raise ServerLost(f"{', '.join(silent)} did not come back within {self.deadline_s:g} s.")
            time.sleep(0.5)
            with contextlib.suppress(tf.errors.OpError):
                _tf.update_cluster(frozenset(address for address in tasks if not answers(address)))

    def _silent(self) -> str:
        """Names the servers that do not answer, or all of them where that cannot be told."""
        return ", ".join(self.find_silent()) or "one of " + ", ".join(self.names)

    def find_silent(self, seconds: float = 2.0) -> list[str]:
        """Names of the servers that do not answer within `seconds`, or as another process than the one they were."""
        asked = [run_apart(lambda d=device: _tf.is_alive(d), "slimdp asks a server") for device in self.devices]
        return [name for name, call in zip(self.names, asked) if not (call.ends_within(seconds) and call.result)]
