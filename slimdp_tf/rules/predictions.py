"""Both ends predict the next update by exponential smoothing; workers send what the prediction misses.

The MEMORY is the worker's half, the MERGE the server's. Both smooth what the server subtracted, a (w_t - w_t+1), which
both see: s <- a (w_t - w_t+1) + (1 - a) s, prediction gamma s.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from slimdp_tf.types import Edits, Entries, Merge, Note, State, is_number, reduced, taken, written


@dataclasses.dataclass(frozen=True)
class Unpredicted:
    """r = (g + e) - gamma s is to be sent; e <- r - sent. The weights return to the agreed ones, as with a residual.

    A worker that takes over everything begins with s = 0; its s comes near the server's as (1 - a)^rounds.

    Args:
        smoothing: a, in (0, 1].
        gamma: how much of s is predicted, in [0, 1]; 0 is plain error feedback.

    Inspired by Zhang's thesis (HKU 2021), whose servers compensate dropped gradients by exponential smoothing; the
    predictive code is ours, so that nothing is counted twice.
    """

    smoothing: float = 0.1
    gamma: float = 0.9
    returns = True

    def __post_init__(self):
        _check(self.smoothing, self.gamma)

    def init(self, local: tf.Tensor) -> State:
        return {"anchor": local, "residual": tf.zeros_like(local), "smooth": tf.zeros_like(local)}

    def recall(self, state: State, local: tf.Tensor, index: tf.Tensor | None) -> tf.Tensor:
        update = taken(state["residual"], index) + (taken(state["anchor"], index) - taken(local, index))
        return update - self.gamma * taken(state["smooth"], index)

    def keep(self, state: State, local: tf.Tensor, wanted: Entries, sent: Entries) -> Edits:
        kept = written(self.recall(state, local, None), Entries(sent.index, wanted.value - sent.value))
        return {"residual": kept, "local": state["anchor"]}

    def rebase(self, state: State, local: tf.Tensor, before: Entries, after: Entries, pulled: Entries) -> Edits:
        smooth = _smooth(self.smoothing, taken(state["smooth"], after.index), before.value, after.value)
        return {"anchor": after, "smooth": Entries(after.index, smooth)}


@dataclasses.dataclass(frozen=True)
class Predicted:
    """Subtracts gamma s, and what the workers sent beside it.

    Args:
        fold: what folds the workers' pushes.
        smoothing, gamma: as the workers' memory has them.
    """

    fold: Merge
    smoothing: float = 0.1
    gamma: float = 0.9
    needs_all = "predicts one merge per round, which both ends see"

    def __post_init__(self):
        _check(self.smoothing, self.gamma)

    def init(self, value: tf.Tensor) -> State:
        return {"smooth": tf.zeros_like(value), **self.fold.init(value)}

    def merge(
        self, state: State, value: tf.Tensor, incoming: list[Entries], notes: list[Note]
    ) -> tuple[list[Entries], Edits]:
        increments, edits = self.fold.merge(state, value, incoming, notes)
        increments = [Entries(None, self.gamma * state["smooth"]), *increments]
        after = value
        for increment in increments:  # as it will be done, to the last bit
            after = reduced(after, increment)
        return increments, {**edits, "smooth": _smooth(self.smoothing, state["smooth"], value, after)}


def _smooth(rate: float, smooth: tf.Tensor, before: tf.Tensor, after: tf.Tensor) -> tf.Tensor:
    return rate * (before - after) + (1.0 - rate) * smooth


def _check(smoothing: object, gamma: object) -> None:
    if not is_number(smoothing) or not 0.0 < smoothing <= 1.0:
        raise ValueError(f"smoothing must be a number within (0, 1]. Received: {smoothing!r}")
    if not is_number(gamma) or not 0.0 <= gamma <= 1.0:
        raise ValueError(f"gamma must be a number within [0, 1]. Received: {gamma!r}")
