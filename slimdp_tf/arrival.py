"""A push that is merged by itself, when it arrives (pacing "async"): one of K, of which the others sent nothing now."""

from __future__ import annotations

import tensorflow as tf

from slimdp_tf.exchange import Exchange
from slimdp_tf.method import layers_of
from slimdp_tf.types import Edits, Entries, Note, State


def fold_one(
    exchange: Exchange,
    state: State,
    value: tf.Tensor,
    arrived: Entries,
    note: Note,
    chosen: list[tf.Tensor | None],
    others: list[Note],
) -> tuple[list[Entries], Edits]:
    """What is to be subtracted from a block for one push, and the edits of the server's state.

    The merge rule sees the push, and from every other worker that takes part zeros: so a mean over workers weighs it
    by 1/K, a mean over contributors by one over those that sent the entry last, weights by data or loss by what the
    others reported last.

    Args:
        exchange: the method.
        state, value: the server's state of the block and the block, f32[n].
        arrived, note: the push, and what is known of it.
        chosen: for each worker the entries of its last push, i32[k]; None where it sends all.
        others: for each worker the note of its last push; the one whose push this is is not present.
    """
    if not any(getattr(rule, "counts_senders", False) for rule in layers_of(exchange.method.merge)):
        rest = [_nothing() for _ in others]
    elif arrived.index is None:
        rest = [Entries(None, tf.zeros([])) for _ in others]
    else:
        rest = [_zeros_at(index, other) for index, other in zip(chosen, others)]
    return exchange.merge(state, value, [arrived, *rest], [note, *others])


def _nothing() -> Entries:
    return Entries(tf.zeros([0], tf.int32), tf.zeros([0]))


def _zeros_at(index: tf.Tensor, note: Note) -> Entries:
    index = tf.cond(note.present, lambda: index, lambda: tf.zeros([0], tf.int32))
    return Entries(index, tf.zeros_like(index, tf.float32))
