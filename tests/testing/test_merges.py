"""The contract of merges finds broken ones."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from slimdp_tf.rules.merges import Average
from slimdp_tf.testing import MergeContract
from slimdp_tf.types import Entries
from tests.testing.breaches import breaks, find_breaches


class CountsEveryone(Average):
    """Divides by the workers there might be."""

    def merge(self, state, value, incoming, notes):
        return [Entries(e.index, e.value * (1.0 / len(notes))) for e in incoming], {}


class LastCountsMost(Average):
    def merge(self, state, value, incoming, notes):
        increments, edits = super().merge(state, value, incoming, notes)
        return [*increments, Entries(incoming[-1].index, 0.1 * incoming[-1].value)], edits


class Decays(Average):
    """Changes weights although nothing was sent."""

    def merge(self, state, value, incoming, notes):
        return [Entries(None, 0.01 * value)], {}


class HidesNan(Average):
    def merge(self, state, value, incoming, notes):
        clean = [Entries(e.index, tf.where(tf.math.is_finite(e.value), e.value, 0.0)) for e in incoming]
        return super().merge(state, value, clean, notes)


@dataclasses.dataclass(frozen=True)
class Counts(Average):
    """Keeps state of its own."""

    seen: list = dataclasses.field(default_factory=list)

    def merge(self, state, value, incoming, notes):
        self.seen.append(1)
        return [Entries(e.index, e.value / len(self.seen)) for e in incoming], {}


def test_finds_the_absent_counted():
    assert find_breaches(MergeContract, CountsEveryone()) == {"absent_workers_count_for_nothing"}


def test_finds_an_order_that_matters():
    name = "order_of_workers_does_not_matter"
    assert breaks(MergeContract, name, LastCountsMost())
    assert not breaks(MergeContract, name, LastCountsMost(), is_order_free=False)  # for it is declared


def test_finds_changes_out_of_nothing():
    assert breaks(MergeContract, "nothing_sent_nothing_changes", Decays())


def test_finds_a_nan_made_a_number():
    assert find_breaches(MergeContract, HidesNan()) == {"makes_no_number_of_what_is_none"}


def test_finds_a_state_of_its_own():
    assert breaks(MergeContract, "traced_and_eager_agree", Counts())
