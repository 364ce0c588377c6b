"""TopK sends the greatest, exactly or about; Relevant gives more to layers that matter more."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf.rules.largest import Relevant, TopK
from slimdp_tf.testing import SelectorContract
from slimdp_tf.testing.contract import draw_normal, make_seed

NAN = float("nan")


class TestTopK(SelectorContract):
    is_random = False

    def rules(self):
        return [TopK(0.1), TopK(1.0), TopK(1e-6), TopK(0.1, warmup=10)]


class TestTopKOfASample(SelectorContract):
    def rules(self):
        return [TopK(0.1, sample=0.2), TopK(0.02, sample=0.01, warmup=6)]


class TestRelevant(SelectorContract):
    is_random = False

    def rules(self):
        return [Relevant(), Relevant(0.1, 0.0)]


def pick(rule, values, number=0, round_number=0, local=None) -> list[int]:
    values = tf.constant(values, tf.float32)
    agreed = {"round": tf.constant(round_number), "local": values if local is None else tf.constant(local, tf.float32)}
    return rule.pick(values, agreed, make_seed(number)).numpy().tolist()


def test_the_greatest_by_magnitude_ascending():
    assert pick(TopK(0.5), [1.0, -5.0, 0.0, 3.0, -2.0, 4.0]) == [1, 3, 5]
    assert pick(TopK(0.01), [1.0, -5.0, 0.0]) == [1]  # one at least: rho to 0 is top 1
    assert pick(TopK(0.5), [2.0, 2.0, 2.0, 2.0]) == [0, 1]  # of equals the lower index
    assert pick(TopK(0.01), [0.0, 0.0]) == [0]


def test_by_layer_every_layer_has_its_own():
    rule = TopK(0.5, by="layer", pieces=((2, 2), (2, 1)))
    assert pick(rule, [100.0, 200.0, 300.0, 400.0, 1.0, 2.0]) == [2, 3, 5]
    assert pick(TopK(0.5, pieces=((2, 2), (2, 1))), [100.0, 200.0, 300.0, 400.0, 1.0, 2.0]) == [1, 2, 3]


@pytest.mark.parametrize("ratio", [0.001, 0.01, 0.1])
def test_a_sample_finds_about_as_many_of_the_greatest(ratio):
    value = draw_normal(20_000)
    order = np.argsort(-np.abs(value))
    for number in range(5):
        picked = pick(TopK(ratio, sample=0.05), value, number)
        assert 0.1 * ratio * 20_000 <= len(picked) <= 1.3 * ratio * 20_000 + 1
        assert set(picked) == set(order[: len(picked)].tolist())  # whatever lies above is the greatest


def test_a_sample_of_equals_is_cut():
    picked = pick(TopK(0.1, sample=0.1), [1.0] * 1000)
    assert len(picked) == 131 and picked == sorted(set(picked))


@pytest.mark.parametrize(
    ("round_number", "count"), [(0, 251), (99, 251), (100, 63), (200, 16), (300, 4), (400, 1), (10_000, 1)]
)
def test_the_warm_up_is_the_paper_s(round_number, count):
    # rho = .001, four stages of 100 rounds: .25, .063, .016, .004, then .001.
    assert len(pick(TopK(0.001, warmup=400), draw_normal(1000), round_number=round_number)) == count


def test_what_is_no_number_is_picked_first():
    assert pick(TopK(0.3), [1.0, NAN, 9.0]) == [1]
    assert pick(Relevant(0.3), [1.0, NAN, 9.0]) == [1]


def test_relevant_by_hand():
    # w = (1, 3, 0, 0): mean 1. I = |v| (|w| + 1) = (2, 4, 3, 1). Shares of half of 4 entries: 6/10 and 4/10 of 2:
    # round(1.2) = 1 and round(0.8) = 1. The greatest of either layer: entries 1 and 2.
    rule = Relevant(0.5, 0.0, ((2, 1), (2, 1)))
    assert pick(rule, [1.0, -1.0, 3.0, 1.0], local=[1.0, -3.0, 0.0, 0.0]) == [1, 2]


def test_a_layer_that_matters_more_gets_more():
    rule = Relevant(0.5, 0.1, ((10, 1), (10, 1)))
    picked = pick(rule, [9.0] * 10 + [1.0] * 10, local=[1.0] * 20)
    assert [sum(i < 10 for i in picked), sum(i >= 10 for i in picked)] == [9, 1]
    assert len(pick(rule, [0.0] * 20, local=[1.0] * 20)) == 10  # nothing matters: each its share


@pytest.mark.parametrize(
    ("rule", "options", "message"),
    [
        (TopK, {"ratio": 0.0}, r"ratio must be a share within \[0, 1\]. Received: 0.0"),
        (TopK, {"ratio": 1.1}, "ratio must be a share .* Received: 1.1"),
        (TopK, {"sample": -0.1}, "sample must be a share .* Received: -0.1"),
        (TopK, {"by": "tensor"}, "by must be 'block' or 'layer'. Received: 'tensor'"),
        (TopK, {"warmup": 1.5}, "warmup must be an integer of at least 0. Received: 1.5"),
        (TopK, {"stages": 0}, "stages must be an integer of at least 1. Received: 0"),
        (Relevant, {"ratio": NAN}, "ratio must be a share .* Received: nan"),
        (Relevant, {"least": "0"}, "least must be a share .* Received: '0'"),
    ],
)
def test_refuses(rule, options, message):
    with pytest.raises(ValueError, match=message):
        rule(**options)
