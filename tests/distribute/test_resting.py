"""Between two rounds: what is at rest, and going on from a place."""

import numpy as np
import pytest

from slimdp_tf import methods
from slimdp_tf.distribute import _tf, resting
from slimdp_tf.distribute.servers import ServerLost
from tests.distribute.one_process import Drill
from tests.distribute.test_rounds import FLAT, MOVES, START

pytestmark = pytest.mark.slow


def test_at_rest_everybody_holds_what_was_merged_and_nobody_pulls_it_twice():
    drill = Drill(methods.plump(), START, 2, 1, MOVES)
    drill.run(), drill.run()
    place = drill.rounds.tell_place()
    assert (place["round"], place["steps"], place["signal"]["round"], place["lead"]) == (2, 2, 2, 0)
    for _ in range(2):
        drill.rounds.rest()
    merged = FLAT - 2 * MOVES.mean(0)
    held = drill.rounds.workers.call(lambda worker: [v.copies[worker].numpy().ravel() for v in drill.weights])
    for copies in held.values():
        np.testing.assert_allclose(np.concatenate(copies), merged, atol=1e-6)
    drill.run()
    everything_and_two_answers = 2 * 3 * 4 * FLAT.size
    assert sum(record.traffic.pull_bytes for record in drill.rounds.records) == everything_and_two_answers

    drill.rounds.rewind(place, {1}, None)
    assert (drill.rounds.round, drill.rounds.steps) == (2, 2)
    assert [drill.rounds._pull_of(worker) for worker in range(2)] == [None, "everything"]


def test_a_server_that_is_lost_while_rounds_settle_is_restored(monkeypatch):
    drill, restored = Drill(methods.plump(), START, 1, 1, MOVES[:1]), []
    error = ServerLost("Lost ps 0.")

    def lose():
        raise error

    monkeypatch.setattr(drill.rounds, "_settle", lose)
    monkeypatch.setattr(drill.rounds.recovery, "after_loss", restored.append)
    drill.rounds.settle()
    assert restored == [error]


@pytest.mark.parametrize("silent", [None, 0, 2])
def test_functions_are_let_go_while_every_worker_and_server_answers(monkeypatch, silent):
    drill, let_go = Drill(methods.plump(), START, 2, 1, MOVES), []
    monkeypatch.setattr(_tf, "has_unused", lambda: True)
    monkeypatch.setattr(_tf, "let_go", lambda: let_go.append(True))
    monkeypatch.setattr(resting, "are_there", lambda devices: [i != silent for i in range(len(devices))])
    drill.use(drill.train)
    assert bool(let_go) == (silent is None)
