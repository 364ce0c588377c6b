"""What both ends HOLD: nothing, or the keys of the significant core, with a signature that stands for them."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from slimdp_tf.chunks import by_chunks
from slimdp_tf.ranking import greatest
from slimdp_tf.types import Agreement, Entries, On, State, anywhere, is_number, written


@dataclasses.dataclass(frozen=True)
class Nothing:
    """No keys are held; the core is empty."""

    period = 0
    whole = False
    lists = ("core",)

    def refresh(
        self, values: list[tf.Tensor], updates: list[tf.Tensor], on: On, keys: list[tf.Tensor] | None = None
    ) -> list[tf.Tensor]:
        return [tf.zeros([0], tf.int32) for _ in values]

    def agree(self, keys: list[tf.Tensor], sizes: list[int], on: On = anywhere) -> list[State]:
        return _agree(self, keys, sizes, on)

    def hold(self, core: tf.Tensor, share: tf.Tensor) -> State:
        return {"core": core, "share": share}


@dataclasses.dataclass(frozen=True)
class SignificantCore:
    """The core of Slim-DP: the round(beta n) entries of greatest significance S = |w| + c|g| (sections 3.2, 3.3).

    The ranking is exact and spans all blocks; of equals the lower index is taken. g is the latest mean update over
    workers, as the paper takes an old gradient to save a backward pass. The order of S does not change when g is
    scaled by a constant that c divides out, so the update stands for eta * p times the gradient.

    Args:
        beta: the core's share of all n entries, in [0, 1].
        period: q, rounds between two selections, at least 1.
        c: weight of |g|; "auto" is mean|w| / mean|g| at each selection (0 where g is zero). The paper gives no value.
        waited: rounds that the update of an entry outside the core stands for: 1 where the unsent is forgotten (the
            paper); more where it is carried, or what is merely late would look significant.
    """

    beta: float
    period: int
    c: float | str = "auto"
    waited: float = 1.0
    whole = True
    lists = ("core", "free")

    def __post_init__(self):
        if not is_number(self.beta) or not 0.0 <= self.beta <= 1.0:
            raise ValueError(f"beta, the core's share, must be a number within [0, 1]. Received: {self.beta!r}")
        if isinstance(self.period, bool) or not isinstance(self.period, int) or self.period < 1:
            raise ValueError(
                f"q, the rounds between two core selections, must be an integer of at least 1. "
                f"Received: {self.period!r}"
            )
        if self.c != "auto" and not (is_number(self.c) and self.c >= 0.0):
            raise ValueError(f"c, the weight of |g|, must be 'auto' or a number of at least 0. Received: {self.c!r}")
        if not is_number(self.waited) or self.waited < 1.0:
            raise ValueError(f"waited, in rounds, must be a number of at least 1. Received: {self.waited!r}")

    def refresh(
        self, values: list[tf.Tensor], updates: list[tf.Tensor], on: On, keys: list[tf.Tensor] | None = None
    ) -> list[tf.Tensor]:
        wanted = int(round(self.beta * sum(int(value.shape[0]) for value in values)))
        if self.waited > 1.0 and keys is not None:
            updates = self._per_round(updates, keys, on)
        c = self._scale(values, updates, on)

        def significance(value: tf.Tensor, update: tf.Tensor) -> tf.Tensor:
            return tf.abs(value) + c * tf.abs(update)

        return greatest([[value, update] for value, update in zip(values, updates)], significance, wanted, on)

    def _per_round(self, updates: list[tf.Tensor], keys: list[tf.Tensor], on: On) -> list[tf.Tensor]:
        """What of the update of every entry falls on one round; before there is a core, all of it does."""
        shares = []
        for j, (update, core) in enumerate(zip(updates, keys)):
            with on(j):
                share = tf.where(tf.size(core) > 0, tf.constant(1.0 / self.waited, tf.float32), 1.0)
                shares.append(written(update * share, Entries(core, tf.gather(update, core))))
        return shares

    def agree(self, keys: list[tf.Tensor], sizes: list[int], on: On = anywhere) -> list[State]:
        return _agree(self, keys, sizes, on)

    def hold(self, core: tf.Tensor, share: tf.Tensor) -> State:
        size = tf.cast(share[1], tf.int32) + tf.size(core)
        is_free = tf.tensor_scatter_nd_update(tf.ones([size], tf.bool), core[:, None], tf.zeros_like(core, tf.bool))
        return {"core": core, "share": share, "free": tf.cast(tf.where(is_free)[:, 0], tf.int32)}

    def _scale(self, values: list[tf.Tensor], updates: list[tf.Tensor], on: On) -> tf.Tensor:
        if self.c != "auto":
            return tf.constant(self.c, tf.float32)
        sums = []
        for j, (value, update) in enumerate(zip(values, updates)):
            with on(j):
                sizes = by_chunks(_sum_sizes, [value, update], [tf.float32, tf.float32])
                sums.append([tf.reduce_sum(size) for size in sizes])
        with on(0):
            weight, update = (tf.add_n(parts) for parts in zip(*sums))
            return tf.math.divide_no_nan(weight, update)


def _sum_sizes(number: tf.Tensor, *chunk: tf.Tensor) -> list[tf.Tensor]:
    return [tf.reduce_sum(tf.abs(part), keepdims=True) for part in chunk]


def sign(keys: tf.Tensor, version: tf.Tensor) -> tf.Tensor:
    """Signature of a key list: (version, length, hash of the whole list), i64[3].

    Every key is mixed with its place, so that lists which differ in one key anywhere, or only in order, differ. The
    mixing of a key is one to one (no step loses a bit), so one other key always gives another sum.
    """
    place = tf.range(tf.size(keys, tf.int64), dtype=tf.int64)
    mixed = tf.cast(keys, tf.int64) + place * tf.constant(0x9E3779B97F4A7C1, tf.int64)
    for shift, factor in ((29, 0xBF58476D1CE4E5B), (32, 0x94D049BB1331EB)):
        shifted = tf.bitwise.right_shift(mixed, tf.constant(shift, tf.int64))
        shifted = tf.bitwise.bitwise_and(shifted, tf.constant((1 << (64 - shift)) - 1, tf.int64))  # without the sign
        mixed = tf.bitwise.bitwise_xor(mixed, shifted) * tf.constant(factor, tf.int64)
    return tf.stack([tf.cast(version, tf.int64), tf.size(keys, tf.int64), tf.reduce_sum(mixed)])


def _agree(rule: Agreement, keys: list[tf.Tensor], sizes: list[int], on: On) -> list[State]:
    """What both ends hold of each block: its keys, and its share of the entries outside them."""
    free = []
    for j, (core, size) in enumerate(zip(keys, sizes)):
        with on(j):  # only the count leaves the block's place
            free.append(tf.constant(size, tf.int64) - tf.size(core, tf.int64))
    with on(0):
        outside, total, before, shares = tf.add_n(free), tf.constant(sum(sizes), tf.int64), tf.zeros([], tf.int64), []
        for here in free:
            shares.append(tf.stack([before, here, outside, total]))
            before = before + here
    agreed = []
    for j, (core, share) in enumerate(zip(keys, shares)):
        with on(j):
            agreed.append(rule.hold(core, tf.identity(share)))
    return agreed
