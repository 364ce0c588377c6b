"""Entries and edits, by hand; every rule of the package is what its Protocol says."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf import types
from slimdp_tf.rules import adoptions, agreements, codecs, memories, merges, selectors, triggers
from slimdp_tf.types import Entries, edited, is_number, reduced, taken, written

RULES = [
    (types.Selector, [selectors.Dense(), selectors.Core(), selectors.Pushed(), selectors.Explore(0.1)]),
    (types.Codec, [codecs.Raw(), codecs.Qsgd()]),
    (types.Memory, [memories.Forget(), memories.Carry()]),
    (types.Merge, [merges.Average(), merges.Average("contributors")]),
    (types.Adopt, [adoptions.Replace()]),
    (types.Trigger, [triggers.Every(3)]),
    (types.Agreement, [agreements.Nothing(), agreements.SignificantCore(0.1, 5)]),
]
FLAT = [(protocol, rule) for protocol, rules in RULES for rule in rules]


def entries(index, value) -> Entries:
    return Entries(None if index is None else tf.constant(index, tf.int32), tf.constant(value, tf.float32))


@pytest.mark.parametrize(("protocol", "rule"), FLAT, ids=lambda x: getattr(x, "__name__", str(x)))
def test_rules_are_what_their_protocol_says(protocol, rule):
    assert isinstance(rule, protocol)
    assert dataclasses.replace(rule) == rule
    assert hash(dataclasses.replace(rule)) == hash(rule)
    assert repr(rule).startswith(type(rule).__name__ + "(")
    with pytest.raises(dataclasses.FrozenInstanceError):
        rule.anything = 1


def test_no_rule_is_of_another_family():
    for protocol, rules in RULES:
        others = [rule for other, found in RULES for rule in found if other is not protocol]
        strangers = [rule for rule in others if isinstance(rule, protocol)]
        # What an Agreement has covers what a Trigger asks: a period.
        assert not strangers or protocol is types.Trigger, (protocol, strangers)
        assert rules


def test_written_overwrites_only_what_is_named():
    value = tf.constant([1.0, 2.0, 3.0])
    assert written(value, entries([2, 0], [30.0, 10.0])).numpy().tolist() == [10.0, 2.0, 30.0]
    assert written(value, entries(None, [7.0, 8.0, 9.0])).numpy().tolist() == [7.0, 8.0, 9.0]
    assert written(value, entries([], [])).numpy().tolist() == [1.0, 2.0, 3.0]


def test_reduced_subtracts_only_what_is_named():
    value = tf.constant([1.0, 2.0, 3.0])
    assert reduced(value, entries([2, 0], [30.0, 10.0])).numpy().tolist() == [-9.0, 2.0, -27.0]
    assert reduced(value, entries(None, [1.0, 1.0, 1.0])).numpy().tolist() == [0.0, 1.0, 2.0]
    assert reduced(value, entries([], [])).numpy().tolist() == [1.0, 2.0, 3.0]


def test_taken_keeps_the_order_asked_for():
    value = tf.constant([1.0, 2.0, 3.0])
    assert taken(value, tf.constant([2, 0])).numpy().tolist() == [3.0, 1.0]
    assert taken(value, tf.zeros([0], tf.int32)).shape == [0]
    assert taken(value, None) is value


def test_edited_takes_tensors_and_entries_and_leaves_the_old_state():
    state = {"anchor": tf.zeros([3]), "count": tf.constant(1), "rest": tf.ones([2])}
    after = edited(state, {"anchor": entries([1], [5.0]), "count": tf.constant(2)})
    assert {name: tensor.numpy().tolist() for name, tensor in after.items()} == {
        "anchor": [0.0, 5.0, 0.0],
        "count": 2,
        "rest": [1.0, 1.0],
    }
    assert state["anchor"].numpy().tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(KeyError):
        edited(state, {"anhcor": entries([1], [5.0])})


@pytest.mark.parametrize("value", [0, 1, -3, 0.5, 1e300, np.float64(0.1)])
def test_numbers(value):
    assert is_number(value)


@pytest.mark.parametrize("value", [True, False, "1", None, float("nan"), float("inf"), -float("inf"), [1.0], 1j])
def test_no_numbers(value):
    assert not is_number(value)
