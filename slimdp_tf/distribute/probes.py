"""Whether tasks are there, asked apart, as an answer may never come."""

from __future__ import annotations

from collections.abc import Sequence

from slimdp_tf.distribute import _tf
from slimdp_tf.distribute.calls import run_apart

PATIENCE_S = 2.0  # with the answer of a task that has nothing else to do
BUSY_S = 10.0  # with that of one that is at work


def are_there(devices: Sequence[str], seconds: float = PATIENCE_S) -> list[bool]:
    """For each device whether its task answers within `seconds`, and as the process that it was."""
    asked = [run_apart(lambda d=device: _tf.is_alive(d), "slimdp asks a task") for device in devices]
    return [call.ends_within(seconds) and call.result is True for call in asked]
