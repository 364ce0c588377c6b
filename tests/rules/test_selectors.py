"""Selectors: the explorer is uniform, outside the core and exact in number over all blocks; the others are given."""

from __future__ import annotations

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from slimdp_tf.rules.agreements import SignificantCore
from slimdp_tf.rules.selectors import Core, Dense, Explore, Pushed
from slimdp_tf.testing import SelectorContract
from slimdp_tf.testing.selectors import agree
from slimdp_tf.types import anywhere


class TestDense(SelectorContract):
    is_random = False

    def rules(self):
        return [Dense()]

    def total(self, rule, entries, outside):
        return entries


class TestCore(SelectorContract):
    is_random = False

    def rules(self):
        return [Core()]

    def total(self, rule, entries, outside):
        return entries - outside


class TestPushed(SelectorContract):
    is_random = False

    def rules(self):
        return [Pushed()]


class TestExplore(SelectorContract):
    is_outside_core = True

    def rules(self):
        return [Explore(0.15), Explore(0.02), Explore(0.5, keyed=False)]

    def total(self, rule, entries, outside):
        return min(max(1, round(rule.ratio * entries)), outside)


class TestExploreAll(SelectorContract):
    """Everything outside the core, or nothing: there is no choice."""

    is_random = False
    is_outside_core = True

    def rules(self):
        return [Explore(1.0), Explore(0.0)]

    def total(self, rule, entries, outside):
        return outside if rule.ratio else 0


def explore(ratio: float, size: int, core=(), number: int = 0) -> np.ndarray:
    (agreed,) = agree([core], [size])
    return Explore(ratio).pick(None, agreed, tf.constant([number, 77], tf.int32)).numpy()


def count_picks(ratio: float, size: int, core=(), draws: int = 4000) -> np.ndarray:
    """How often each entry is picked, i64[size]."""
    (agreed,) = agree([core], [size])
    seeds = tf.stack([tf.range(draws), tf.fill([draws], 77)], 1)

    @tf.function
    def run():
        picked = tf.map_fn(lambda s: Explore(ratio).pick(None, agreed, s), seeds, tf.int32)
        return tf.math.bincount(tf.reshape(picked, [-1]), minlength=size)

    return run().numpy()


# -- by hand ------------------------------------------------------------------------------------------------------


def test_given_entries_are_picked_as_they_are():
    (agreed,) = agree([[1, 4]], [6])
    assert Core().pick(None, agreed, None).numpy().tolist() == [1, 4]
    assert Pushed().pick(None, agreed, None).numpy().tolist() == [5, 3, 1]
    assert Dense().pick(None, agreed, None) is None


def test_all_but_the_core_when_as_many_are_wanted():
    # 8 entries, core {0, 3, 4}: 5 are left, and round(0.625 * 8) = 5 are wanted.
    assert explore(0.625, 8, [0, 3, 4]).tolist() == [1, 2, 5, 6, 7]
    assert explore(1.0, 8, [0, 3, 4]).tolist() == [1, 2, 5, 6, 7]
    assert explore(0.5, 3, [0, 1, 2]).tolist() == []


def test_numbers_per_block():
    # 30 entries, ratio 0.2: 6 wanted of 24 outside. Outside before and in each block: (0, 8), (8, 10), (18, 6).
    # floor(6 * 8 / 24) = 2, floor(6 * 18 / 24) = 4, 6: so 2, 2 and 2.
    blocks = agree([[0, 1], [], [3, 4, 5, 6]], [10, 10, 10])
    picks = [Explore(0.2).pick(None, agreed, tf.constant([1, 2], tf.int32)) for agreed in blocks]
    assert [len(pick) for pick in picks] == [2, 2, 2]


def test_half_is_rounded_to_even_as_python_does():
    for size in (10, 30, 50):  # 1.5, 4.5, 7.5
        assert len(explore(0.15, size)) == round(0.15 * size)


def test_one_entry_at_least_is_explored():
    assert len(explore(0.01, 20)) == 1  # round(0.2) = 0 would mean that nothing is ever sent
    assert len(explore(0.0, 20)) == 0


# -- as a distribution --------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ratio", "size", "core"),
    [(0.1, 40, ()), (0.25, 41, ()), (0.3, 23, (0, 1, 2, 10, 22)), (0.04, 50, ())],
    ids=["even", "uneven", "core", "two"],
)
def test_every_entry_outside_the_core_is_as_likely(ratio, size, core):
    draws = 4000
    counts, outside = count_picks(ratio, size, core, draws), np.setdiff1d(np.arange(size), core)
    wanted = round(ratio * size)
    assert counts.sum() == wanted * draws
    assert counts[list(core)].sum() == 0
    share = wanted / len(outside)  # each entry is in or out of a draw: a binomial of this share
    deviation = (counts[outside] - share * draws) / np.sqrt(draws * share * (1 - share))
    assert np.abs(deviation).max() < 4.5
    # Entries of one draw exclude one another, so the sum of squares is rather below the chi-square of this size.
    degrees = len(outside) - 1
    assert (deviation**2).sum() < degrees + 4 * np.sqrt(2 * degrees)


@pytest.mark.slow
def test_neighbours_are_both_picked_at_times():
    (agreed,) = agree([[]], [40])
    pairs = [np.diff(Explore(0.25).pick(None, agreed, tf.constant([i, 1], tf.int32)).numpy()) for i in range(60)]
    assert np.concatenate(pairs).min() == 1


def test_each_worker_round_and_block_has_its_own():
    picks = {tuple(explore(0.1, 400, number=number)) for number in range(50)}
    assert len(picks) == 50


@pytest.mark.slow
@hypothesis.settings(max_examples=30)
@hypothesis.given(
    ratio=st.floats(0, 1, allow_subnormal=False),
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=5).filter(sum),
    draw=st.data(),
)
def test_is_exact_distinct_and_outside(ratio, sizes, draw):
    cores = [sorted(draw.draw(st.sets(st.integers(0, size - 1)))) if size else [] for size in sizes]
    outside = sum(sizes) - sum(map(len, cores))
    picks = [
        Explore(ratio).pick(None, agreed, tf.constant([j, 0], tf.int32)).numpy()
        for j, agreed in enumerate(agree(cores, sizes))
    ]
    assert sum(map(len, picks)) == min(outside, max(round(ratio * sum(sizes)), ratio > 0))
    for pick, core, size in zip(picks, cores, sizes):
        assert (np.diff(pick) > 0).all()
        assert not set(pick.tolist()) & set(core)
        assert pick.min(initial=0) >= 0 and pick.max(initial=-1) < size


def test_agrees_with_what_the_core_says_of_itself():
    keys = SignificantCore(0.2, 5).refresh([tf.range(10.0), tf.range(20.0)], [tf.zeros([10]), tf.zeros([20])], anywhere)
    told = SignificantCore(0.2, 5).agree(keys, [10, 20])
    for agreed, mine in zip(told, agree([k.numpy().tolist() for k in keys], [10, 20])):
        np.testing.assert_array_equal(agreed["share"], mine["share"])


# -- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ratio", [-0.1, 1.1, float("nan"), float("inf"), True, "0.1", None])
def test_refuses_ratio(ratio):
    with pytest.raises(ValueError, match=r"ratio \(alpha - beta\) must be a number within \[0, 1\]\. Received: "):
        Explore(ratio)


@pytest.mark.parametrize("keyed", [1, "sent", None])
def test_refuses_keyed(keyed):
    with pytest.raises(ValueError, match=r"keyed must be True .* Received: "):
        Explore(0.1, keyed)
