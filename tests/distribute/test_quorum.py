"""Rounds that are merged without the last worker: it is not waited for, what it pushes is dropped, it comes again."""

import threading
import time

import keras
import numpy as np
import pytest

import slimdp_tf
from slimdp_tf import methods
from tests.cluster import strategy
from tests.distribute.one_process import Drill
from tests.distribute.test_rounds import FLAT, MOVES, START, move

pytestmark = pytest.mark.slow

THREE = np.stack([*MOVES, MOVES[0] * 2])


class Gate:
    """Keeps worker 2 of a drill from beginning until it is opened; worker 1 from ending before worker 2 is late."""

    def __init__(self, drill: Drill):
        self.open = threading.Event()
        self.open.set()
        handles = drill._handles

        def wait(worker):
            if worker == 2 and not self.open.wait(30):
                raise TimeoutError("the gate was not opened")
            return handles(worker)

        drill._handles = wait


@pytest.mark.parametrize("method", [methods.backup_workers(b=1), methods.k_sync(1, 0.5, 0.5)], ids=lambda m: m.name)
def test_when_two_of_three_have_pushed_their_mean_counts(method):
    drill = Drill(method, START, 3, 2, THREE)
    gate = Gate(drill)
    gate.open.clear()
    drill.run()
    record = drill.rounds.records[0]
    assert (record.workers, record.missed, record.refused) == (2, 1, 0)
    first = (MOVES[0] + MOVES[1]) / 2 * (0.5 if method.name == "k_sync" else 1.0)
    np.testing.assert_allclose(drill.values(), FLAT - first, atol=1e-6)
    gate.open.set()
    give_up = time.monotonic() + 30
    while not drill.rounds._late[2].ends_within(1.0) and time.monotonic() < give_up:
        time.sleep(0.01)
    before = drill.values()
    drill.rounds.settle()
    np.testing.assert_array_equal(drill.values(), before)  # what it pushed late is dropped
    assert drill.rounds._needs_everything == {2}
    pushed = record.traffic.push_bytes
    drill.run()
    assert drill.rounds.records[1].traffic.push_bytes >= pushed + pushed // 2  # the late push crossed, too


def test_nobody_spare_is_in_step():
    values = []
    for method in (methods.plump(), methods.backup_workers(b=0)):
        drill = Drill(method, START, 2, 2, MOVES)
        drill.run(), drill.run()
        values.append(drill.values())
    np.testing.assert_array_equal(*values)


def test_when_nobody_is_late_it_is_the_simulation():
    method = methods.k_sync(spare=0, mu=0.5, rate=0.5)
    drill = Drill(method, START, 2, 2, MOVES)
    for _ in range(4):
        drill.run()
    expected = slimdp_tf.simulate(method, FLAT, move, 4, workers=2, servers=2, seed=3)
    np.testing.assert_allclose(drill.values(), expected.weights, atol=1e-6)


@pytest.mark.cluster
def test_fits_on_real_workers():
    made = strategy(methods.backup_workers(b=1, p=2), 3, 2)
    x = np.random.default_rng(0).standard_normal((3 * 4 * 20, 3)).astype(np.float32)
    with made.scope():
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.05), "mse")
    losses = model.fit(x, x[:, :1], batch_size=4, epochs=6, verbose=0).history["loss"]
    assert losses[-1] < 0.2 * losses[0] and model.evaluate(x, x[:, :1], verbose=0) < 0.2 * losses[0]
    assert len(made.records) == 6 * 10
    assert all(2 <= record.workers + record.missed <= 3 and record.workers >= 1 for record in made.records)
    assert [record.refused for record in made.records] == [0] * 60
