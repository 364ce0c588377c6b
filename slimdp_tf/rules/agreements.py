"""What both ends HOLD: nothing, or the keys of the significant core, with a signature that stands for them."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from slimdp_tf.types import On, State, anywhere, is_number


@dataclasses.dataclass(frozen=True)
class Nothing:
    """No keys are held; the core is empty."""

    period = 0
    whole = False

    def refresh(
        self, values: list[tf.Tensor], updates: list[tf.Tensor], on: On, keys: list[tf.Tensor] | None = None
    ) -> list[tf.Tensor]:
        return [tf.zeros([0], tf.int32) for _ in values]

    def agree(self, keys: list[tf.Tensor], sizes: list[int], on: On = anywhere) -> list[State]:
        return _shares(keys, sizes, on)


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
        total = sum(int(value.shape[0]) for value in values)
        wanted = int(round(self.beta * total))
        gradients = []
        for j, update in enumerate(updates):
            with on(j):
                gradients.append(self._per_round(tf.abs(update), None if keys is None else keys[j]))
        c = self._scale(values, gradients, on)
        bits = []
        for j, (value, gradient) in enumerate(zip(values, gradients)):
            with on(j):  # S >= 0, so the order of floats is the order of their bits
                bits.append(tf.bitcast(tf.abs(value) + c * gradient, tf.int32))
        return _greatest(bits, wanted, on)

    def _per_round(self, size: tf.Tensor, core: tf.Tensor | None) -> tf.Tensor:
        """|update| of a block -> what of it falls on one round; before there is a core, all of it does."""
        if core is None or self.waited == 1.0:
            return size
        share = tf.where(tf.size(core) > 0, tf.constant(1.0 / self.waited, tf.float32), 1.0)
        return tf.tensor_scatter_nd_update(size * share, core[:, None], tf.gather(size, core))

    def agree(self, keys: list[tf.Tensor], sizes: list[int], on: On = anywhere) -> list[State]:
        return _shares(keys, sizes, on)

    def _scale(self, values: list[tf.Tensor], updates: list[tf.Tensor], on: On) -> tf.Tensor:
        if self.c != "auto":
            return tf.constant(self.c, tf.float32)
        weight, update = [], []
        for j, (w, g) in enumerate(zip(values, updates)):
            with on(j):
                weight.append(tf.reduce_sum(tf.abs(w)))
                update.append(tf.reduce_sum(tf.abs(g)))
        with on(0):
            return tf.math.divide_no_nan(tf.add_n(weight), tf.add_n(update))


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


def _shares(keys: list[tf.Tensor], sizes: list[int], on: On) -> list[State]:
    """What `rules.selectors` is given: the core of each block and the block's share of the entries outside it."""
    free = []
    for j, (core, size) in enumerate(zip(keys, sizes)):
        with on(j):  # only the count leaves the block's place
            free.append(tf.constant(size, tf.int64) - tf.size(core, tf.int64))
    with on(0):
        outside, total, before, agreed = tf.add_n(free), tf.constant(sum(sizes), tf.int64), tf.zeros([], tf.int64), []
        for core, here in zip(keys, free):
            agreed.append({"core": core, "share": tf.stack([before, here, outside, total])})
            before = before + here
        return agreed


_DIGITS = ((20, 11), (10, 10), (0, 10))  # (lowest bit, bits): the 31 bits of a float that is not negative


def _greatest(bits: list[tf.Tensor], wanted: int, on: On) -> list[tf.Tensor]:
    """Positions of the `wanted` greatest of all `bits`, i32[n_j] each, ascending per block; ties to the lower index.

    The threshold is found exactly in O(n), digit by digit, with a histogram per digit and block: 16 kB per block move
    to where block 0 lives.
    """
    if wanted == 0:
        return [tf.zeros([0], tf.int32) for _ in bits]
    threshold, ties_left = tf.zeros([], tf.int32), tf.constant(wanted, tf.int32)
    for lowest, width in _DIGITS:
        digit, above = _digit(bits, threshold, ties_left, lowest, width, on)
        with on(0):
            threshold, ties_left = threshold + tf.bitwise.left_shift(digit, lowest), ties_left - above
    picked = []
    for j, b in enumerate(bits):
        with on(j):
            tied = tf.cast(tf.equal(b, threshold), tf.int32)
            rank = tf.cumsum(tied)
            chosen = (b > threshold) | ((tied > 0) & (rank <= ties_left))
            picked.append(tf.cast(tf.where(chosen)[:, 0], tf.int32))
            ties_left = ties_left - tf.minimum(tf.reduce_sum(tied), ties_left)
    return picked


def _digit(bits, known, wanted, lowest: int, width: int, on: On) -> tuple[tf.Tensor, tf.Tensor]:
    """The threshold's digit of `width` bits from bit `lowest` up, and how many entries lie above that digit.

    Of the entries that have the threshold's `known` higher digits, `wanted` are to lie at the threshold or above it.
    """
    counts = []
    for j, b in enumerate(bits):
        with on(j):
            digit = tf.bitwise.right_shift(b - known, lowest)  # within [0, 2^width) where the higher digits are known
            digit = tf.where(digit < 1 << width, digit, -1)  # a negative one is not counted
            counts.append(tf.math.unsorted_segment_sum(tf.ones_like(b), digit, 1 << width))
    with on(0):
        from_above = tf.cumsum(tf.add_n(counts), reverse=True)  # entries with this digit or a greater one
        found = tf.reduce_sum(tf.cast(from_above >= wanted, tf.int32)) - 1
        above = tf.concat([from_above[1:], [0]], 0)[found]
        return found, above
