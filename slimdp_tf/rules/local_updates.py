"""What becomes of the UNSENT when each worker goes on with it locally, beside what all workers were told."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from slimdp_tf.types import Edits, Entries, State, is_number, taken, written


@dataclasses.dataclass(frozen=True)
class LocalUpdates:
    """The pulled update G, combined with what the worker did itself: w_k <- w_k - C.

    With L the update of this round, e the residual, S what is sent of L + e, and e' = L + e - S:
        "sum":     C = G + share L
        "replace": C = G + share (L - S), so that the own part is not counted twice
        "error":   C = G + share e', and e' <- 0: it has been used
    Every `average` pushes the local weights return to the agreed ones; what lay between waits in the residual.

    Args:
        combine: which of the three.
        share: how much of the own update is used; 1 is the authors' code, where G is a sum over nodes.
        average: pushes between two returns, at least 1.

    Reference: Aji, Heafield & Bogoychev 2019; Marian's branches of these names. We differ: G is a mean over workers,
    and the replicas' parameters are not averaged at once: their differences are sent as all else is, greatest first.
    """

    combine: str = "replace"
    share: float = 1.0
    average: int = 500
    returns = True

    def __post_init__(self):
        if self.combine not in ("sum", "replace", "error"):
            raise ValueError(f"combine must be 'sum', 'replace' or 'error'. Received: {self.combine!r}")
        if not is_number(self.share) or self.share < 0.0:
            raise ValueError(f"share, of the own update, must be a number of at least 0. Received: {self.share!r}")
        if isinstance(self.average, bool) or not isinstance(self.average, int) or self.average < 1:
            raise ValueError(f"average, in rounds, must be an integer of at least 1. Received: {self.average!r}")

    def init(self, local: tf.Tensor) -> State:
        zeros = tf.zeros_like(local)
        return {"anchor": local, "agreed": local, "residual": zeros, "pushes": tf.zeros([], tf.int32)}

    def recall(self, state: State, local: tf.Tensor, index: tf.Tensor | None) -> tf.Tensor:
        return taken(state["residual"], index) + (taken(state["anchor"], index) - taken(local, index))

    def keep(self, state: State, local: tf.Tensor, wanted: Entries, sent: Entries) -> Edits:
        kept = written(self.recall(state, local, None), Entries(sent.index, wanted.value - sent.value))
        own = {"sum": state["anchor"] - local, "replace": kept - state["residual"], "error": kept}[self.combine]
        block = state["anchor"] - self.share * own
        pushes = state["pushes"] + 1
        is_time = tf.equal(pushes % self.average, 0)
        residual = tf.zeros_like(kept) if self.combine == "error" else kept
        residual = tf.where(is_time, state["agreed"] - block, residual)
        block = tf.where(is_time, state["agreed"], block)
        return {"residual": residual, "anchor": block, "local": block, "pushes": pushes}

    def rebase(self, state: State, local: tf.Tensor, before: Entries, after: Entries, pulled: Entries) -> Edits:
        agreed = taken(state["agreed"], after.index) + (after.value - before.value)
        return {"anchor": after, "agreed": Entries(after.index, agreed)}
