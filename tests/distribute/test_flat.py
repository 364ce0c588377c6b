"""Flat: some entries of the flattened weights change, the others stay, and nothing is held afterwards."""

import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf.distribute.blocks import Layout
from slimdp_tf.distribute.flat import Flat
from slimdp_tf.distribute.local_variable import standing_on
from slimdp_tf.types import Entries
from tests.distribute.one_process import read_vector

VALUES = [np.arange(6.0).reshape(2, 3), np.arange(6.0, 10.0)]


def make_flat(is_dense: bool, workers: int = 2) -> Flat:
    variables = [tf.Variable(tf.constant(value, tf.float32)) for value in VALUES]
    flat = Flat(Layout.of(variables, 2), workers, is_dense)
    for worker in range(workers):
        flat.furnish(worker)
    return flat


def run(flat: Flat, entries: list, worker: int = 0) -> tuple[list, list]:
    """What the weights were at `entries` of each block, and the blocks after they were doubled."""

    def go():
        reads = flat.hold([tf.constant(value, tf.float32) for value in VALUES])
        befores = [read(index) for read, index in zip(reads, entries)]
        return befores, flat.change([Entries(index, 2.0 * before) for index, before in zip(entries, befores)])

    with standing_on(worker):
        befores, blocks = tf.function(go, autograph=False).get_concrete_function()()
    return [t.numpy().tolist() for t in befores], [t.numpy().tolist() for t in blocks]


@pytest.mark.parametrize("worker", [0, 1])
def test_changes_some_entries(worker):
    entries = [tf.constant([4, 0]), tf.constant([1])]
    befores, blocks = run(make_flat(False), entries, worker)
    assert befores == [[4, 0], [6]]
    assert blocks == [[0, 1, 2, 3, 8], [5, 12, 7, 8, 9]]


def test_changes_every_entry():
    befores, blocks = run(make_flat(True), [None, None])
    assert befores == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert blocks == [[0, 2, 4, 6, 8], [10, 12, 14, 16, 18]]


def test_holds_nothing_afterwards():
    flat = make_flat(False)
    run(flat, [tf.constant([4, 0]), tf.constant([1])])
    assert read_vector(flat._held.variables[0]).tolist() == []
