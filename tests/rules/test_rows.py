"""Rows of embeddings: used, frequent and random ones, by their numbers; all else without keys."""

from __future__ import annotations

import pytest
import tensorflow as tf

from slimdp_tf.channel import Channel
from slimdp_tf.rules.rows import Rows
from slimdp_tf.testing import SelectorContract
from slimdp_tf.testing.contract import make_seed

PIECES = ((2, 1), (6, 2), (3, 1), (5, 3))  # entries 0-1; an embedding 2-13; 14-16; an embedding 17-31


class TestRows(SelectorContract):
    is_random = False  # the values are none of them zero, so every row is used
    cuts = (([32], [[]]),)

    def rules(self):
        return [Rows(1, 1, 5, PIECES), Rows(0, 0, 100, PIECES)]


class TestRandomRows(SelectorContract):
    cuts = (([400], [[]]),)

    def rules(self):
        return [UsesNothing(0, 20, 5, ((200, 2),))]


class UsesNothing(Rows):
    def pick(self, value, agreed, seed):
        return super().pick(None if value is None else tf.zeros_like(value), agreed, seed)


def test_by_hand():
    value = tf.tensor_scatter_nd_update(tf.zeros([32]), [[7], [29]], [1.0, -1.0])  # row 2 and row 4: 7 = 2 + 2 * 2 + 1
    rule = Rows(1, 0, 5, PIECES)
    picked = rule.pick(value, {}, make_seed(0))
    others, rows = [0, 1, 14, 15, 16], [2, 3, 6, 7, 17, 18, 19, 29, 30, 31]
    assert picked.numpy().tolist() == others + rows
    assert rule.shorten(picked).numpy().tolist() == [0, 2, 6 + 0, 6 + 4]  # the second embedding's begin at 6
    assert rule.lengthen(rule.shorten(picked)).numpy().tolist() == picked.numpy().tolist()


def test_random_rows_are_drawn():
    rule = Rows(0, 2, 5, PIECES)
    keys = {tuple(rule.shorten(rule.pick(tf.zeros([32]), {}, make_seed(n))).numpy().tolist()) for n in range(10)}
    assert len(keys) > 3 and all(2 <= len(rows) <= 4 for rows in keys)


@pytest.mark.parametrize("pieces", [((2, 1), (3, 2)), PIECES], ids=["no embedding", "two"])
def test_the_keys_of_rows_travel_alone(pieces):
    size = sum(rows * columns for rows, columns in pieces)
    channel, value = Channel((Rows(1, 0, 5),)).fitted(pieces), tf.range(1.0, size + 1)
    parts = channel.choose(value, {}, make_seed(0))
    payload = channel.write(parts, tf.gather(value, parts[0]), make_seed(0), whole=False)
    assert len(payload["0.keys"]) == sum(rows for rows, columns in pieces if rows >= 5)
    entries = channel.read(payload, channel.parts_of(payload, {}, make_seed(0)), size, whole=False)
    assert sorted(entries.index.numpy().tolist()) == list(range(size))
    assert entries.value.numpy().tolist() == (entries.index.numpy() + 1.0).tolist()


def test_refuses_a_block_it_does_not_know():
    with pytest.raises(ValueError, match="Rows must know which rows the block holds: pieces. Received: None"):
        Rows().pick(tf.zeros([4]), {}, make_seed(0))


@pytest.mark.parametrize(
    ("options", "name"), [({"frequent": -1}, "frequent"), ({"random": 1.5}, "random"), ({"tall": 0}, "tall")]
)
def test_refuses(options, name):
    with pytest.raises(ValueError, match=f"{name} must be an integer of at least [01]. Received: "):
        Rows(**options)
