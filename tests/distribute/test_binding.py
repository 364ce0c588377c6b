"""Variables are put on workers and servers once, and again when they are others or were lost."""

import numpy as np
import pytest

from slimdp_tf import methods
from tests.distribute.one_process import Drill

pytestmark = pytest.mark.slow

MOVES = np.ones((2, 4), np.float32)


def make() -> Drill:
    return Drill(methods.plump(), [np.zeros(4)], 2, 1, MOVES)


def test_binds_once():
    drill = make()
    binding, graph = drill.rounds.binding, drill.rounds.graph_of(drill.step)
    shared = dict(drill.rounds.cache.shared)
    assert binding.prepare(graph, [*drill.weights, drill.loss], drill.weights, []) is False
    assert drill.rounds.cache.shared == shared
    assert [copy is not None for copy in drill.weights[0].copies] == [True, True]


def test_what_is_put_there_again_is_what_the_chief_has():
    drill = make()
    drill.run(), drill.run()
    np.testing.assert_array_equal(drill.values(), -2)
    drill.rounds.binding.let_go()
    assert drill.weights[0].copies == []
    drill.rounds.binding.renew()
    drill.run()
    np.testing.assert_array_equal(drill.values(), -3)
