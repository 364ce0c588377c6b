"""The words the rules speak: entries, edits, notes, and one Protocol per family of rules.

A rule is a frozen dataclass whose fields are its hyper-parameters. It holds no variables, knows no devices and draws
no random number that was not given to it as a seed. A rule with state returns *edits*: a tensor replaces the state,
`Entries` overwrite only the entries they name. So the same rule runs on plain tensors (`edited`) and on variables in
place, and a rule that touches k of n entries costs O(k).
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import tensorflow as tf

State = dict[str, tf.Tensor]
Payload = dict[str, tf.Tensor]  # name -> tensor that crosses the wire; nothing else does
On = Callable[[int], contextlib.AbstractContextManager]  # on(j): run the following where block j lives
Pieces = tuple[tuple[int, int], ...]  # what a block holds of each variable, in order: (rows, columns)


def anywhere(block: int) -> contextlib.AbstractContextManager:
    """The `On` of one process, where every block lives."""
    return contextlib.nullcontext()


@dataclasses.dataclass(frozen=True)
class Entries:
    """Some entries of a block, or all of them.

    Attributes:
        index: i32[k], distinct positions in the block, in any order; None stands for the whole block.
        value: f32[k], one value per position (f32[n] when `index` is None).
    """

    index: tf.Tensor | None
    value: tf.Tensor


Edit = tf.Tensor | Entries
Edits = dict[str, Edit]


@dataclasses.dataclass(frozen=True)
class Note:
    """What the server knows of one worker's push beside its values.

    Attributes:
        present: bool[], whether this worker takes part in this merge. An absent worker's values are zeros (dense) or
            empty (sparse); rules count the workers that are present.
        loss: f32[], the worker's mean training loss of the round (nan when unknown).
        steps: i32[], local steps behind the update.
    """

    present: tf.Tensor
    loss: tf.Tensor
    steps: tf.Tensor


@dataclasses.dataclass(frozen=True)
class Signal:
    """What the chief knows when a round is about to begin.

    Attributes:
        round: its number.
        steps: local steps done so far, per worker.
        before: steps that were planned for the round before; 0 in round 0.
        loss: mean over workers of the training loss in the round before (nan when unknown).
        first_loss: the same of round 0.
    """

    round: int = 0
    steps: int = 0
    before: int = 0
    loss: float = math.nan
    first_loss: float = math.nan

    def after(self, planned: int, steps: int, loss: float) -> Signal:
        """The signal of the next round, once this one has ended with `steps` done in all and this `loss`."""
        return Signal(self.round + 1, steps, planned, loss, self.first_loss if self.round else loss)


@runtime_checkable
class Selector(Protocol):
    """WHICH entries are communicated.

    `keyed` says that the keys travel with the values; without it the receiver repeats `pick` from what it holds.
    `blind` says that `pick` looks at no values, so that only the chosen entries need to be computed.
    A selector may have `shorten` (entries -> fewer keys that stand for them) and `lengthen`, its inverse.
    """

    keyed: bool
    blind: bool

    def pick(self, value: tf.Tensor | None, agreed: State, seed: tf.Tensor) -> tf.Tensor | None:
        """Returns i32[k] distinct positions in a block, or None for all of them."""


@runtime_checkable
class Codec(Protocol):
    """HOW values are written. Sees nothing but the values.

    A codec (or a selector) that goes by columns or by variables has a field `pieces`, and is `fitted` to its block.
    It may have `is_readable(payload, count)` -> bool[], asked when the lengths are right: what they do not say. It may
    have `together(values, seed)`: the decoded values of every sender of a round -> what they are, known together.
    """

    def encode(self, value: tf.Tensor, seed: tf.Tensor) -> Payload:
        """f32[k] -> vectors to send."""

    def decode(self, payload: Payload, count: tf.Tensor | int) -> tf.Tensor:
        """What `encode` made of `count` values -> f32[count]."""

    def lengths(self, count: tf.Tensor | int) -> dict[str, tf.Tensor | int]:
        """Entries of each vector that `encode` makes of `count` values; without those that depend on the values."""


@runtime_checkable
class Memory(Protocol):
    """What becomes of the UNSENT. Owns the anchor: the block as it was when both ends last agreed on it.

    `returns` says that a push takes the update out of the local block: `keep` has an edit "local", the block that
    training goes on from once a pulled update has been subtracted from it.
    """

    returns: bool

    def init(self, local: tf.Tensor) -> State:
        """State of a worker that has just taken over the whole block `local`, f32[n]."""

    def recall(self, state: State, local: tf.Tensor, index: tf.Tensor | None) -> tf.Tensor:
        """The update to send at `index`: anchor - local there, f32[k] (positive = descent)."""

    def keep(self, state: State, local: tf.Tensor, wanted: Entries, sent: Entries) -> Edits:
        """After a push from the block `local`, f32[n]: `wanted` was to be sent, the receiver decodes it as `sent`."""

    def rebase(self, state: State, local: tf.Tensor, before: Entries, after: Entries, pulled: Entries) -> Edits:
        """After a pull of `pulled` weights changed `before` into `after` and the block into `local`, f32[n]."""


@runtime_checkable
class Merge(Protocol):
    """How the SERVER folds what the workers sent into its block."""

    def init(self, value: tf.Tensor) -> State:
        """State beside a block `value`, f32[n]."""

    def merge(
        self, state: State, value: tf.Tensor, incoming: list[Entries], notes: list[Note]
    ) -> tuple[list[Entries], Edits]:
        """Returns what is to be subtracted from `value`, in this order, and the edits of the state."""


@runtime_checkable
class Adopt(Protocol):
    """What a WORKER makes of pulled values."""

    def adopt(self, local: tf.Tensor, incoming: tf.Tensor) -> tf.Tensor:
        """Local and pulled values of the same entries, f32[k] each -> the new local values, f32[k]."""


@runtime_checkable
class Trigger(Protocol):
    """WHEN an exchange takes place. The chief plans each round; every worker is told."""

    @property
    def period(self) -> int:
        """Local steps of the first round, at least 1."""

    def plan(self, signal: Signal) -> int:
        """Local steps of the round that is about to begin, at least 1."""


@runtime_checkable
class Agreement(Protocol):
    """What both ends HOLD and do not send again. It spans all blocks, which may live on different servers.

    `period` is the number of rounds between refreshes (0: never); `whole` says that the push before a refresh
    carries every entry. `lists` names the lists of keys, i32[any length], in what is held of a block.
    """

    period: int
    whole: bool
    lists: tuple[str, ...]

    def refresh(
        self, values: list[tf.Tensor], updates: list[tf.Tensor], on: On, keys: list[tf.Tensor] | None = None
    ) -> list[tf.Tensor]:
        """Weights and latest mean update of every block, f32[n_j] -> the new keys of every block, i32[c_j], ascending.

        `keys` are those of every block until now, None where there were none.
        """

    def agree(self, keys: list[tf.Tensor], sizes: list[int], on: On = anywhere) -> list[State]:
        """Keys of every block -> what the selectors of every block are given."""

    def hold(self, core: tf.Tensor, share: tf.Tensor) -> State:
        """What the selectors of one block are given, from its keys and its share (see `rules.selectors`)."""


def fitted(rule, pieces: Pieces):
    """`rule` for a block that holds `pieces`: as it is, unless it has a field for them."""
    return dataclasses.replace(rule, pieces=pieces) if hasattr(rule, "pieces") else rule


def is_number(value: object) -> bool:
    """Whether an option is a finite real number: a bool, a string or nan is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def edited(state: State, edits: Edits) -> State:
    """Returns `state` after `edits`, as plain tensors."""
    result = dict(state)
    for name, edit in edits.items():
        result[name] = written(result[name], edit) if isinstance(edit, Entries) else edit
    return result


def written(value: tf.Tensor, entries: Entries) -> tf.Tensor:
    """Returns `value` with the named entries overwritten."""
    if entries.index is None:
        return entries.value
    return tf.tensor_scatter_nd_update(value, entries.index[:, None], entries.value)


def reduced(value: tf.Tensor, entries: Entries) -> tf.Tensor:
    """Returns `value` with the entries subtracted."""
    if entries.index is None:
        return value - entries.value
    return tf.tensor_scatter_nd_sub(value, entries.index[:, None], entries.value)


def summed(increments: list[Entries], like: tf.Tensor) -> tf.Tensor:
    """The sum of `increments`, in order, over a block of the size of `like`. f32[n]"""
    total = tf.zeros_like(like)
    for increment in increments:
        if increment.index is None:
            total = total + increment.value
        else:
            total = tf.tensor_scatter_nd_add(total, increment.index[:, None], increment.value)
    return total


def taken(value: tf.Tensor, index: tf.Tensor | None) -> tf.Tensor:
    """Returns the values at `index`, all of them when it is None."""
    return value if index is None else tf.gather_nd(value, tf.expand_dims(index, 1))
