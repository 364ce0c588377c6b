"""EASGD's worker: pulled towards the centre, never onto it."""

from __future__ import annotations

import pytest
import tensorflow as tf

from slimdp_tf.rules.elastic import Spring, Stay
from slimdp_tf.testing import AdoptContract, MemoryContract
from slimdp_tf.types import Entries, edited


class TestSpring(MemoryContract):
    keeps_everything = False

    def rules(self):
        return [Spring(0.25)]


class TestStay(AdoptContract):
    def rules(self):
        return [Stay()]


def test_by_hand():
    # Centre 10, worker at 6: pushes 4 and moves by alpha = 1/4 of it, to 7. The centre becomes 8: then it pushes 1.
    memory = Spring(0.25)
    state, local = memory.init(tf.constant([10.0])), tf.constant([6.0])
    wanted = Entries(None, memory.recall(state, local, None))
    assert wanted.value.numpy().tolist() == [4.0]
    edits = memory.keep(state, local, wanted, wanted)
    local = edits.pop("local")
    assert local.numpy().tolist() == [7.0] and edits == {}
    centre = Entries(None, tf.constant([8.0]))
    stayed = Entries(None, Stay().adopt(local, centre.value))
    state = edited(state, memory.rebase(state, local, stayed, stayed, centre))
    assert stayed.value.numpy().tolist() == [7.0]
    assert memory.recall(state, local, None).numpy().tolist() == [1.0]


def test_alpha_0_leaves_a_worker_to_itself():
    wanted = Entries(None, tf.constant([4.0]))
    assert Spring(0.0).keep({"anchor": tf.constant([10.0])}, tf.constant([6.0]), wanted, wanted)["local"] == 6.0


@pytest.mark.parametrize("alpha", [-0.1, 1.1, "0.1", True, float("nan")])
def test_refuses(alpha):
    with pytest.raises(ValueError, match=r"alpha, the moving rate, must be a number within \[0, 1\]. Received: "):
        Spring(alpha)
