"""A local step: once per call, or up to p times in a loop that ends where the data does."""

import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf.distribute import _tf
from slimdp_tf.distribute.step import Step


def open_numbers(count: int, first: int = 0) -> tf.Tensor:
    dataset = tf.data.Dataset.range(first, first + count)
    return _tf.open_iterator(_tf.variant_of(dataset), dataset.element_spec)


SPEC = tf.TensorSpec([], tf.int64)


@pytest.fixture
def total():
    return tf.Variable(0, dtype=tf.int64)


def make_repeating(total) -> Step:
    def add(elements, arguments):
        total.assign_add(elements[0])
        return [tf.cast(tf.stack([elements[0], total]), tf.float64)]

    return Step(add, [SPEC], [], True)


def test_repeats_a_step_as_often_as_it_is_told(total):
    function, handle = make_repeating(total).trace(), open_numbers(10)
    done, outputs = function([handle], [], tf.constant(4))
    assert (done.numpy(), total.numpy()) == (4, 0 + 1 + 2 + 3)
    np.testing.assert_array_equal(outputs[0], [3, 6])  # of the last step
    done, outputs = function([handle], [], tf.constant(2))
    assert (done.numpy(), total.numpy()) == (2, 15)
    np.testing.assert_array_equal(outputs[0], [5, 15])


@pytest.mark.parametrize("left", [0, 1, 3])
def test_ends_where_the_data_ends(total, left):
    done, outputs = make_repeating(total).trace()([open_numbers(left, 5)], [], tf.constant(4))
    assert (done.numpy(), total.numpy()) == (left, sum(range(5, 5 + left)))
    assert outputs[0].shape == ([2] if left else [0])


def test_does_nothing_when_told_so(total):
    handle = open_numbers(3)
    assert make_repeating(total).trace()([handle], [], tf.constant(0))[0].numpy() == 0
    assert make_repeating(total).trace()([handle], [], tf.constant(1))[0].numpy() == 1
    assert total.numpy() == 0  # the first element was not lost


def test_a_step_that_does_not_repeat_takes_one_element_of_every_iterator_and_arguments():
    def combine(elements, arguments):
        return [elements[0] * 10 + elements[1], arguments[0] + 1.0]

    step = Step(combine, [SPEC, SPEC], [tf.TensorSpec([2])], False)
    function = step.trace()
    handles = [open_numbers(3, 1), open_numbers(3, 5)]
    for expected in (15, 26):
        done, outputs = function(handles, [tf.constant([1.0, 2.0])], tf.constant(7))
        assert (done.numpy(), outputs[0].numpy()) == (1, expected)
        np.testing.assert_array_equal(outputs[1], [2, 3])


def test_says_when_its_data_has_ended():
    function = Step(lambda elements, arguments: [elements[0]], [SPEC], [], False).trace()
    with pytest.raises(tf.errors.OutOfRangeError):
        function([open_numbers(0)], [], tf.constant(1))


def test_outputs_are_of_the_end_of_the_step(total):
    def add(elements, arguments):
        before = total.read_value()
        total.assign_add(elements[0] + 1)
        return [before, total.read_value()]

    _, outputs = Step(add, [SPEC], [], False).trace()([open_numbers(3, 4)], [], tf.constant(1))
    assert [output.numpy() for output in outputs] == [0, 5]


def test_every_step_is_another():
    one, other = (Step(len, [SPEC], [], True) for _ in range(2))
    assert one != other and len({one, other}) == 2
    assert [spec.dtype for spec in one.handle_specs] == [tf.resource]


@pytest.mark.parametrize("steps", [1, 3, 9])
def test_the_loss_of_several_steps_is_their_mean(total, steps):
    step = make_repeating(total)
    step.has_loss = True  # the element is the loss: 2, 3, 4, ...
    done, outputs = step.trace()([open_numbers(5, 2)], [], tf.constant(steps))
    taken = range(2, 2 + min(steps, 5))
    assert done == len(taken)
    np.testing.assert_allclose(outputs[0], [np.mean(taken), sum(taken)])  # the rest is of the last step
