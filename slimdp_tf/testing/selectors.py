"""The contract of selectors."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from slimdp_tf.testing.contract import F32, I32, SEED, Contract, draw_normal, make_seed, require
from slimdp_tf.types import Selector, State

_AGREED = {
    "core": I32,
    "free": I32,
    "share": tf.TensorSpec([4], tf.int64),
    "pushed": I32,
    "round": tf.TensorSpec([], tf.int32),
    "local": F32,
}


class SelectorContract(Contract):
    """Of `types.Selector`: distinct positions within the block, drawn from the seed and nothing else.

    Attributes:
        is_random: another seed gives another choice.
        is_outside_core: never picks an entry of the core.
    """

    is_random = True
    is_outside_core = False
    cuts = (  # sizes of the blocks, and the core of each
        ([40], [[]]),
        ([13, 1, 1, 5, 26], [[1, 2, 12], [0], [], range(5), []]),
        ([5], [range(5)]),
    )

    def total(self, rule, entries: int, outside: int) -> int | None:
        """How many are picked over all blocks, of so many entries, so many of them outside the core; None: any."""
        return None

    def test_picks_distinct_positions_in_range(self):
        for rule, size, agreed, picked in self._list_picks():
            require(picked.dtype == np.int32 and picked.ndim == 1, f"{rule}: {picked!r} is not i32[k]")
            require(len(set(picked.tolist())) == len(picked), f"{rule} picks twice: {picked}")
            require(all(0 <= i < size for i in picked), f"{rule} picks beyond {size}: {picked}")
            shared = set(picked.tolist()) & set(agreed["core"].numpy().tolist())
            require(not (self.is_outside_core and shared), f"{rule} picks {shared} of the core")

    def test_picks_as_many_as_it_says(self):
        for sizes, cores in self.cuts:
            outside = sum(sizes) - sum(len(core) for core in cores)
            for rule in self.rules():
                picks = [_pick(rule, s, a, make_seed(j)) for j, (s, a) in enumerate(zip(sizes, agree(cores, sizes)))]
                wanted, count = self.total(rule, sum(sizes), outside), sum(map(len, picks))
                require(wanted in (None, count), f"{rule} picks {count} of {sizes}, not {wanted}")

    def test_repeats_its_choice(self):
        for rule, size, agreed, picked in self._list_picks():
            np.testing.assert_array_equal(picked, _pick(rule, size, agreed, make_seed(0)), f"{rule}")
            if rule.blind or not rule.keyed:  # then who has no values must be able to make the choice, too
                np.testing.assert_array_equal(
                    picked, _pick(rule, size, agreed, make_seed(0), has_values=False), f"{rule}"
                )

    def test_another_seed_is_another_choice(self):
        (agreed,) = agree([[]], [400])
        for rule in self.rules():
            first, other = (_pick(rule, 400, agreed, make_seed(number)).tolist() for number in (1, 2))
            require((first != other) == self.is_random, f"{rule}: is_random is not {self.is_random}")

    def test_traced_and_eager_agree(self):
        rules = self.rules()
        traced = {rule: tf.function(rule.pick, [F32, _AGREED, SEED]) for rule in rules}
        for rule, size, agreed, picked in self._list_picks(rules):
            again = traced[rule](draw_normal(size), agreed, make_seed(0))
            np.testing.assert_array_equal(picked, np.arange(size) if again is None else again, f"{rule}")

    def _list_picks(self, rules=None):
        for sizes, cores in self.cuts:
            for size, agreed in zip(sizes, agree(cores, sizes)):
                for rule in rules or self.rules():
                    yield rule, size, agreed, _pick(rule, size, agreed, make_seed(0))


def agree(cores: list, sizes: list[int]) -> list[State]:
    """What selectors are given of every block: the core, the block's share of the rest, the last entries pushed, ..."""
    outside = [size - len(core) for core, size in zip(cores, sizes)]
    return [
        {
            "core": tf.constant(list(core), tf.int32),
            "free": tf.constant(sorted(set(range(size)) - set(core)), tf.int32),
            "share": tf.constant([sum(outside[:j]), outside[j], sum(outside), sum(sizes)], tf.int64),
            "pushed": tf.range(size - 1, -1, -2, tf.int32),
            "round": tf.constant(3),
            "local": draw_normal(size, 9),
        }
        for j, (core, size) in enumerate(zip(cores, sizes))
    ]


def _pick(rule: Selector, size: int, agreed: State, seed: tf.Tensor, has_values: bool = True) -> np.ndarray:
    """The positions picked, all of them for None."""
    picked = rule.pick(draw_normal(size) if has_values else None, agreed, seed)
    return np.arange(size, dtype=np.int32) if picked is None else picked.numpy()
