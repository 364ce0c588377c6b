"""Workers that stay apart, tied to the server's centre by a spring: the MEMORY of the centre, and nothing to ADOPT."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from slimdp_tf.types import Edits, Entries, State, is_number, taken


@dataclasses.dataclass(frozen=True)
class Spring:
    """x_k <- x_k - alpha (x_k - c), c the centre as it was last pulled; what is pushed is c - x_k, of before.

    Args:
        alpha: the moving rate, in [0, 1]; 0 leaves the workers to themselves.

    Reference: Zhang et al. 2015 (EASGD), equations 2 and 3; both with the old values, as there.
    """

    alpha: float = 0.1
    returns = True

    def __post_init__(self):
        if not is_number(self.alpha) or not 0.0 <= self.alpha <= 1.0:
            raise ValueError(f"alpha, the moving rate, must be a number within [0, 1]. Received: {self.alpha!r}")

    def init(self, local: tf.Tensor) -> State:
        return {"anchor": local}

    def recall(self, state: State, local: tf.Tensor, index: tf.Tensor | None) -> tf.Tensor:
        return taken(state["anchor"], index) - taken(local, index)

    def keep(self, state: State, local: tf.Tensor, wanted: Entries, sent: Entries) -> Edits:
        return {"local": local - self.alpha * (local - state["anchor"])}

    def rebase(self, state: State, local: tf.Tensor, before: Entries, after: Entries, pulled: Entries) -> Edits:
        return {"anchor": pulled}


@dataclasses.dataclass(frozen=True)
class Stay:
    """The local value stays; the memory takes the pulled one for its centre."""

    def adopt(self, local: tf.Tensor, incoming: tf.Tensor) -> tf.Tensor:
        return local
