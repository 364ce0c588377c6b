"""Passes over a pipeline: each has its own order, whoever opens it and whenever."""

import pytest
import tensorflow as tf

from slimdp_tf.distribute import _tf
from slimdp_tf.distribute.passes import Passes

SPEC = tf.TensorSpec([], tf.int64)


def variant() -> tf.Tensor:
    """A pipeline that shuffles, made anew as a worker that comes back makes it."""
    make = tf.function(lambda: _tf.variant_of(tf.data.Dataset.range(9).shuffle(9, seed=1)), autograph=False)
    return make.get_concrete_function()()


def begin() -> Passes:
    passes = Passes()
    passes.begin(0, variant())
    return passes


def read(passes: Passes, number: int, taken: int | None = None) -> list[int]:
    taken = None if taken is None else tf.constant(taken, tf.int64)
    iterator = _tf.iterator_behind(passes.open(0, number, taken, SPEC), SPEC)
    return [int(element) for element in iterator]


@pytest.fixture(scope="module")
def orders():
    passes = begin()
    return [read(passes, number) for number in range(3)]


def test_every_pass_has_its_own_order(orders):
    assert all(sorted(order) == list(range(9)) for order in orders)
    assert orders[0] != orders[1] != orders[2]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_pass_has_the_same_order_when_it_is_the_first_that_is_opened(orders, number):
    assert read(begin(), number) == orders[number]


def test_goes_on_past_what_was_taken(orders):
    assert read(begin(), 2, taken=4) == orders[2][4:]
    assert read(begin(), 0, taken=9) == []


def test_a_look_at_the_data_is_no_pass():
    looked, asked = begin(), begin()
    for passes in (looked, asked):
        read(passes, -1)
    first, second = read(looked, 0), read(looked, 1)
    assert first != second
    assert read(asked, 1) == second


def test_a_worker_that_comes_anew_begins_anew(orders):
    passes = begin()
    read(passes, 1)
    passes.begin(0, variant())
    assert read(passes, 0) == orders[0]
