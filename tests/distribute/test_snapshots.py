"""Snapshots: whoever goes on from one trains as if nothing had happened, and is told what could not be kept."""

import dataclasses
import logging

import numpy as np
import pytest

from slimdp_tf import methods
from slimdp_tf.channel import Channel
from slimdp_tf.distribute.snapshots import Keeper
from slimdp_tf.rules.memories import Carry
from slimdp_tf.rules.selectors import Pushed
from tests.distribute.one_process import Drill

pytestmark = pytest.mark.slow

N = 12
START = [np.arange(8.0).reshape(2, 4), np.ones(4)]
MOVES = np.stack([np.arange(N) / 8, -np.ones(N) / 4, np.cos(np.arange(N))]).astype(np.float32)
SLIM = methods.slim(0.5, 0.25, p=2, q=3, memory="carry", average="contributors")
METHODS = [
    methods.plump(),
    SLIM,
    dataclasses.replace(methods.random_k(0.3), name="own", down=Channel((Pushed(),), memory=Carry())),
    methods.quant(p=2, bucket=4, quantize_pull=True),
    methods.one_bit(),
    methods.dgc(0.2, 0.5, warmup=4),
    methods.easgd(0.5, 2, 2),
    methods.bmuf(),
    methods.predictive(0.3),
    methods.post_local_sgd(2, 5),
]


def make(method, workers: int = 2, ps: int = 2) -> Drill:
    return Drill(method, START, workers, ps, MOVES[:workers])


def run(drill: Drill, rounds: int) -> Drill:
    for _ in range(rounds):
        drill.run(drill.rounds.planned)
    return drill


def save(drill: Drill, folder) -> Keeper:
    keeper = Keeper(drill.rounds, folder)
    keeper.save()
    keeper.file.finish()
    return keeper


def resume(folder, method, workers: int = 2, ps: int = 2) -> Drill:
    drill = make(method, workers, ps)
    keeper = Keeper(drill.rounds, folder)
    keeper.restore(keeper.last())
    return drill


@pytest.fixture
def said(caplog):
    """What the logger of TensorFlow said, in one text."""
    logger = logging.getLogger("tensorflow")
    logger.addHandler(caplog.handler)
    yield lambda: caplog.text
    logger.removeHandler(caplog.handler)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_goes_on_as_if_nothing_had_happened(method, tmp_path, said):
    whole, first = run(make(method), 8), run(make(method), 4)
    save(first, tmp_path)
    resumed = resume(tmp_path, method)
    assert (resumed.rounds.round, resumed.rounds.steps) == (4, first.rounds.steps)
    np.testing.assert_array_equal(run(resumed, 4).values(), whole.values())
    np.testing.assert_array_equal(run(first, 4).values(), whole.values())  # taking one changes nothing
    assert resumed.loss.numpy() == whole.loss.numpy()
    assert said() == ""
    traffic = [sum(record.traffic.pull_bytes for record in drill.rounds.records) for drill in (first, whole)]
    assert traffic[0] == traffic[1]  # what was pulled for the snapshot is counted, once


@pytest.mark.parametrize("ps", [1, 3])
@pytest.mark.parametrize("method", [methods.plump(), SLIM, methods.bmuf()], ids=lambda method: method.name)
def test_goes_on_with_another_number_of_servers(method, ps, tmp_path, said):
    rounds = 4 if method is not SLIM else 3  # its explorers are drawn by block
    save(run(make(method), rounds), tmp_path)
    resumed = resume(tmp_path, method, ps=ps)
    if method is SLIM:
        np.testing.assert_allclose(resumed.values(), run(make(method), rounds).values(), atol=1e-6)
        before = np.concatenate([np.sort(block) for block in cores(make_again(method, rounds))])
        np.testing.assert_array_equal(np.concatenate(cores(resumed)), before)
        run(resumed, 2)
    else:
        np.testing.assert_allclose(run(resumed, 4).values(), run(make(method), 8).values(), atol=1e-6)
    assert said() == ""


def make_again(method, rounds: int) -> Drill:
    return run(make(method), rounds)


def cores(drill: Drill) -> list[np.ndarray]:
    """The core's places in the whole model, per block."""
    from slimdp_tf.distribute.held import Held

    return [Held(drill.rounds.cache).read_servers()["weight/core"]]
