"""What becomes of the UNSENT: it is lost, or it stays until its entry is sent."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from slimdp_tf.types import Edits, Entries, State, taken


@dataclasses.dataclass(frozen=True)
class Forget:
    """The update of this round only; what is not sent never reaches the server (Slim-DP, Algorithm 1, literally).

    The anchor is the block at the start of the round: delta = w(start) - w(now).
    """

    returns = False

    def init(self, local: tf.Tensor) -> State:
        return {"anchor": local}

    def recall(self, state: State, local: tf.Tensor, index: tf.Tensor | None) -> tf.Tensor:
        return taken(state["anchor"], index) - taken(local, index)

    def keep(self, state: State, local: tf.Tensor, wanted: Entries, sent: Entries) -> Edits:
        return {}

    def rebase(self, state: State, local: tf.Tensor, before: Entries, after: Entries, pulled: Entries) -> Edits:
        return {"anchor": local}


@dataclasses.dataclass(frozen=True)
class Carry:
    """What was not sent waits in (anchor - local) until its entry is sent, at no extra bytes.

    A push moves the anchor by what the receiver decodes, so a quantisation error waits there too; a pull moves anchor
    and local together. Hence for every entry: sum of what was sent + (anchor - local) = all local displacement.
    """

    returns = False

    def init(self, local: tf.Tensor) -> State:
        return {"anchor": local}

    def recall(self, state: State, local: tf.Tensor, index: tf.Tensor | None) -> tf.Tensor:
        return taken(state["anchor"], index) - taken(local, index)

    def keep(self, state: State, local: tf.Tensor, wanted: Entries, sent: Entries) -> Edits:
        return {"anchor": Entries(sent.index, taken(state["anchor"], sent.index) - sent.value)}

    def rebase(self, state: State, local: tf.Tensor, before: Entries, after: Entries, pulled: Entries) -> Edits:
        unsent = taken(state["anchor"], after.index) - before.value
        return {"anchor": Entries(after.index, after.value + unsent)}
