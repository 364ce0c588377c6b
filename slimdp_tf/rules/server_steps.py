"""How the SERVER steps, once another rule has folded what the workers sent: with momentum, or a scale of its own.

Each takes the rule that folds as `fold`, such as Average(); G is what that rule would subtract.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from slimdp_tf.types import Edits, Entries, Merge, Note, State, is_number, summed


@dataclasses.dataclass(frozen=True)
class Scaled:
    """w <- w - rate G. With rate = beta and pushes of w - x_k it is EASGD's centre: (1 - beta) w + beta mean(x_k).

    Args:
        fold: what makes G.
        rate: above 0.
    """

    fold: Merge
    rate: float = 1.0

    def __post_init__(self):
        _check("rate", self.rate)

    def init(self, value: tf.Tensor) -> State:
        return self.fold.init(value)

    def merge(
        self, state: State, value: tf.Tensor, incoming: list[Entries], notes: list[Note]
    ) -> tuple[list[Entries], Edits]:
        increments, edits = self.fold.merge(state, value, incoming, notes)
        return [Entries(i.index, self.rate * i.value) for i in increments], edits


@dataclasses.dataclass(frozen=True)
class BlockMomentum:
    """V <- bm V + blr G; w <- w - V, and with Nesterov's momentum the workers start from w - bm V.

    That start is what the server holds then, and what the next G is relative to, as in CNTK and fairseq.

    Args:
        fold: what makes G: Average() makes it w - mean(w_k).
        momentum: bm, in [0, 1).
        rate: blr, above 0.
        nesterov: whether to look ahead.

    Reference: Chen & Huo 2016, equations 4 to 8.
    """

    fold: Merge
    momentum: float = 0.75
    rate: float = 1.0
    nesterov: bool = False
    needs_all = "has its momentum of what all workers did in a round"

    def __post_init__(self):
        _check_momentum(self.momentum)
        _check("rate", self.rate)

    def init(self, value: tf.Tensor) -> State:
        return {"velocity": tf.zeros_like(value), **_inner(self.fold, value)}

    def merge(
        self, state: State, value: tf.Tensor, incoming: list[Entries], notes: list[Note]
    ) -> tuple[list[Entries], Edits]:
        folded, edits = _fold(self.fold, state, value, incoming, notes)
        velocity = self.momentum * state["velocity"] + self.rate * folded
        step = velocity + self.momentum * velocity if self.nesterov else velocity
        return [Entries(None, step)], {"velocity": velocity, **edits}


@dataclasses.dataclass(frozen=True)
class OuterNesterov:
    """m <- mu m + G; w <- w - rate (G + mu m): SGD with Nesterov's momentum on the workers' mean update.

    Args:
        fold: what makes G.
        rate: the outer learning rate, above 0.
        momentum: mu, in [0, 1).

    Reference: Douillard et al. 2023 (DiLoCo), algorithm 1 with the optimizer of its section 3.
    """

    fold: Merge
    rate: float = 0.7
    momentum: float = 0.9
    needs_all = "steps by what all workers did in a round"

    def __post_init__(self):
        _check_momentum(self.momentum)
        _check("rate", self.rate)

    def init(self, value: tf.Tensor) -> State:
        return {"velocity": tf.zeros_like(value), **_inner(self.fold, value)}

    def merge(
        self, state: State, value: tf.Tensor, incoming: list[Entries], notes: list[Note]
    ) -> tuple[list[Entries], Edits]:
        folded, edits = _fold(self.fold, state, value, incoming, notes)
        velocity = self.momentum * state["velocity"] + folded
        step = self.rate * (folded + self.momentum * velocity)
        return [Entries(None, step)], {"velocity": velocity, **edits}


@dataclasses.dataclass(frozen=True)
class AdaGrad:
    """a <- a + G^2; w <- w - rate G / (sqrt(a) + epsilon), applied after the fold.

    Args:
        fold: what makes G.
        rate: the learning rate, above 0: the scale of G, the workers' learning rate included, drops out.
        epsilon: above 0.

    Reference: Seide et al. 2014, section 3.3: AdaGrad works with one bit when it comes after the aggregation.
    """

    fold: Merge
    rate: float = 0.01
    epsilon: float = 1e-6

    def __post_init__(self):
        _check("rate", self.rate)
        _check("epsilon", self.epsilon)

    def init(self, value: tf.Tensor) -> State:
        return {"squares": tf.zeros_like(value), **_inner(self.fold, value)}

    def merge(
        self, state: State, value: tf.Tensor, incoming: list[Entries], notes: list[Note]
    ) -> tuple[list[Entries], Edits]:
        folded, edits = _fold(self.fold, state, value, incoming, notes)
        squares = state["squares"] + folded * folded
        step = self.rate * folded / (tf.sqrt(squares) + self.epsilon)
        return [Entries(None, step)], {"squares": squares, **edits}


def _inner(fold: Merge, value: tf.Tensor) -> State:
    """The state of the rule inside, under names of its own."""
    return {"fold." + name: tensor for name, tensor in fold.init(value).items()}


def _fold(fold, state, value, incoming, notes) -> tuple[tf.Tensor, Edits]:
    """G, f32[n], and the edits of the state of the rule inside."""
    own = {name[len("fold.") :]: tensor for name, tensor in state.items() if name.startswith("fold.")}
    increments, edits = fold.merge(own, value, incoming, notes)
    return summed(increments, value), {"fold." + name: edit for name, edit in edits.items()}


def _check(name: str, value: object) -> None:
    if not is_number(value) or value <= 0.0:
        raise ValueError(f"{name} must be a number above 0. Received: {value!r}")


def _check_momentum(value: object) -> None:
    if not is_number(value) or not 0.0 <= value < 1.0:
        raise ValueError(f"momentum must be a number within [0, 1). Received: {value!r}")
