"""The contract of selectors finds broken ones."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from slimdp_tf.rules.selectors import Core, Explore
from slimdp_tf.testing import SelectorContract
from slimdp_tf.testing.selectors import agree
from tests.testing.breaches import breaks, find_breaches


@dataclasses.dataclass(frozen=True)
class Anywhere:
    """Draws with replacement, from the core as well."""

    keyed = True
    blind = True

    def pick(self, value, agreed, seed):
        here = tf.cast(agreed["share"][1], tf.int32) + tf.size(agreed["core"])
        return tf.random.stateless_uniform([here // 3], seed, 0, here, tf.int32)


@dataclasses.dataclass(frozen=True)
class Beyond(Core):
    def pick(self, value, agreed, seed):
        return agreed["core"] + 1


@dataclasses.dataclass(frozen=True)
class Long(Core):
    def pick(self, value, agreed, seed):
        return tf.cast(agreed["core"], tf.int64)


@dataclasses.dataclass(frozen=True)
class Greatest:
    """Needs the values, and sends no keys all the same."""

    keyed: bool = False
    blind = False

    def pick(self, value, agreed, seed):
        value = tf.zeros([40]) if value is None else value
        return tf.math.top_k(value, tf.minimum(1, tf.size(value))).indices


@dataclasses.dataclass(frozen=True)
class Stuck(Explore):
    """Draws the same explorer in every round."""

    def pick(self, value, agreed, seed):
        return super().pick(value, agreed, tf.constant([1, 1]))


@dataclasses.dataclass(frozen=True)
class Frozen(Explore):
    """Draws in Python: once per trace, and never the same."""

    def pick(self, value, agreed, seed):
        return super().pick(value, agreed, tf.constant([next(COUNTER), 1]))


COUNTER = iter(range(10**6))


class OutsideContract(SelectorContract):
    is_outside_core = True

    def total(self, rule, entries, outside):
        return min(round(0.25 * entries), outside) if entries > 1 else None


def test_keeps_the_good():
    # Those of the package are kept in tests/rules.
    assert find_breaches(SelectorContract, Greatest(keyed=True), is_random=False) == set()


def test_finds_duplicates_and_the_core():
    name = "picks_distinct_positions_in_range"
    assert breaks(SelectorContract, name, Anywhere())
    assert breaks(SelectorContract, name, Core(), is_outside_core=True)
    assert not breaks(SelectorContract, name, Core())


def test_finds_what_is_out_of_range_or_no_int32():
    for rule in (Beyond(), Long()):
        assert breaks(SelectorContract, "picks_distinct_positions_in_range", rule)


def test_finds_another_number():
    assert find_breaches(OutsideContract, Explore(0.5)) == {"picks_as_many_as_it_says"}


def test_finds_a_choice_that_the_receiver_cannot_repeat():
    assert find_breaches(SelectorContract, Greatest(), is_random=False) == {"repeats_its_choice"}


def test_finds_randomness_that_is_not_the_seed_s():
    assert breaks(SelectorContract, "another_seed_is_another_choice", Stuck(0.25))
    for name in ("repeats_its_choice", "traced_and_eager_agree"):
        assert breaks(SelectorContract, name, Frozen(0.25))


def test_agreed_by_hand():
    first, second = agree([[1], []], [3, 4])
    assert first["core"].numpy().tolist() == [1]
    assert (first["share"].numpy().tolist(), second["share"].numpy().tolist()) == ([0, 2, 6, 7], [2, 4, 6, 7])
    assert second["pushed"].numpy().tolist() == [3, 1]
