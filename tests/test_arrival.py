"""A push that is merged by itself counts as one of those who take part."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf import methods
from slimdp_tf.arrival import fold_one
from slimdp_tf.exchange import Exchange
from slimdp_tf.types import Entries, Note, summed

VALUE = tf.zeros([4])


def note(present: bool, loss: float = math.nan, steps: int = 1) -> Note:
    return Note(tf.constant(present), tf.constant(loss, tf.float32), tf.constant(steps))


def fold(method, arrived: Entries, mine: Note, others: list[Note], chosen=None) -> np.ndarray:
    """What is subtracted of a block of four for a push of worker 0, of three workers."""
    exchange = Exchange(method, (4,))
    chosen = chosen or [None] * len(others)
    increments, _ = fold_one(exchange, exchange.init_server(VALUE), VALUE, arrived, mine, chosen, others)
    return summed(increments, VALUE).numpy()


def index(*entries: int) -> tf.Tensor:
    return tf.constant(entries, tf.int32)


ALL = Entries(None, tf.constant([3.0, 6.0, 9.0, 12.0]))
SOME = Entries(index(3, 1), tf.constant([6.0, 12.0]))
OTHERS = [note(False), note(True), note(True)]
CONTRIBUTORS = methods.slim(0.5, 0.25, average="contributors", pacing="async")


def test_a_mean_over_workers_weighs_it_by_one_of_those_that_take_part():
    np.testing.assert_allclose(fold(methods.plump(), ALL, note(True), OTHERS), [1, 2, 3, 4])
    np.testing.assert_allclose(fold(methods.plump(), ALL, note(True), [note(False), note(False)]), [3, 6, 9, 12])
    np.testing.assert_allclose(fold(methods.slim(), SOME, note(True), OTHERS), [0, 4, 0, 2])


def test_a_mean_over_contributors_counts_who_sent_the_entry_last():
    chosen = [index(1, 3), index(1, 2), index(0, 1)]
    np.testing.assert_allclose(fold(CONTRIBUTORS, SOME, note(True), OTHERS, chosen), [0, 4, 0, 6])
    gone = [note(False), note(True), note(False)]
    np.testing.assert_allclose(fold(CONTRIBUTORS, SOME, note(True), gone, chosen), [0, 6, 0, 6])
    np.testing.assert_allclose(fold(CONTRIBUTORS, ALL, note(True), OTHERS, chosen), [1, 2, 3, 4])


def test_others_count_by_what_they_reported_last():
    others = [note(False, steps=9), note(True, steps=4), note(True, steps=6)]
    np.testing.assert_allclose(fold(methods.fed_avg(), ALL, note(True, steps=2), others), np.array([3, 6, 9, 12]) / 6)
    # Mean loss (2 + 1 + 3) / 3 = 2, so the weight is 2 / 2, 2 / 1 or 2 / 3, each of one in three.
    others = [note(False, 5.0), note(True, 1.0), note(True, 3.0)]
    np.testing.assert_allclose(fold(methods.loss_weighted(), ALL, note(True, 2.0), others), [1, 2, 3, 4])
    others = [note(False, 5.0), note(True, 2.0), note(True, 1.0)]
    np.testing.assert_allclose(
        fold(methods.loss_weighted(), ALL, note(True, 3.0), others), np.array([1, 2, 3, 4]) * 2 / 3, rtol=1e-6
    )


def test_an_elastic_centre_moves_by_alpha():
    np.testing.assert_allclose(fold(methods.easgd(0.6, workers=3), ALL, note(True), OTHERS), [0.6, 1.2, 1.8, 2.4])


@pytest.mark.parametrize("name", [name for name in methods.names() if "pacing" in methods.options(name)])
def test_every_method_has_a_pacing_and_says_so_where_it_cannot_have_this(name):
    factory, refusing = (
        getattr(methods, name),
        ("predictive", "adaptive_period", "bmuf", "diloco", "backup_workers", "k_sync"),
    )
    if name in refusing:
        with pytest.raises(ValueError, match=f"pacing must be 'sync' for {name}: .* Received: 'async'"):
            factory(pacing="async")
    else:
        assert (factory(pacing="async", staleness=0).pacing, factory().pacing) == ("async", "sync")
