"""Snapshots: whoever goes on from one trains as if nothing had happened, and is told what could not be kept."""

import dataclasses
import types

import numpy as np
import pytest

from slimdp_tf import methods
from slimdp_tf.channel import Channel
from slimdp_tf.distribute import snapshots
from slimdp_tf.distribute.held import Held
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
    methods.dgc(0.2, 0.5, warmup=4),
    methods.easgd(0.5, 2, 2),
    methods.bmuf(),
    methods.predictive(0.3),
    methods.top_k(0.7),
    methods.local_combine("replace", 0.7, average=3),
    methods.one_bit(adagrad=True),
    methods.diloco(2),
    methods.loss_weighted(),
    methods.adaptive_period(4, every=2),
    methods.post_local_sgd(3, 5),
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


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_goes_on_as_if_nothing_had_happened(method, tmp_path, caplog):
    whole, first = run(make(method), 8), run(make(method), 4)
    save(first, tmp_path)
    resumed = resume(tmp_path, method)
    assert (resumed.rounds.round, resumed.rounds.steps) == (4, first.rounds.steps)
    np.testing.assert_array_equal(run(resumed, 4).values(), whole.values())
    np.testing.assert_array_equal(run(first, 4).values(), whole.values())  # taking one changes nothing
    assert resumed.loss.numpy() == whole.loss.numpy()
    assert caplog.text == ""
    traffic = [sum(record.traffic.pull_bytes for record in drill.rounds.records) for drill in (first, whole)]
    assert traffic[0] == traffic[1]  # what was pulled for the snapshot is counted, once


@pytest.mark.parametrize("method", [methods.backup_workers(b=1), methods.k_sync(1, 0.5, 0.5)], ids=lambda m: m.name)
def test_rounds_that_do_not_wait_for_the_last_worker_go_on(method, tmp_path):
    """Both move alike: whoever is last, the same counts."""

    def make_alike() -> Drill:
        return Drill(method, START, 2, 2, np.stack([MOVES[0], MOVES[0]]))

    whole, first, resumed = run(make_alike(), 8), run(make_alike(), 4), make_alike()
    save(first, tmp_path)
    keeper = Keeper(resumed.rounds, tmp_path)
    keeper.restore(keeper.last())
    assert (resumed.rounds.round, resumed.rounds.steps) == (4, 4)
    np.testing.assert_allclose(run(resumed, 4).values(), whole.values(), atol=1e-6)
    np.testing.assert_allclose(run(first, 4).values(), whole.values(), atol=1e-6)  # taking one changes nothing


@pytest.mark.parametrize("ps", [1, 3])
@pytest.mark.parametrize("method", [methods.plump(), methods.bmuf()], ids=lambda method: method.name)
def test_goes_on_with_another_number_of_servers(method, ps, tmp_path, caplog):
    save(run(make(method), 4), tmp_path)
    resumed = resume(tmp_path, method, ps=ps)
    np.testing.assert_allclose(run(resumed, 4).values(), run(make(method), 8).values(), atol=1e-6)
    assert caplog.text == ""


def test_another_number_of_servers_keeps_the_core(tmp_path):
    """Its explorers are drawn by block, so the weights differ after the next round."""
    first = run(make(SLIM), 3)
    save(first, tmp_path)
    resumed = resume(tmp_path, SLIM, ps=3)
    np.testing.assert_array_equal(resumed.values(), first.values())
    cores = [Held(drill.rounds.cache).read_servers()["weight/core"] for drill in (first, resumed)]
    assert len(cores[0]) == 3
    np.testing.assert_array_equal(*cores)
    run(resumed, 2)
    assert [record.refused for record in resumed.rounds.records] == [0, 0]


@pytest.mark.parametrize("workers", [1, 3])
def test_goes_on_with_another_number_of_workers(workers, tmp_path, caplog):
    first = run(make(SLIM), 3)
    save(first, tmp_path)
    resumed = resume(tmp_path, SLIM, workers=workers)
    np.testing.assert_array_equal(resumed.values(), first.values())
    assert resumed.loss.numpy() == first.loss.numpy()
    run(resumed, 1)
    assert resumed.loss.numpy() == first.loss.numpy() + 2 * workers  # nothing was counted twice
    assert resumed.rounds.records[0].workers == workers
    expected = {1: "what workers [1] had not sent yet is lost", 3: "workers [2] have no state in it"}[workers]
    assert expected in caplog.text and "the data is dealt out anew" in caplog.text


def test_what_does_not_fit_is_refused_in_words(tmp_path):
    save(run(make(methods.plump()), 1), tmp_path)
    with pytest.raises(
        ValueError, match="taken with another method: Method.name='plump'.*Received: Method.name='slim'"
    ):
        resume(tmp_path, SLIM)
    other = Drill(methods.plump(), [np.zeros(3)], 2, 1, MOVES[:2, :3])
    keeper = Keeper(other.rounds, tmp_path)
    with pytest.raises(
        ValueError, match="another model: it has .'000_w0', 'float32.2, 4. WEIGHT'.. Received: .'000_w0"
    ):
        keeper.restore(keeper.last())


def test_is_due_by_rounds_or_by_seconds(tmp_path, monkeypatch):
    drill, now = make(methods.plump()), [0.0]
    monkeypatch.setattr(snapshots, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
    by_rounds, by_seconds = Keeper(drill.rounds, tmp_path, every_rounds=2), Keeper(drill.rounds, tmp_path, every_s=5.0)
    never = Keeper(drill.rounds, tmp_path)
    assert [keeper.is_due for keeper in (by_rounds, by_seconds, never)] == [False] * 3
    run(drill, 1)
    assert [keeper.is_due for keeper in (by_rounds, by_seconds, never)] == [False, True, False]
    run(drill, 1)
    assert [keeper.is_due for keeper in (by_rounds, by_seconds, never)] == [True, True, False]
    for keeper in (by_rounds, by_seconds):
        keeper.save()
        assert not keeper.is_due
        keeper.file.finish()
    now[0] = 5.0
    assert not by_seconds.is_due  # nothing has changed
    run(drill, 1)
    assert by_seconds.is_due


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ({"every_rounds": 0}, "every_rounds must be an integer of at least 1. Received: 0"),
        ({"every_rounds": 1.5}, "every_rounds must be an integer of at least 1. Received: 1.5"),
        ({"every_s": 0}, "every_s must be a number of seconds above 0. Received: 0"),
        ({"max_to_keep": 0}, "max_to_keep must be an integer of at least 1. Received: 0"),
    ],
)
def test_schedules_that_cannot_be_kept(schedule, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        Keeper(None, tmp_path, **schedule)
