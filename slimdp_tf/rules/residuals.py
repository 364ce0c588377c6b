"""What becomes of the UNSENT when the local weights return to the agreed ones: it waits in a vector beside them."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from slimdp_tf.types import Edits, Entries, State, is_number, taken, written


@dataclasses.dataclass(frozen=True)
class Residual:
    """Error feedback: e <- (g + e) - decode(encode(g + e)), with g = anchor - local the update of the round.

    After a push the local block is the anchor again, what both ends agree on; the unsent does not act on the weights.
    So sum of what was sent + e = sum of all updates, for every entry. `Carry` leaves the unsent in the local weights.
    """

    returns = True

    def init(self, local: tf.Tensor) -> State:
        return {"anchor": local, "residual": tf.zeros_like(local)}

    def recall(self, state: State, local: tf.Tensor, index: tf.Tensor | None) -> tf.Tensor:
        return taken(state["residual"], index) + (taken(state["anchor"], index) - taken(local, index))

    def keep(self, state: State, local: tf.Tensor, wanted: Entries, sent: Entries) -> Edits:
        kept = written(self.recall(state, local, None), Entries(sent.index, wanted.value - sent.value))
        return {"residual": kept, "local": state["anchor"]}

    def rebase(self, state: State, local: tf.Tensor, before: Entries, after: Entries, pulled: Entries) -> Edits:
        return {"anchor": after}


@dataclasses.dataclass(frozen=True)
class MomentumCorrection:
    """Momentum before sparsification, and none for what has been sent.

    With g = anchor - local, cut to the norm `clip`: u <- m u + g, v <- v + u (Nesterov: u <- m (u + g),
    v <- v + u + g); v is to be sent, and where it is, v keeps what the codec left out and u <- 0 (factor masking).

    Args:
        momentum: m, in [0, 1). The local optimizer must be without momentum of its own.
        nesterov: which of the two.
        clip: greatest norm of g in a block; 0 does not clip.

    Reference: Lin et al. 2018 (DGC), sections 3.1 and 3.2. We differ: g is an update, learning rate included, so u and
    v scale with the learning rate of their time; the norm is that of a block.
    """

    momentum: float = 0.9
    nesterov: bool = False
    clip: float = 0.0
    returns = True

    def __post_init__(self):
        if not is_number(self.momentum) or not 0.0 <= self.momentum < 1.0:
            raise ValueError(f"momentum must be a number within [0, 1). Received: {self.momentum!r}")
        if not isinstance(self.nesterov, bool):
            raise ValueError(f"nesterov must be True or False. Received: {self.nesterov!r}")
        if not is_number(self.clip) or self.clip < 0.0:
            raise ValueError(f"clip, the greatest norm of an update, must be at least 0. Received: {self.clip!r}")

    def init(self, local: tf.Tensor) -> State:
        return {"anchor": local, "momentum": tf.zeros_like(local), "residual": tf.zeros_like(local)}

    def recall(self, state: State, local: tf.Tensor, index: tf.Tensor | None) -> tf.Tensor:
        return taken(self._accumulated(state, local)[1], index)

    def keep(self, state: State, local: tf.Tensor, wanted: Entries, sent: Entries) -> Edits:
        momentum, value = self._accumulated(state, local)
        return {
            "momentum": written(momentum, Entries(sent.index, tf.zeros_like(sent.value))),
            "residual": written(value, Entries(sent.index, wanted.value - sent.value)),
            "local": state["anchor"],
        }

    def rebase(self, state: State, local: tf.Tensor, before: Entries, after: Entries, pulled: Entries) -> Edits:
        return {"anchor": after}

    def _accumulated(self, state: State, local: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """u and v with the update of this round, f32[n] each."""
        update = state["anchor"] - local
        if self.clip:
            norm = tf.norm(update)
            update = tf.where(norm > self.clip, update * (self.clip / norm), update)
        if self.nesterov:
            momentum = self.momentum * (state["momentum"] + update)
            return momentum, state["residual"] + momentum + update
        momentum = self.momentum * state["momentum"] + update
        return momentum, state["residual"] + momentum
