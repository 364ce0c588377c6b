"""What a strategy may be made with."""

from __future__ import annotations

from slimdp_tf.distribute.refusals import KINDS
from slimdp_tf.method import Method


def check_arguments(method, seed, on_nonfinite, overlap, *seconds) -> None:
    """Raises ValueError or TypeError, in words, unless a strategy can be made with these arguments."""
    if method is not None and not isinstance(method, Method):
        raise TypeError(f"method must be one of slimdp_tf.methods, such as slim(). Received: {method!r}")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed must be an integer of at least 0. Received: {seed!r}")
    if not isinstance(overlap, bool):
        raise TypeError(f"overlap must be True or False. Received: {overlap!r}")
    if on_nonfinite not in KINDS:
        raise ValueError(f"on_nonfinite must be one of {', '.join(map(repr, KINDS))}. Received: {on_nonfinite!r}")
    if not all(isinstance(s, int | float) and s > 0 for s in seconds):
        raise ValueError(f"timeout_s, worker_deadline_s and cluster_deadline_s must be positive. Received: {seconds}")
