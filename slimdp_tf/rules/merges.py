"""How the SERVER folds what the workers sent."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from slimdp_tf.types import Edits, Entries, Note, State


@dataclasses.dataclass(frozen=True)
class Average:
    """w <- w - eta' * sum over workers of T_C(delta_k) (Slim-DP, Algorithm 1, Update), summed in worker order.

    Args:
        over: "workers" divides by the workers present, eta' = 1/K (the paper's rule with eta' = 1/K: an entry that
            only one worker explored moves by 1/K of its update); "contributors" divides every entry by the number
            of workers that sent it.
    """

    over: str = "workers"

    def __post_init__(self):
        if self.over not in ("workers", "contributors"):
            raise ValueError(f"average must be over 'workers' or 'contributors'. Received: {self.over!r}")

    @property
    def counts_senders(self) -> bool:
        """Whether it matters to an entry who else sends it."""
        return self.over == "contributors"

    def init(self, value: tf.Tensor) -> State:
        return {}

    def merge(
        self, state: State, value: tf.Tensor, incoming: list[Entries], notes: list[Note]
    ) -> tuple[list[Entries], Edits]:
        present = tf.add_n([tf.cast(note.present, tf.float32) for note in notes])
        if all(entries.index is None for entries in incoming):
            return [Entries(None, _ordered_sum([e.value for e in incoming]) / tf.maximum(present, 1.0))], {}
        if self.over == "workers":
            return [Entries(e.index, e.value / tf.maximum(present, 1.0)) for e in incoming], {}
        return [Entries(None, _mean_per_entry(tf.size(value), incoming, notes))], {}


def _ordered_sum(values: list[tf.Tensor]) -> tf.Tensor:
    """The sum in the order given, so that the rounding does not depend on who came first."""
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


def _mean_per_entry(size: tf.Tensor, incoming: list[Entries], notes: list[Note]) -> tf.Tensor:
    """For every entry the mean over the workers that sent it, zero where none did. f32[n]"""
    sparse = [entries for entries in incoming if entries.index is not None]
    index = tf.concat([entries.index for entries in sparse], 0)
    value = tf.concat([entries.value for entries in sparse], 0)
    # One pass sums both: real is the update, imaginary how many sent it; an entry's sum is in worker order.
    total = tf.math.unsorted_segment_sum(tf.complex(value, tf.ones_like(value)), index, size)
    total, senders = tf.math.real(total), tf.math.imag(total)
    for entries, note in zip(incoming, notes):
        if entries.index is None:
            total, senders = total + entries.value, senders + tf.cast(note.present, tf.float32)
    return total / tf.maximum(senders, 1.0)
