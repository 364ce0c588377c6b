"""Rounds whose exchange runs beside the next one: in one process against the simulation, then by fit on a cluster."""

import keras
import numpy as np
import pytest

import slimdp_tf
from slimdp_tf import methods
from slimdp_tf.distribute.snapshots import Keeper
from slimdp_tf.simulate import overlapped
from tests.cluster import strategy as make_strategy
from tests.distribute.one_process import Drill
from tests.distribute.test_rounds import FLAT, MOVES, START, move

pytestmark = pytest.mark.slow

METHODS = [
    methods.plump(p=4),
    methods.plump(p=1),
    methods.quant(p=2, bucket=4, quantize_pull=True),
    methods.slim(0.5, 0.25, p=3, q=3),
    methods.slim(0.5, 0.25, p=2, q=3, memory="carry", average="contributors", explorer_keys="derived"),
    methods.top_k(0.7, p=2),
    methods.fed_avg(2),
]


def make_drill(method, ps: int = 2, moves=MOVES, **arguments) -> Drill:
    return Drill(method, START, len(moves), ps, moves, overlap=True, **arguments)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: f"{method.name}, p={method.p}")
def test_rounds_are_the_simulation_of_updates_one_round_late(method):
    drill, rounds = make_drill(method), 6
    for _ in range(rounds):
        drill.run()
    drill.rounds.settle()
    train = overlapped(move)
    expected = slimdp_tf.simulate(method, FLAT, train, rounds, workers=2, servers=2, seed=3)
    np.testing.assert_allclose(drill.values(), expected.weights, atol=1e-6)
    assert len(drill.rounds.records) == rounds
    assert sum(record.traffic.push_bytes for record in drill.rounds.records) == expected.traffic.push_bytes


def test_the_servers_are_one_round_behind_until_rounds_are_settled():
    drill = make_drill(methods.plump(p=2))
    drill.run()
    np.testing.assert_array_equal(drill.values(), FLAT)
    drill.rounds.settle()
    np.testing.assert_allclose(drill.values(), FLAT - 2 * np.mean(MOVES, 0), atol=1e-6)
    drill.rounds.settle()  # nothing is left
    assert len(drill.rounds.records) == 1 and drill.rounds.records[0].steps_in_round == 2


def test_metrics_and_steps_are_those_of_the_whole_round():
    drill = make_drill(methods.plump(p=5))
    reports = drill.run()
    assert [report.steps for report in reports] == [5, 5] and drill.rounds.steps == 5
    assert drill.loss.numpy() == 10.0  # both workers, five steps
    assert [report.outputs[0][0] for report in reports] == [5.0, 5.0]


def test_a_round_of_one_step_has_its_outputs():
    drill = make_drill(methods.plump(p=1))
    assert [report.outputs[0][0] for report in drill.run()] == [1.0, 1.0]


def test_a_worker_whose_data_has_ended_has_nothing_to_say():
    drill = make_drill(methods.plump(p=2))
    drill.batches[1] = 0
    drill.run(), drill.rounds.settle()
    np.testing.assert_allclose(drill.values(), FLAT - 2 * MOVES[0], atol=1e-6)


def test_what_the_chief_sets_counts_and_what_was_trained_before_does_not():
    drill = make_drill(methods.plump(p=2))
    drill.run()
    for variable, value in zip(drill.weights, START):
        variable.assign(np.zeros_like(value, "float32"))
    drill.run(), drill.rounds.settle()
    np.testing.assert_allclose(drill.values(), -2 * np.mean(MOVES, 0), atol=1e-6)


@pytest.mark.parametrize("method", [methods.plump(p=2), methods.slim(0.6, 0.3, p=2, q=3)], ids=lambda m: m.name)
def test_an_update_that_is_not_finite_is_refused_and_training_goes_on(method):
    drill = make_drill(method, on_nonfinite="skip")
    drill.run()
    bad = np.array(MOVES, np.float32)
    bad[1, 0] = np.nan
    drill.moves.assign(bad)
    drill.run()
    drill.moves.assign(np.asarray(MOVES, np.float32))
    for _ in range(4):
        drill.run()
    drill.rounds.settle()
    assert np.isfinite(drill.values()).all()
    assert sum(record.refused for record in drill.rounds.records) >= 1
    assert drill.rounds.records[-1].refused == 0


def test_custom_loops_are_refused():
    drill = make_drill(methods.plump(p=2))
    with pytest.raises(RuntimeError, match="overlap=True is for model.fit"):
        drill.run(1, is_exchanging=False)


@pytest.mark.parametrize("method", [METHODS[2], METHODS[4]], ids=lambda method: method.name)
def test_goes_on_from_a_snapshot_as_the_run_that_took_it(method, tmp_path, caplog):
    first, resumed = make_drill(method), make_drill(method)
    keeper = Keeper(first.rounds, tmp_path, every_rounds=3)
    first.rounds.listeners.append(lambda record: keeper.save() if keeper.is_due else None)
    for _ in range(3):  # the last round is merged when the next one trains, or for a snapshot
        first.run()
    assert (first.rounds.round, first.rounds.begun, keeper.saved_round) == (3, 3, 3)
    assert [record.round for record in first.rounds.records] == [0, 1, 2]
    keeper.file.finish()
    Keeper(resumed.rounds, tmp_path).restore(keeper.last())
    np.testing.assert_array_equal(resumed.values(), first.values())
    first.rounds.listeners.clear()
    for drill in (first, resumed):
        drill.run(), drill.run()
        assert (drill.rounds.round, drill.rounds.begun) == (4, 5)
        drill.rounds.settle()
        assert (drill.rounds.round, drill.rounds.steps) == (5, 5 * method.p)
    np.testing.assert_array_equal(resumed.values(), first.values())
    assert resumed.loss.numpy() == first.loss.numpy()
    assert caplog.text == ""


@pytest.mark.cluster
def test_fit_learns_and_ends_with_everything_exchanged():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((512, 6)).astype("float32")
    y = x @ rng.standard_normal((6, 1)).astype("float32")
    strategy = make_strategy(methods.slim(0.5, 0.25, p=4, q=4, memory="carry"), overlap=True)
    with strategy.scope():
        keras.utils.set_random_seed(0)
        model = keras.Sequential(
            [keras.Input((6,)), keras.layers.Dense(16), keras.layers.BatchNormalization(), keras.layers.Dense(1)]
        )
        model.compile(keras.optimizers.SGD(0.02), "mse", metrics=["mae"])
    history = model.fit(x, y, batch_size=8, epochs=4, validation_data=(x, y), verbose=0).history
    assert history["val_loss"][-1] < 0.3 * history["val_loss"][0]
    assert len(strategy.records) == 4 * 8 and strategy.records[-1].steps == 4 * 32
    before = model.get_weights()
    strategy.rounds.settle()
    for one, other in zip(before, model.get_weights()):
        np.testing.assert_array_equal(one, other)
