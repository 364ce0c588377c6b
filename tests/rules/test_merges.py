"""Average over the workers present (the paper's eta' = 1/K) or over the contributors of each entry."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf.rules.merges import Average
from slimdp_tf.testing import MergeContract
from slimdp_tf.types import Entries, Note, reduced


class TestAverage(MergeContract):
    def rules(self):
        return [Average(), Average("contributors")]


def merge(rule, value, pushes, presence=None) -> list[float]:
    """The block after the pushes: (index or None, values) per worker."""
    incoming = [Entries(None if i is None else tf.constant(i, tf.int32), tf.constant(v, tf.float32)) for i, v in pushes]
    presence = presence or [True] * len(pushes)
    notes = [Note(tf.constant(present), tf.constant(float("nan")), tf.constant(1)) for present in presence]
    value = tf.constant(value, tf.float32)
    increments, edits = rule.merge(rule.init(value), value, incoming, notes)
    assert edits == {}
    for increment in increments:
        value = reduced(value, increment)
    return value.numpy().tolist()


SPARSE = [([0, 1], [2.0, 4.0]), ([1, 3], [8.0, 1.0])]


def test_over_workers_an_entry_of_one_moves_by_a_part():
    # eta' = 1/2. Entry 0: 10 - 2/2 = 9. Entry 1: 10 - (4 + 8)/2 = 4. Entry 2: as it was. Entry 3: 10 - 1/2 = 9.5.
    assert merge(Average(), [10.0] * 4, SPARSE) == [9.0, 4.0, 10.0, 9.5]


def test_over_contributors_an_entry_of_one_moves_by_all_of_it():
    # Entry 0 has one sender: 10 - 2 = 8. Entry 1 has two: 10 - 12/2 = 4. Entry 3: 10 - 1 = 9.
    assert merge(Average("contributors"), [10.0] * 4, SPARSE) == [8.0, 4.0, 10.0, 9.0]


@pytest.mark.parametrize("over", ["workers", "contributors"])
def test_dense_pushes_are_averaged(over):
    # (1 + 3) / 2 = 2, (2 - 4) / 2 = -1
    assert merge(Average(over), [0.0, 0.0], [(None, [1.0, 2.0]), (None, [3.0, -4.0])]) == [-2.0, 1.0]


@pytest.mark.parametrize("over", ["workers", "contributors"])
def test_one_worker_alone_does_what_it_did_alone(over):
    assert merge(Average(over), [1.0, 2.0], [(None, [0.25, 0.5])]) == [0.75, 1.5]
    assert merge(Average(over), [1.0, 2.0], [([1], [0.5])]) == [1.0, 1.5]


def test_a_whole_push_beside_sparse_ones():
    # Workers: every value counts a half. Contributors: entry 1 has two senders, the others one.
    pushes = [(None, [1.0, 1.0, 1.0]), ([1], [3.0])]
    assert merge(Average(), [0.0] * 3, pushes) == [-0.5, -2.0, -0.5]
    assert merge(Average("contributors"), [0.0] * 3, pushes) == [-1.0, -2.0, -1.0]


def test_those_present_are_counted_not_those_there_might_be():
    pushes = [(None, [3.0]), (None, [0.0]), (None, [1.0])]
    assert merge(Average(), [10.0], pushes, [True, False, True]) == [8.0]
    assert merge(Average("contributors"), [10.0], pushes, [True, False, True]) == [8.0]
    assert merge(Average(), [10.0], [(None, [0.0])] * 2, [False, False]) == [10.0]


def test_sums_in_the_order_of_the_workers():
    # In float32 (1 + 2^25) - 2^25 = 0 and (2^25 - 2^25) + 1 = 1.
    big = float(2**25)
    assert merge(Average(), [0.0], [(None, [1.0]), (None, [big]), (None, [-big])]) == [0.0]
    assert merge(Average(), [0.0], [(None, [big]), (None, [-big]), (None, [1.0])]) == [np.float32(-1 / 3)]


@pytest.mark.parametrize("over", ["mean", "", None, 1])
def test_refuses_over(over):
    with pytest.raises(ValueError, match=r"average must be over 'workers' or 'contributors'\. Received: "):
        Average(over)
