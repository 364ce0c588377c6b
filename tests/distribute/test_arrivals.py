"""Rounds without a barrier: they are the simulation in the order in which pushes came, and stay near one another."""

import threading
import time

import keras
import numpy as np
import pytest

import slimdp_tf
from slimdp_tf import methods
from slimdp_tf.distribute.refusals import NonFiniteUpdateError
from tests.cluster import begin_together, strategy
from tests.distribute.one_process import Drill
from tests.distribute.test_rounds import FLAT, MOVES, START, N, move

pytestmark = pytest.mark.slow

ASYNC = {"pacing": "async", "staleness": 2}
SLIM = {"alpha": 0.5, "beta": 0.25, "q": 3, **ASYNC}


def make_drill(method=None, ps: int = 2, moves=MOVES, **arguments) -> Drill:
    return Drill(method or methods.plump(**ASYNC), START, len(moves), ps, moves, **arguments)


def wait_for(is_there) -> None:
    give_up = time.monotonic() + 30
    while not is_there() and time.monotonic() < give_up:
        time.sleep(0.01)


def hold_back(drill: Drill) -> threading.Event:
    """Worker 1 begins no round before the event."""
    may_go, handles = threading.Event(), drill._handles

    def wait_if_last(worker):
        if worker == 1 and not may_go.wait(60):
            raise TimeoutError("the test did not let worker 1 go on")
        return handles(worker)

    drill._handles = wait_if_last
    return may_go


def run_epoch(drill: Drill, rounds: int) -> None:
    """As many rounds of each worker, which may be ahead of one another."""
    for left in reversed(range(rounds)):
        drill.run(ahead=left * drill.method.p)


METHODS = [
    methods.plump(p=2, **ASYNC),
    methods.slim(**SLIM),
    methods.slim(**SLIM, memory="carry", average="contributors", explorer_keys="derived"),
    methods.slim_quant(0.5, 0.25, q=2, bucket=4, **ASYNC),
    methods.quant(bucket=4, quantize_pull=True, **ASYNC),
    methods.top_k(0.7, **ASYNC),
    methods.local_combine("error", 0.7, average=3, **ASYNC),
    methods.easgd(0.5, 2, 2, **ASYNC),
    methods.fed_avg(2, **ASYNC),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_rounds_are_the_simulation_in_the_order_observed(method):
    drill = make_drill(method)
    begin_together(drill.rounds)
    run_epoch(drill, 5)
    run_epoch(drill, 2)

    order, shapes = drill.rounds.merging.order, [v.shape for v in START]
    assert sorted(order) == [0] * 7 + [1] * 7
    expected = slimdp_tf.simulate(method, FLAT, move, 1, 2, 2, seed=3, shapes=shapes, arrivals=order)
    np.testing.assert_allclose(drill.values(), expected.weights, atol=1e-6)


@pytest.mark.parametrize("method", [methods.plump, methods.top_k], ids=lambda factory: factory.__name__)
def test_one_worker_alone_is_in_step(method):
    values = []
    for pacing in ("sync", "async"):
        drill = make_drill(method(pacing=pacing), moves=MOVES[:1])
        run_epoch(drill, 4)
        values.append(drill.values())
    np.testing.assert_allclose(values[1], values[0], atol=1e-6)


def test_workers_push_when_they_have_drifted_and_at_the_end():
    method = methods.event_triggered(0.2, most=5, staleness=2)  # of |z| = 12: 2.4; moves of 2.8 and 0.87 a step
    drill = make_drill(method)
    for _ in range(8):
        drill.run(ahead=100)
    drill.rounds.settle()
    order = drill.rounds.merging.order
    assert 0 < order.count(1) < order.count(0)
    expected = slimdp_tf.simulate(method, FLAT, move, 1, 2, 2, seed=3, arrivals=order)
    np.testing.assert_allclose(drill.values(), expected.weights, atol=1e-5)
    done = sum(lane.all_steps for lane in drill.rounds._lanes)
    assert len(order) < done
    before = len(order)
    drill.run()
    assert sorted(order[before:]) == [0, 1]


def test_a_fast_worker_is_ahead_by_the_bound_and_no_more():
    drill = make_drill()
    slow = hold_back(drill)
    thread = threading.Thread(target=run_epoch, args=(drill, 6))
    thread.start()
    wait_for(lambda: len(drill.rounds.merging.order) >= 3)
    time.sleep(0.2)
    assert drill.rounds.merging.order == [0, 0, 0]  # two ahead of a worker that has ended none, and its own first
    slow.set()
    thread.join(30)
    assert sorted(drill.rounds.merging.order) == [0] * 6 + [1] * 6
    records = drill.rounds.records
    assert max(record.staleness_max for record in records) >= 3  # worker 1's first
    assert [record.steps_in_round for record in records] == [1] * 6
    np.testing.assert_allclose(drill.values(), FLAT - 6 * MOVES.mean(0), atol=1e-5)
    assert drill.loss.numpy() == 12


def test_what_the_chief_assigns_voids_nothing_that_was_merged_and_is_where_all_go_on_from():
    drill = make_drill()
    drill.run(ahead=3)
    drill.values()  # what the chief has seen is behind when others are merged
    wait_for(lambda: len(drill.rounds.merging.order) >= 6)
    drill.weights[1].assign(np.zeros(4))
    drill.run(ahead=2), drill.run(ahead=1), drill.run()
    values = drill.values()
    np.testing.assert_allclose(values[:8], (FLAT - 4 * MOVES.mean(0))[:8], atol=1e-5)
    assert len(drill.rounds.merging.order) == 8
    # Of the second variable only what was merged after the assignment counts: one round of each.
    np.testing.assert_allclose(values[8:], -MOVES.mean(0)[8:], atol=1e-5)


def test_an_update_that_is_not_finite_never_touches_the_weights():
    drill = make_drill(on_nonfinite="skip")
    drill.run(ahead=4)
    drill.rounds.settle()
    before, merged = drill.values(), len(drill.rounds.merging.order)
    drill.moves.assign(np.stack([MOVES[0] * 0, np.full(N, np.nan)]))
    drill.run()
    np.testing.assert_array_equal(drill.values(), before)
    assert (drill.rounds.records[-1].refused, len(drill.rounds.merging.order)) == (1, merged + 1)
    drill.moves.assign(MOVES)
    drill.run()
    np.testing.assert_allclose(drill.values(), before - MOVES.mean(0), atol=1e-6)
    strict = make_drill(moves=np.full((2, N), np.inf))
    with pytest.raises(NonFiniteUpdateError, match="from worker . is not finite"):
        strict.run()
    np.testing.assert_array_equal(strict.values(), FLAT)


def test_a_worker_without_data_takes_no_part():
    drill = make_drill()
    drill.batches[1] = 0
    assert [report.steps for report in drill.run(ahead=1)][0] == 1
    drill.run()
    np.testing.assert_allclose(drill.values(), FLAT - 2 * MOVES[0] / 2, atol=1e-6)
    drill.batches = [0, 0]
    assert all(report.steps == 0 for report in drill.run())


def test_steps_without_an_exchange_wait_for_the_next():
    drill = make_drill(methods.plump(2, **ASYNC))
    for _ in range(2):
        drill.run(1, is_exchanging=False), drill.run(1)
    np.testing.assert_allclose(drill.values(), FLAT - 4 * MOVES.mean(0), atol=1e-6)
    assert [(r.steps_in_round, r.steps) for r in drill.rounds.records] == [(2, 2), (2, 4)]


def test_a_worker_that_hangs_is_left_behind_and_what_it_pushes_late_is_merged_and_counted(monkeypatch):
    drill, hang = make_drill(), threading.Event()
    monkeypatch.setattr(
        drill.rounds.workers, "_await", lambda worker: None
    )  # no process of its own that could come back
    drill.run()
    drill.rounds.workers.deadline_s = 0.5
    handles = drill._handles

    def hang_once(worker):
        if worker == 1:
            hang.wait(30)
        return handles(worker)

    drill._handles = hang_once
    run_epoch(drill, 3)
    assert drill.rounds.workers.live == {0}
    # Two rounds ahead, and the one after them: as many as were merged while worker 1 was thought to be there.
    np.testing.assert_allclose(drill.values(), FLAT - MOVES.mean(0) - 3 * MOVES[0] / 2, atol=1e-5)
    before = drill.values()
    hang.set()
    wait_for(lambda: drill.rounds.merging.order.count(1) >= 2)
    drill._handles = handles
    drill.run()
    assert drill.rounds.records[-1].late == 1
    assert drill.rounds.records[-1].staleness_max >= 3
    assert drill.rounds.workers.live >= {0}
    assert np.abs(before - drill.values()).max() > 0


# -- on processes -----------------------------------------------------------------------------------------------------


def fit(method, make_layers=lambda: [keras.layers.Dense(1)], epochs: int = 8):
    """A small regression under `fit`, on two real workers; the strategy, the model and its losses."""
    made = strategy(method, 2, 2, seed=1)
    x = 1.0 + np.random.default_rng(0).standard_normal((2 * 4 * 20, 3)).astype(np.float32)
    y = (x @ [[1.0], [-2.0], [0.5]]).astype(np.float32)
    with made.scope():
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((3,)), *make_layers()])
        model.compile(keras.optimizers.SGD(0.05, momentum=0.5), "mse")
    history = model.fit(x, y, batch_size=4, epochs=epochs, verbose=0)
    return made, model, history.history["loss"], model.evaluate(x, y, verbose=0)


FITTED = [
    methods.plump(p=2, **ASYNC),
    methods.slim(0.8, 0.5, p=2, q=4, memory="carry", average="contributors", **ASYNC),
    methods.top_k(0.5, p=2, **ASYNC),
]
EVENTS = methods.event_triggered(0.05, p=2)


@pytest.mark.cluster
@pytest.mark.parametrize("method", FITTED, ids=lambda method: method.name)
def test_fits_on_real_workers(method):
    made, model, losses, loss = fit(method)
    records, merged = made.records, made.rounds.merging.order
    assert losses[-1] < 0.1 * losses[0] and loss < 0.1
    assert len(records) == 8 * 10 and sorted(merged) == [0] * 80 + [1] * 80
    assert {record.steps_in_round for record in records} == {2}
    assert max(record.staleness_max for record in records) >= 1  # two workers: somebody was merged in between
    assert int(model.optimizer.iterations) == 8 * 20
    assert [record.refused for record in records] == [0] * 80
    assert made.traffic.push_bytes > 0


@pytest.mark.cluster
def test_fits_by_events_with_fewer_pushes():
    made, _, losses, loss = fit(EVENTS)
    assert losses[-1] < 0.1 * losses[0] and loss < 0.1
    assert len(made.records) == 80 and 16 <= len(made.rounds.merging.order) < 160  # at the least, at every epoch's end


@pytest.mark.cluster
def test_averages_that_training_writes_are_those_of_all_workers():
    _, model, _, _ = fit(FITTED[0], lambda: [keras.layers.BatchNormalization(momentum=0.9), keras.layers.Dense(1)])
    np.testing.assert_allclose(model.layers[0].moving_mean, np.ones(3), atol=0.4)
    np.testing.assert_allclose(model.layers[0].moving_variance, np.ones(3), atol=0.6)


@pytest.mark.cluster
def test_a_worker_that_is_killed_is_left_behind_and_comes_back():
    own = slimdp_tf.local_cluster(workers=2, ps=1)
    with own:
        made = slimdp_tf.SlimDPStrategy(own, methods.plump(**ASYNC), worker_deadline_s=20.0)
        actions = {
            3: lambda: own.kill("worker", 1),
            10: lambda: (own.restart("worker", 1), wait_for(made.rounds.workers.has_returned)),
        }
        disturb = keras.callbacks.LambdaCallback(on_train_batch_begin=lambda b, logs: actions.pop(b, int)())
        x = np.random.default_rng(0).standard_normal((2 * 4 * 20, 3)).astype(np.float32)
        with made.scope():
            model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
            model.compile(keras.optimizers.SGD(0.05), "mse")
        losses = model.fit(x, x[:, :1], batch_size=4, epochs=2, verbose=0, callbacks=[disturb]).history["loss"]
        assert not actions and losses[1] < losses[0]
        assert [record.workers for record in made.records][-3:] == [2, 2, 2]
        assert min(record.workers for record in made.records) == 1
        assert np.isfinite(model.evaluate(x, x[:, :1], verbose=0))
