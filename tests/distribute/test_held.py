"""What servers and workers hold, by names that do not depend on the number of servers."""

import numpy as np
import pytest

from slimdp_tf import methods
from slimdp_tf.distribute.held import Held, cut, join, within
from slimdp_tf.distribute.roles import Role
from tests.distribute.one_process import Drill

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


@pytest.mark.slow
def test_what_is_read_is_what_is_put_back():
    moves = np.stack([np.arange(12) / 8, -np.ones(12) / 4]).astype(np.float32)
    drill = Drill(methods.slim(0.5, 0.25, q=3, memory="carry"), [np.arange(8.0).reshape(2, 4), np.ones(4)], 2, 2, moves)
    for _ in range(3):
        drill.run()
    drill.rounds.rest()
    held = Held(drill.rounds.cache)
    servers, workers = held.read_servers(), held.read_workers()
    assert sorted(servers) == ["weight/core", "weight/value", "weight/version"]
    assert len(servers["weight/core"]) == 3 and np.all(np.diff(servers["weight/core"]) > 0)
    assert sorted(workers[1]) == ["variables/000_w0", "variables/001_w1", "variables/002_loss", "weight/anchor"]
    drill.run(), drill.rounds.rest()
    assert held.write_servers(servers, drill.rounds.round - 2) == []
    assert held.write_workers(workers, set(Role)) == []
    for name, array in held.read_servers().items():
        np.testing.assert_array_equal(array, servers[name])
    for worker, arrays in held.read_workers().items():
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, workers[worker][name])
