"""Rounds: who takes part, what is merged, what a refusal or an assignment does to the next one."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import slimdp_tf
from slimdp_tf import methods
from slimdp_tf.channel import Channel
from slimdp_tf.distribute import _tf
from slimdp_tf.distribute.calls import ClusterError
from slimdp_tf.distribute.refusals import NonFiniteUpdateError
from slimdp_tf.distribute.step import Step
from slimdp_tf.rules.memories import Carry
from slimdp_tf.rules.selectors import Pushed
from tests.distribute.one_process import Drill, make_variable

pytestmark = pytest.mark.slow

N = 12
START = [np.arange(8.0).reshape(2, 4), np.ones(4)]
MOVES = np.stack([np.arange(N) / 8, -np.ones(N) / 4])
FLAT = np.concatenate([v.ravel() for v in START]).astype(np.float32)
SLIM = methods.slim(0.5, 0.25, q=3)


def move(worker: int, weights: np.ndarray, steps: int, number: int) -> np.ndarray:
    """What the drill's workers do, in the simulation."""
    for _ in range(steps):
        weights = weights - MOVES[worker].astype(np.float32)
    return weights


def make_drill(method=None, ps: int = 1, moves=MOVES, **arguments) -> Drill:
    return Drill(method or methods.plump(), START, len(moves), ps, moves, **arguments)


@pytest.mark.parametrize(
    "method",
    [
        methods.slim(0.5, 0.25, p=2, q=3, memory="carry", average="contributors", explorer_keys="derived"),
        methods.quant(p=2, bucket=4, quantize_pull=True),
    ],
    ids=lambda method: method.name,
)
def test_rounds_are_the_simulation(method):
    drill, rounds = make_drill(method, ps=2), 7
    for _ in range(rounds):
        drill.run()

    expected = slimdp_tf.simulate(method, FLAT, move, rounds, workers=2, servers=2, seed=3)
    np.testing.assert_allclose(drill.values(), expected.weights, atol=1e-6)


METHODS = [
    methods.top_k(0.7),
    dataclasses.replace(methods.random_k(0.3), name="own", down=Channel((Pushed(),), memory=Carry())),
    methods.local_combine("error", 0.7, average=3),
    methods.one_bit(),
    methods.dgc(0.2, 0.5, warmup=4),
    methods.easgd(0.5, 2, 2),
    methods.predictive(0.3),
    methods.loss_weighted(),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_rounds_of_other_methods_are_the_simulation(method):
    drill, rounds = make_drill(method, ps=2), 4
    drill.use(drill.train)
    for _ in range(rounds):
        drill.run()

    shapes = [v.shape for v in START]
    expected = slimdp_tf.simulate(method, FLAT, move, rounds, workers=2, servers=2, seed=3, shapes=shapes)
    np.testing.assert_allclose(drill.values(), expected.weights, atol=1e-6)


def test_rounds_are_as_long_as_the_method_plans():
    drill = make_drill(methods.post_local_sgd(2, 5))
    planned = []
    for _ in range(4):
        planned.append(drill.rounds.planned)
        drill.run(drill.rounds.planned)
    assert planned == [1, 1, 5, 5]
    assert drill.rounds.steps == 12


def test_the_loss_reaches_the_servers_and_the_plan():
    def train_with_loss(drill):  # worker 0 has loss 1, worker 1 has loss 2
        def train(elements, arguments):
            drill.train(elements, arguments)
            return [tf.cast(elements[0] + 1, tf.float64)[None]]

        return train

    drill = make_drill(methods.loss_weighted())
    drill.use(train_with_loss(drill))
    drill.step.has_loss = True
    drill.run()
    # Mean loss 1.5: worker 0 counts 1.5, worker 1 counts 0.75.
    np.testing.assert_allclose(drill.values(), FLAT - (1.5 * MOVES[0] + 0.75 * MOVES[1]) / 2, atol=1e-6)
    assert drill.rounds.signal.loss == drill.rounds.signal.first_loss == 1.5


# -- who takes part ---------------------------------------------------------------------------------------------------


def test_counts_rounds_and_steps():
    drill = make_drill(methods.plump(p=3))
    drill.run(), drill.run(steps=1), drill.run()
    records = drill.rounds.records
    assert [record.round for record in records] == [0, 1, 2]
    assert [record.steps_in_round for record in records] == [3, 1, 3]
    assert [record.steps for record in records] == [3, 4, 7]
    np.testing.assert_allclose(drill.values(), FLAT - 7 * MOVES.mean(0), atol=1e-5)


@pytest.mark.parametrize("method", [methods.plump(), SLIM], ids=lambda method: method.name)
def test_a_worker_without_data_takes_no_part(method):
    """From the first round on: its slots have never been written."""
    drill = make_drill(method)
    drill.batches[1] = 0
    first, second = drill.run()
    assert (first.steps, second.steps) == (1, 0)
    record = drill.rounds.records[0]
    assert (record.workers, record.refused) == (1, 0)
    assert record.traffic.push_bytes == 4 * N
    np.testing.assert_allclose(drill.values(), FLAT - MOVES[0], atol=1e-6)
    drill.batches[1] = -1
    before = drill.values()
    for _ in range(4):
        drill.run()
    assert [record.workers for record in drill.rounds.records] == [1, 2, 2, 2, 2]
    assert [record.refused for record in drill.rounds.records] == [0] * 5
    if method.name == "plump":
        np.testing.assert_allclose(drill.values(), before - 4 * MOVES.mean(0), atol=1e-5)


def watch_functions(drill: Drill, monkeypatch) -> tuple[list, list]:
    """What is called from now on: (round, worker, pull, push) of workers, and (round, whole, refresh) of the merge."""
    functions, worked, merged = drill.rounds.binding.functions, [], []
    make_worker, make_merge = functions.worker, functions.merge

    def watch_worker(step, trace, pull, push):
        def work(handles, arguments, steps, number, worker):
            worked.append((int(number), int(worker), pull, push))
            return make_worker(step, trace, pull, push)(handles, arguments, steps, number, worker)

        return work

    def watch_merge(whole, refresh):
        def fold(number):
            merged.append((int(number), whole, refresh))
            return make_merge(whole, refresh)(number)

        return fold

    monkeypatch.setattr(functions, "worker", watch_worker)
    monkeypatch.setattr(functions, "merge", watch_merge)
    return worked, merged


def test_a_round_is_one_function_on_every_live_worker_and_one_merge(monkeypatch):
    """Rounds 0, 2 and 5 are whole and choose a core; worker 1 is lost before round 3 and back before round 5."""
    drill = make_drill(SLIM)
    worked, merged = watch_functions(drill, monkeypatch)
    for number in range(7):
        if number == 3:
            drill.rounds.workers.live.remove(1)
        if number == 5:
            drill.rounds.workers._returned.put(1)
        drill.run()

    live = [[0, 1]] * 3 + [[0]] * 2 + [[0, 1]] * 2
    assert sorted(call[:2] for call in worked) == [(number, w) for number in range(7) for w in live[number]]
    whole = [0, 2, 5]
    assert merged == [(number, number in whole, number in whole) for number in range(7)]
    assert {(call[0], call[3]) for call in worked} == {(n, "whole" if n in whole else "chosen") for n in range(7)}
    everything = {call[:2] for call in worked if call[2] == "everything"}
    assert everything == {(number, worker) for number in (0, 1) for worker in range(2)} | {(5, 1)}
    assert [record.workers for record in drill.rounds.records] == [len(workers) for workers in live]


def test_calls_of_one_round_are_a_function_each_and_one_merge(monkeypatch):
    drill = make_drill(methods.plump(p=2))
    worked, merged = watch_functions(drill, monkeypatch)
    drill.run(steps=1, is_exchanging=False), drill.run(steps=1)
    assert sorted(worked[:2]) == [(0, worker, "everything", None) for worker in range(2)]
    assert sorted(worked[2:]) == [(0, worker, None, "chosen") for worker in range(2)]
    assert merged == [(0, False, False)]


def test_a_worker_whose_data_ends_early_pushes_what_it_has_done():
    drill = make_drill(methods.plump(p=4))
    drill.batches[1] = 2
    assert [report.steps for report in drill.run()] == [4, 2]
    np.testing.assert_allclose(drill.values(), FLAT - (4 * MOVES[0] + 2 * MOVES[1]) / 2, atol=1e-5)


def test_nothing_is_merged_when_all_data_has_ended():
    drill = make_drill()
    drill.batches = [0, 0]
    assert [report.steps for report in drill.run()] == [0, 0]
    assert (drill.rounds.records, drill.rounds.round) == ([], 0)
    np.testing.assert_array_equal(drill.values(), FLAT)


def test_a_worker_that_missed_a_new_core_takes_everything():
    drill = make_drill(SLIM)
    drill.run(), drill.run()
    drill.batches[1] = 0
    drill.run()  # a core is chosen after it
    drill.batches[1] = -1
    drill.run(), drill.run()
    assert [record.refused for record in drill.rounds.records] == [0] * 5
    pulled, k = drill.rounds.records[3].traffic.pull_bytes, round(0.5 * N)
    assert pulled == 4 * N + 4 * k  # worker 1 everything, worker 0 what it pushed


def test_steps_without_an_exchange_wait_for_the_next():
    drill = make_drill()
    drill.run(is_exchanging=False)
    assert drill.rounds.records == []
    np.testing.assert_array_equal(drill.values(), FLAT)
    drill.run()
    np.testing.assert_allclose(drill.values(), FLAT - 2 * MOVES.mean(0), atol=1e-6)


def test_the_record_of_a_round_counts_all_its_calls():
    drill = make_drill(methods.plump(p=2))
    for _ in range(2):
        drill.run(steps=1, is_exchanging=False), drill.run(steps=1)
    record = drill.rounds.records[1]
    assert (record.steps_in_round, record.steps) == (2, 4)
    assert (record.traffic.push_bytes, record.traffic.pull_bytes) == (2 * 4 * N, 2 * 4 * N)  # pulled by the first call


def test_when_every_worker_was_lost_those_that_are_back_do_the_round(monkeypatch):
    drill, calls = make_drill(), []
    call = drill.rounds.workers.call

    def lose_all_once(function, workers=None, *how):
        calls.append(function)
        if len(calls) > 1:
            return call(function, workers, *how)
        for worker in list(drill.rounds.workers.live):
            drill.rounds.workers._returned.put(worker)
        drill.rounds.workers.live.clear()
        return {}

    drill.run()
    monkeypatch.setattr(drill.rounds.workers, "call", lose_all_once)
    assert len(drill.run()) == 2
    np.testing.assert_allclose(drill.values(), FLAT - 2 * MOVES.mean(0), atol=1e-6)


def test_when_workers_were_lost_for_a_server_that_hangs_it_is_named(monkeypatch):
    drill = make_drill()
    monkeypatch.setattr(drill.rounds.workers, "call", lambda function, workers=None, *how: {})
    monkeypatch.setattr(drill.rounds.cache, "send", lambda: False)
    monkeypatch.setattr(_tf, "is_alive", lambda device: False)
    with pytest.raises(ClusterError, match="No answer from ps 0, in round 0"):
        drill.run()


def test_metrics_are_summed_over_workers():
    drill = make_drill(methods.plump(p=3))
    drill.run(), drill.run()
    assert drill.loss.numpy() == 2 * 3 * 2
    drill.loss.assign(0.0)
    drill.run()
    assert drill.loss.numpy() == 3 * 2


def test_tells_listeners():
    drill, heard = make_drill(), []
    drill.rounds.listeners.append(heard.append)
    drill.run(), drill.run()
    assert heard == drill.rounds.records
    record = heard[1]
    assert record.round_s > 0 and min(record.compute_s, record.exchange_s, record.wait_s) >= 0
    assert record.compute_s + record.exchange_s + record.wait_s == pytest.approx(record.round_s, rel=1e-6)


# -- what is not finite -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [methods.plump(), SLIM], ids=lambda method: method.name)
def test_an_update_that_is_not_finite_never_touches_the_weights(method):
    drill = make_drill(method, on_nonfinite="skip")
    drill.run(), drill.run()
    drill.moves.assign(np.stack([MOVES[0], np.full(N, np.nan)]))
    drill.run()
    assert np.isfinite(drill.values()).all()
    drill.moves.assign(MOVES)
    drill.run(), drill.run()
    assert [record.refused for record in drill.rounds.records] == [0, 0, 1, 0, 0]
    assert np.isfinite(drill.values()).all()
    if method.name == "plump":
        np.testing.assert_allclose(drill.values(), FLAT - 4 * MOVES.mean(0) - MOVES[0], atol=1e-5)


def test_an_update_that_is_not_finite_is_raised_and_training_can_go_on():
    drill = make_drill()
    drill.run()
    before = drill.values()
    drill.moves.assign(np.full((2, N), np.inf))
    with pytest.raises(NonFiniteUpdateError, match="round 1 from worker 0, worker 1 .*did not touch the weights"):
        drill.run()
    np.testing.assert_array_equal(drill.values(), before)
    drill.moves.assign(MOVES)
    drill.run()
    np.testing.assert_allclose(drill.values(), before - MOVES.mean(0), atol=1e-6)


# -- what the chief assigns, what is prepared -------------------------------------------------------------------------


def test_what_the_chief_assigns_is_where_all_go_on_from():
    drill = make_drill(SLIM)
    for _ in range(3):
        drill.run()
    values = np.linspace(5.0, 6.0, N, dtype=np.float32)
    drill.weights[0].assign(values[:8].reshape(2, 4))
    drill.weights[1].assign(values[8:])
    np.testing.assert_array_equal(drill.values(), values)
    drill.moves.assign(np.zeros((2, N)))
    drill.run()
    np.testing.assert_array_equal(drill.values(), values)
    assert drill.rounds.records[-1].traffic.pull_bytes == 2 * 4 * N


def test_assigning_one_variable_leaves_the_others_as_trained():
    drill = make_drill()
    drill.run()
    drill.weights[1].assign(np.zeros(4))
    drill.run()
    expected = np.concatenate([FLAT[:8] - 2 * MOVES.mean(0)[:8], -MOVES.mean(0)[8:]])
    np.testing.assert_allclose(drill.values(), expected, atol=1e-6)


def test_nothing_to_train():
    drill = make_drill()
    with pytest.raises(ValueError, match="no trainable weights"):
        drill.rounds.prepare(drill.step, drill.weights, [], [])


def test_a_second_step_with_more_variables_begins_where_the_first_ended():
    drill = make_drill()
    drill.run()
    bias = make_variable(np.zeros(2, np.float32), drill.rounds.cache, name="bias")

    def train(elements, arguments):
        bias.assign_add([1.0, 1.0])
        return drill.train(elements, arguments)

    step = Step(train, [tf.TensorSpec([], tf.int64)], [], True)
    drill.rounds.prepare(step, [*drill.weights, drill.loss, bias], [*drill.weights, bias], [])
    drill.step = step
    drill.run()
    np.testing.assert_allclose(drill.values(), FLAT - 2 * MOVES.mean(0), atol=1e-6)
    np.testing.assert_array_equal(bias.numpy(), [1, 1])


def test_preparing_again_what_is_prepared_changes_nothing():
    drill = make_drill()
    drill.run()
    shared = dict(drill.rounds.cache.shared)
    drill.use(drill.train)
    assert drill.rounds.cache.shared == shared
    drill.run()
    assert not drill.rounds.records[-1].traffic.chief_bytes


# -- the end ----------------------------------------------------------------------------------------------------------


def test_brings_the_model_home_and_trains_no_more(monkeypatch):
    drill = make_drill()
    drill.run()
    drill.rounds.bring_home()
    monkeypatch.setattr(drill.rounds.servers, "call", None)  # whatever is read now is the chief's own
    np.testing.assert_allclose(drill.values(), FLAT - MOVES.mean(0), atol=1e-6)
    with pytest.raises(ClusterError, match="has been stopped"):
        drill.run()
