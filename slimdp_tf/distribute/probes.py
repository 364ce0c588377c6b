"""Whether tasks are there, asked apart, as an answer may never come."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from slimdp_tf.distribute import _tf
from slimdp_tf.distribute.calls import run_apart

PATIENCE_S = 2.0  # with the answer of a task that has nothing else to do
BUSY_S = 10.0  # with that of one that is at work


def are_there(devices: Sequence[str], seconds: float = PATIENCE_S) -> list[bool]:
    """For each device whether its task answers within `seconds`, and as the process that it was."""
    return _ask(_tf.is_alive, devices, seconds)


def are_others(devices: Sequence[str], seconds: float = PATIENCE_S) -> list[bool]:
    """For each device whether its task answers within `seconds`, but as another process than the one that it was."""
    return _ask(_tf.is_another, devices, seconds)


def _ask(question: Callable[[str], bool], devices: Sequence[str], seconds: float) -> list[bool]:
    asked = [run_apart(functools.partial(question, device), "slimdp asks a task") for device in devices]
    return [call.ends_within(seconds) and call.result is True for call in asked]
