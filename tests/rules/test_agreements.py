"""The core is the exact global top of |w| + c|g|, ties to the lower index; its signature tells any two lists apart."""

from __future__ import annotations

import contextlib

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from slimdp_tf.rules.agreements import Nothing, SignificantCore, sign
from slimdp_tf.testing import AgreementContract
from slimdp_tf.types import anywhere


class TestNothing(AgreementContract):
    def rules(self):
        return [Nothing()]


class TestSignificantCore(AgreementContract):
    def rules(self):
        return [SignificantCore(0.25, 10), SignificantCore(0.1, 10, 0.5)]


def refresh(rule, weights, updates, sizes=None) -> list[int]:
    """Positions in the model, of a model in blocks of these sizes."""
    sizes = sizes or [len(weights)]
    values, moves = (tf.split(tf.constant(x, tf.float32), sizes) for x in (weights, updates))
    keys = rule.refresh(values, moves, anywhere)
    return [int(key) + sum(sizes[:j]) for j, block in enumerate(keys) for key in block.numpy()]


def find_top(significance, wanted: int) -> list[int]:
    """The oracle: the `wanted` greatest, of equals the first, ascending."""
    order = np.lexsort([np.arange(len(significance)), -significance])
    return sorted(order[:wanted].tolist())


# -- by hand ------------------------------------------------------------------------------------------------------


def test_significance_by_hand():
    # S = |w| + 2 |g| = (1 + 0, 2 + 2, 0 + 4, 3 + 0, 0.5 + 1) = (1, 4, 4, 3, 1.5); round(0.4 * 5) = 2 greatest: 1, 2.
    weights, updates = [1.0, -2.0, 0.0, 3.0, -0.5], [0.0, 1.0, -2.0, 0.0, 0.5]
    assert refresh(SignificantCore(0.4, 1, 2.0), weights, updates) == [1, 2]
    # Without g: the greatest |w| are 3 and 2.
    assert refresh(SignificantCore(0.4, 1, 0.0), weights, updates) == [1, 3]


def test_auto_brings_both_to_one_scale_by_hand():
    # mean|w| = (1 + 2 + 3 + 2)/4 = 2, mean|g| = (.04 + .02 + 0 + .02)/4 = .02, c = 100: S = (5, 4, 3, 4).
    weights, updates = [1.0, -2.0, 3.0, 2.0], [0.04, -0.02, 0.0, 0.02]
    assert refresh(SignificantCore(0.25, 1), weights, updates) == [0]
    assert refresh(SignificantCore(0.5, 1), weights, updates) == [0, 1]
    assert refresh(SignificantCore(0.75, 1), weights, updates) == [0, 1, 3]


def test_auto_does_not_feel_the_learning_rate():
    rng = np.random.default_rng(0)
    weights, updates = rng.normal(size=200), rng.normal(size=200)
    cores = [refresh(SignificantCore(0.2, 1), weights, updates * 2.0**scale) for scale in (-20, 0, 7)]
    assert cores[0] == cores[1] == cores[2]


def test_auto_without_updates_ranks_by_weight():
    assert refresh(SignificantCore(0.5, 1), [1.0, -4.0, 2.0, 3.0], [0.0] * 4) == [1, 3]


def test_number_is_rounded_as_python_does():
    for size in (10, 30, 50):
        assert len(refresh(SignificantCore(0.15, 1), np.arange(size), np.zeros(size))) == round(0.15 * size)


# -- against the oracle -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [[600], [200, 200, 200], [1, 598, 1], [599, 1]], ids=str)
@pytest.mark.parametrize("beta", [0.0, 0.001, 0.1, 0.5, 1.0])
def test_is_the_exact_global_top(sizes, beta):
    rng = np.random.default_rng(7)
    weights, updates = (rng.normal(size=600).astype(np.float32) for _ in range(2))
    weights[::7] = 0.0
    updates[::7] = 0.0
    significance = np.abs(weights) + np.float32(0.5) * np.abs(updates)
    assert refresh(SignificantCore(beta, 1, 0.5), weights, updates, sizes) == find_top(significance, round(beta * 600))


@pytest.mark.parametrize("fill", [0.0, 1.0, 1e-42, 3e38, np.inf, np.nan], ids=str)
@pytest.mark.parametrize("sizes", [[20], [3, 10, 7]], ids=str)
def test_of_equals_the_first_are_taken(fill, sizes):
    assert refresh(SignificantCore(0.3, 1, 0.0), np.full(20, fill), np.zeros(20), sizes) == list(range(6))


def test_values_that_differ_in_the_last_bit_are_told_apart():
    weights = np.float32(1.0) + np.arange(100, dtype=np.float32)[::-1] * np.float32(2.0**-23)
    assert len(set(weights.tolist())) == 100
    assert refresh(SignificantCore(0.05, 1, 0.0), weights[::-1], np.zeros(100)) == [95, 96, 97, 98, 99]
    assert refresh(SignificantCore(0.05, 1, 0.0), weights, np.zeros(100), [30, 70]) == [0, 1, 2, 3, 4]


@pytest.mark.slow
@hypothesis.settings(max_examples=30)
@hypothesis.given(
    weights=st.lists(
        st.one_of(st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0]), st.floats(width=32, allow_nan=False)),
        min_size=1,
        max_size=40,
    ),
    beta=st.floats(0, 1),
    data=st.data(),
)
def test_is_the_exact_global_top_of_anything(weights, beta, data):
    weights = np.array(weights, np.float32)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(weights)), max_size=3)))
    sizes = np.diff([0, *cuts, len(weights)]).tolist()
    wanted = round(beta * len(weights))
    assert refresh(SignificantCore(beta, 1, 0.0), weights, np.zeros(len(weights)), sizes) == find_top(
        np.abs(weights), wanted
    )


def test_works_where_the_blocks_are():
    visited = []

    def on(block):
        visited.append(block)
        return contextlib.nullcontext()

    keys = SignificantCore(0.5, 1).refresh([tf.ones([3]), tf.ones([2])], [tf.ones([3]), tf.ones([2])], on)
    assert set(visited) == {0, 1}
    visited.clear()
    SignificantCore(0.5, 1).agree(keys, [3, 2], on)
    assert set(visited) == {0, 1}


# -- the signature ------------------------------------------------------------------------------------------------


def sign_keys(keys, version=1) -> tuple[int, ...]:
    return tuple(sign(tf.constant(keys, tf.int32), version).numpy().tolist())


def test_signature_says_version_and_length():
    signature = sign(tf.constant([3, 5, 9], tf.int32), 7)
    assert (signature.dtype, signature.shape) == (tf.int64, [3])
    assert signature.numpy()[:2].tolist() == [7, 3]
    assert sign_keys([], 0) == (0, 0, 0)


def test_signature_is_the_same_for_the_same_list():
    keys = np.arange(0, 3000, 3)
    assert sign_keys(keys) == sign_keys(keys.copy())
    traced = tf.function(sign)(tf.constant(keys, tf.int32), tf.constant(1))
    assert tuple(traced.numpy().tolist()) == sign_keys(keys)


def test_signature_tells_any_one_key_anywhere():
    keys = np.arange(0, 20000, 2)
    original = sign_keys(keys)
    for place in [0, 1, 511, 4999, 5000, 9998, 9999]:
        for other in (keys[place] + 1, keys[place] ^ 0x40000000, 0x7FFFFFFF):
            changed = keys.copy()
            changed[place] = other
            assert sign_keys(changed) != original, place


def test_signature_tells_any_two_that_are_swapped():
    keys = np.arange(0, 4000, 2)
    original = sign_keys(keys)
    for one, other in [(0, 1), (0, 1999), (998, 1001), (1998, 1999)]:
        changed = keys.copy()
        changed[[one, other]] = changed[[other, one]]
        assert sign_keys(changed) != original, (one, other)


def test_signature_tells_length_and_version():
    keys = list(range(100))
    signatures = [
        sign_keys(keys),
        sign_keys(keys[:-1]),
        sign_keys([*keys, 0]),
        sign_keys([0, *keys]),
        sign_keys(keys, 2),
    ]
    assert len(set(signatures)) == 5
    # The hash alone differs, too: a list and its beginning do not hide behind one another.
    assert len({signature[2] for signature in signatures[:4]}) == 4


@hypothesis.settings(max_examples=60)
@hypothesis.given(
    keys=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=30),
    place=st.integers(0, 29),
    other=st.integers(0, 2**31 - 1),
)
def test_signature_of_one_other_key(keys, place, other):
    place %= len(keys)
    changed = [*keys[:place], other, *keys[place + 1 :]]
    assert (sign_keys(changed) == sign_keys(keys)) == (changed == keys)


def test_mixing_loses_no_bit():
    # A shift that drags the sign along would bring x and ~x together, an even factor x and x + 2^63.
    ends = (0, -1, 1, -2, 2**31 - 1, -(2**31))
    assert len({sign_keys([end])[2] for end in ends}) == len(ends)


# -- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [-0.1, 1.1, float("nan"), float("inf"), True, "0.1", None])
def test_refuses_beta(beta):
    with pytest.raises(ValueError, match=r"beta, the core's share, must be a number within \[0, 1\]\. Received: "):
        SignificantCore(beta, 10)


@pytest.mark.parametrize("q", [0, -5, True, 2.0, "10", None])
def test_refuses_period(q):
    with pytest.raises(ValueError, match=r"q, .* must be an integer of at least 1\. Received: "):
        SignificantCore(0.1, q)


@pytest.mark.parametrize("c", [-1.0, float("nan"), float("inf"), True, "1.0", "Auto", None])
def test_refuses_c(c):
    with pytest.raises(
        ValueError, match=r"c, the weight of \|g\|, must be 'auto' or a number of at least 0\. Received: "
    ):
        SignificantCore(0.1, 10, c)


def test_an_update_that_waited_counts_per_round():
    # Core {0}; entries outside it have waited 4 rounds on average. |g| = (1, 4/4, 8/4, 2/4) = (1, 1, 2, .5), c = 1.
    rule, weights, updates = SignificantCore(0.5, 1, 1.0, waited=4.0), tf.zeros([4]), tf.constant([1.0, 4.0, 8.0, 2.0])
    assert rule.refresh([weights], [updates], anywhere, [tf.constant([0])])[0].numpy().tolist() == [0, 2]
    # Taken as one round's updates, entry 1 would push entry 0 out.
    assert rule.refresh([weights], [updates], anywhere)[0].numpy().tolist() == [1, 2]
    # Before there is a core nothing has waited.
    assert rule.refresh([weights], [updates], anywhere, [tf.zeros([0], tf.int32)])[0].numpy().tolist() == [1, 2]


@pytest.mark.parametrize("waited", [0.5, "4", True, float("nan")])
def test_waited_must_be_rounds(waited):
    with pytest.raises(ValueError, match="waited, in rounds, must be a number of at least 1. Received"):
        SignificantCore(0.5, 1, waited=waited)
