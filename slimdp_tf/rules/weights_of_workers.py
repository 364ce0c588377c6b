"""How much each worker's push counts on the SERVER: by the steps behind it, or by the loss it comes with."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from slimdp_tf.types import Edits, Entries, Merge, Note, State, is_number


@dataclasses.dataclass(frozen=True)
class ByData:
    """w <- w - sum_k (n_k / n) delta_k, n_k the local steps behind the push: as many batches of data.

    Reference: McMahan et al. 2017 (FedAvg), algorithm 1. Batches are of one size, so steps count the examples.
    """

    def init(self, value: tf.Tensor) -> State:
        return {}

    def merge(
        self, state: State, value: tf.Tensor, incoming: list[Entries], notes: list[Note]
    ) -> tuple[list[Entries], Edits]:
        steps = [tf.where(note.present, tf.cast(note.steps, tf.float32), 0.0) for note in notes]
        total = tf.maximum(tf.add_n(steps), 1.0)
        return [Entries(e.index, e.value * (here / total)) for e, here in zip(incoming, steps)], {}


@dataclasses.dataclass(frozen=True)
class ByLoss:
    """Each push times lambda_k = clip((L / loss_k)^kappa, least, most), L the mean loss of this round and the last.

    A worker whose loss is not known counts as one. The window is 2 K losses: those of two rounds.

    Args:
        fold: what folds the weighted pushes.
        kappa: how much the loss matters; 0: not at all.
        least, most: bounds of lambda.

    Inspired by Zhang et al. (SaPus, 2021), who weigh gradients by the most recent global loss; the formula is ours.
    """

    fold: Merge
    kappa: float = 1.0
    least: float = 0.1
    most: float = 1.5

    def __post_init__(self):
        if not is_number(self.kappa) or self.kappa < 0.0:
            raise ValueError(f"kappa must be a number of at least 0. Received: {self.kappa!r}")
        if not (is_number(self.least) and is_number(self.most) and 0.0 < self.least <= self.most):
            raise ValueError(f"least and most must be 0 < least <= most. Received: {self.least!r}, {self.most!r}")

    def init(self, value: tf.Tensor) -> State:
        return {"losses": tf.zeros([2]), **self.fold.init(value)}

    def merge(
        self, state: State, value: tf.Tensor, incoming: list[Entries], notes: list[Note]
    ) -> tuple[list[Entries], Edits]:
        losses = tf.stack([note.loss for note in notes])
        is_known = tf.stack([note.present for note in notes]) & tf.math.is_finite(losses) & (losses > 0.0)
        now = tf.stack([tf.reduce_sum(tf.where(is_known, losses, 0.0)), tf.reduce_sum(tf.cast(is_known, tf.float32))])
        total, count = tf.unstack(state["losses"] + now)  # of the last round and this one
        ratio = tf.math.divide_no_nan(total, count) / tf.where(is_known, losses, 1.0)
        weight = tf.where(is_known, tf.clip_by_value(ratio**self.kappa, self.least, self.most), 1.0)
        weighted = [Entries(e.index, e.value * weight[k]) for k, e in enumerate(incoming)]
        increments, edits = self.fold.merge(state, value, weighted, notes)
        return increments, {**edits, "losses": now}
