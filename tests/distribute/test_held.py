"""What servers and workers hold, by names that do not depend on the number of servers."""

import numpy as np
import pytest

from slimdp_tf import methods
from slimdp_tf.distribute.held import Held
from slimdp_tf.distribute.roles import Role
from tests.distribute.one_process import Drill


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
