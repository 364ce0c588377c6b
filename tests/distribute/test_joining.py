"""Arrays of all blocks as arrays of the model, and back."""

import numpy as np
import pytest

from slimdp_tf.distribute.joining import cut, cut_places, join, join_places, within

BLOCKS = [
    {"value": np.array([1.0, 2.0]), "state/sum": np.array([3.0, 4.0]), "state/step": np.array(5.0)},
    {"value": np.array([6.0]), "state/sum": np.array([7.0]), "state/step": np.array(8.0)},
]


def test_what_is_per_entry_is_joined_and_the_rest_belongs_to_its_block():
    joined = join(BLOCKS)
    assert sorted(joined) == ["state/step/block0", "state/step/block1", "state/sum", "value"]
    np.testing.assert_array_equal(joined["state/sum"], [3, 4, 7])
    assert joined["state/step/block1"] == 8


def test_cutting_is_the_inverse():
    blocks, anew = cut(join(BLOCKS), [{name: np.zeros_like(a) for name, a in block.items()} for block in BLOCKS])
    assert anew == []
    for block, expected in zip(blocks, BLOCKS):
        assert {name: array.tolist() for name, array in block.items()} == {n: a.tolist() for n, a in expected.items()}


@pytest.mark.parametrize("sizes", [[3], [1, 1, 1]])
def test_another_cut_keeps_what_is_per_entry(sizes):
    like = [{"value": np.zeros(s), "state/sum": np.zeros(s), "state/step": np.array(-1.0)} for s in sizes]
    blocks, anew = cut(join(BLOCKS), like)
    assert anew == ["state/step"]
    np.testing.assert_array_equal(np.concatenate([block["state/sum"] for block in blocks]), [3, 4, 7])
    assert all(block["state/step"] == -1 for block in blocks)


def test_names_within_a_folder():
    assert within({"a/b": 1, "a/b/c": 2, "ab": 3}, "a") == {"b": 1, "b/c": 2}


def test_lists_of_entries_are_places_in_the_model_and_keep_their_order():
    lists = [{"core": np.array([0, 2], np.int32), "chosen": np.array([2, 1], np.int32)}] * 2
    joined = join_places(lists, (3, 4))
    assert {name: places.tolist() for name, places in joined.items()} == {"core": [0, 2, 3, 5], "chosen": [2, 1, 5, 4]}
    for block in cut_places(joined, (3, 4)):
        assert block["core"].tolist() == [0, 2] and block["chosen"].tolist() == [2, 1]
        assert block["core"].dtype == np.int32
    assert [block["chosen"].tolist() for block in cut_places(joined, (2, 3, 2))] == [[1], [0, 2], [0]]
