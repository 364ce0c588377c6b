"""The rounds of an epoch, without a cluster."""

from __future__ import annotations

import types

import pytest
import tensorflow as tf

from slimdp_tf.training.round_iterator import RoundIterator


class Data:
    """A dataset of which only the length is known; it counts how often it is begun."""

    element_spec = tf.TensorSpec((None, 4))

    def __init__(self, length: int):
        self.length, self.begun = length, 0

    def cardinality(self) -> int:
        return self.length

    def example(self):
        return "a batch"

    def __iter__(self):
        self.begun += 1
        return Pass(self.begun)


class Pass:
    """One pass over the data."""

    def __init__(self, number: int):
        self.number, self.steps = number, 1

    def __next__(self):
        raise AssertionError("the workers take the batches")


def make(length: int, p: int, steps_per_epoch: int | None = None) -> tuple[RoundIterator, Data]:
    rounds = types.SimpleNamespace(raise_refusal=lambda: None, settle=lambda: None, planned=p)
    strategy = types.SimpleNamespace(rounds=rounds)
    data = Data(length)
    iterator = RoundIterator(strategy, data, steps_per_epoch)
    iterator.reset()
    return iterator, data


def list_rounds(iterator: RoundIterator) -> list[tuple[int, int, int, int]]:
    """First step, last step, steps and pass of each round of one epoch."""
    return [(first, last, it.steps, it.number) for first, last, it in iterator]


def test_gives_one_batch_before_reset():
    iterator, _ = make(4, 2)
    iterator = RoundIterator(iterator.strategy, Data(4), None)
    assert [(first, last, list(batch)) for first, last, batch in iterator] == [(0, 0, ["a batch"])]
    iterator.reset()
    assert len(list_rounds(iterator)) == 2


def test_the_last_round_may_be_short():
    iterator, data = make(7, 3)
    assert iterator.num_batches == 7
    assert list_rounds(iterator) == [(0, 2, 3, 1), (3, 5, 3, 1), (6, 6, 1, 1)]
    assert list_rounds(iterator)[0] == (0, 2, 3, 2) and data.begun == 2


def test_steps_per_epoch_go_on_in_the_data():
    iterator, data = make(tf.data.INFINITE_CARDINALITY, 4, 6)
    assert iterator.num_batches == 6
    for _ in range(2):
        assert list_rounds(iterator) == [(0, 3, 4, 1), (4, 5, 2, 1)]
    assert data.begun == 1


def test_data_that_ends_with_the_epoch_begins_anew():
    iterator, data = make(6, 4, 3)
    assert list_rounds(iterator) == [(0, 2, 3, 1)]
    assert list_rounds(iterator) == [(0, 2, 3, 1)]
    assert list_rounds(iterator) == [(0, 2, 3, 2)] and data.begun == 2


def test_data_that_ends_early_is_said():
    iterator, _ = make(4, 3, 6)
    with pytest.warns(UserWarning, match="The data ended before steps_per_epoch"):
        assert list_rounds(iterator) == [(0, 2, 3, 1), (3, 3, 1, 1)]


@pytest.mark.parametrize("steps_per_epoch", [None, 5])
@pytest.mark.parametrize("end", [StopIteration(), tf.errors.OutOfRangeError(None, None, "the end")])
def test_data_of_unknown_length_ends_the_epoch(end, steps_per_epoch, recwarn):
    iterator, data = make(tf.data.UNKNOWN_CARDINALITY, 3, steps_per_epoch)
    assert iterator.num_batches == steps_per_epoch
    with iterator.catch_stop_iteration():
        for first, _, _ in iterator:
            if first == 3:
                raise end
    assert len(recwarn) == (steps_per_epoch is not None)  # without it nobody said how much there should be
    next(iter(iterator))
    assert data.begun == 2


def test_a_refusal_is_raised_after_its_round():
    iterator, _ = make(4, 2)

    def refuse():
        raise ArithmeticError("not finite")

    iterator.strategy.rounds.raise_refusal = refuse
    rounds = iter(iterator)
    next(rounds)
    with pytest.raises(ArithmeticError):
        next(rounds)


def test_says_how_many_more_steps_the_epoch_will_ask_for():
    iterator, _ = make(7, 2)
    assert [it.ahead for _, _, it in iterator] == [5, 3, 1, 0]
    endless, _ = make(tf.data.UNKNOWN_CARDINALITY, 2)
    _, _, taken = next(iter(endless))
    assert taken.ahead == float("inf")


def test_settles_when_an_epoch_is_broken_off():
    iterator, _ = make(4, 2)
    settled = []
    iterator.strategy.rounds.settle = lambda: settled.append(True)
    for _ in iterator:
        break
    assert len(settled) == 2
