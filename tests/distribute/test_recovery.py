"""Going back to the last snapshot inside a run: after a server was lost, and after updates that were not finite."""

import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

import slimdp_tf
from slimdp_tf import methods
from slimdp_tf.distribute import _tf, recovery
from slimdp_tf.distribute.refusals import NonFiniteUpdateError
from slimdp_tf.distribute.servers import ServerLost
from slimdp_tf.distribute.snapshots import Keeper
from tests.distribute.one_process import Drill

START = [np.arange(8.0).reshape(2, 4), np.ones(4)]
MOVES = np.stack([np.arange(12) / 8, -np.ones(12) / 4]).astype(np.float32)


# -- updates that are not finite --------------------------------------------------------------------------------------


def make_drill(folder, pacing: str = "sync", overlap: bool = False, **schedule) -> Drill:
    method = methods.slim(0.5, 0.25, q=3, pacing=pacing)
    drill = Drill(method, START, 2, 1, MOVES, on_nonfinite="rollback", overlap=overlap)
    keeper = drill.rounds.snapshots = Keeper(drill.rounds, folder, **schedule)
    drill.rounds.listeners.append(lambda record: keeper.save() if keeper.is_due else None)
    return drill


@pytest.mark.slow
@pytest.mark.parametrize("pacing", ["sync", "async"])
def test_goes_back_after_an_update_that_is_not_finite(tmp_path, pacing):
    drill = make_drill(tmp_path, pacing, every_rounds=2)
    drill.run(), drill.run()
    saved = drill.values()
    drill.run()
    drill.moves.assign(np.stack([MOVES[0], np.full(12, np.nan)]))
    drill.run()
    np.testing.assert_array_equal(drill.values(), saved)
    assert (drill.rounds.round, drill.rounds.recovery.count, drill.rounds.recovery.lost) == (2, 1, 2)
    drill.moves.assign(MOVES)
    drill.run()
    assert [record.refused for record in drill.rounds.records] == [0, 0, 0, 1, 0]
    drill.moves.assign(np.full((2, 12), np.inf))
    with pytest.raises(NonFiniteUpdateError, match="after going back to the snapshot of round 2 3 times"):
        for _ in range(5):
            drill.run()


@pytest.mark.slow
def test_goes_back_from_an_exchange_that_runs_beside_the_next_round(tmp_path):
    drill = make_drill(tmp_path, overlap=True, every_rounds=2)
    for moves in (MOVES, MOVES, np.stack([MOVES[0], np.full(12, np.nan)])):
        drill.moves.assign(moves)
        drill.run()
    assert drill.rounds.snapshots.saved_round == 2
    saved = drill.values()  # the third round is not exchanged yet
    drill.moves.assign(MOVES)
    drill.run()
    np.testing.assert_array_equal(drill.values(), saved)
    assert (drill.rounds.round, drill.rounds.recovery.count, drill.rounds.recovery.lost) == (2, 1, 1)
    drill.run(), drill.rounds.settle()
    np.testing.assert_allclose(drill.values(), drill_of_three(), atol=1e-6)
    assert [record.refused for record in drill.rounds.records] == [0, 0, 1, 0]


def drill_of_three() -> np.ndarray:
    """The weights after three rounds with nothing to go back from."""
    drill = Drill(methods.slim(0.5, 0.25, q=3), START, 2, 1, MOVES, overlap=True)
    for _ in range(2):
        drill.run()
    drill.rounds.settle(), drill.run(), drill.rounds.settle()
    return drill.values()


@pytest.mark.slow
def test_going_back_needs_snapshots(tmp_path):
    drill = make_drill(tmp_path, every_rounds=9)
    drill.moves.assign(np.full((2, 12), np.nan))
    with pytest.raises(NonFiniteUpdateError, match="there is no snapshot to go back to yet"):
        drill.run()
    drill.rounds.snapshots = None
    with pytest.raises(ValueError, match="on_nonfinite='rollback' needs snapshots"):
        drill.run()


@pytest.mark.slow
@pytest.mark.parametrize("has_directory", [False, True])
def test_without_a_snapshot_the_error_says_how_to_take_them(tmp_path, has_directory):
    drill = make_drill(tmp_path)
    if not has_directory:
        drill.rounds.snapshots = None
    with pytest.raises(slimdp_tf.ClusterError, match="^Lost ps 0. .* as there is no snapshot: slimdp_tf.Snapshots"):
        drill.rounds.recovery.after_loss(ServerLost("Lost ps 0."))


# -- a server that is lost --------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("has_snapshot", [True, False])
def test_a_server_that_is_lost_while_the_chief_reads_the_model_is_restored(tmp_path, has_snapshot):
    drill = Drill(methods.slim(0.5, 0.25, q=3), START, 2, 1, MOVES)
    keeper = drill.rounds.snapshots = Keeper(drill.rounds, tmp_path)
    drill.run()
    if has_snapshot:
        keeper.save()
        saved = drill.values()
    drill.run()
    call, failed = drill.rounds.servers.call, []

    def fail_once(function, purpose, *seconds):
        if purpose == "while the chief read the model" and not failed:
            failed.append(purpose)
            raise ServerLost("Lost ps 0.")
        return call(function, purpose, *seconds)

    drill.rounds.servers.call = fail_once
    if not has_snapshot:
        with pytest.raises(slimdp_tf.ClusterError, match="^Lost ps 0. .* as there is no snapshot"):
            drill.values()
        return
    np.testing.assert_array_equal(drill.values(), saved)
    assert (drill.rounds.round, drill.rounds.recovery.count, drill.rounds.recovery.lost) == (1, 1, 1)
    drill.run()
    assert [record.round for record in drill.rounds.records] == [0, 1, 1]


@pytest.mark.slow
@pytest.mark.parametrize("losses", [1, 2, 5])
def test_a_server_that_is_lost_while_everything_is_restored_is_waited_for_again(tmp_path, losses):
    drill = Drill(methods.slim(0.5, 0.25, q=3), START, 2, 1, MOVES)
    keeper = drill.rounds.snapshots = Keeper(drill.rounds, tmp_path)
    drill.run(), keeper.save()
    saved, furnish_again, failed = drill.values(), drill.rounds.workers.furnish_again, []

    def fail_first():
        if len(failed) < losses:
            failed.append(drill.rounds.round)
            raise (ServerLost("Lost ps 0 again.") if losses > 1 else tf.errors.UnavailableError(None, None, "gone"))
        furnish_again()

    drill.rounds.workers.furnish_again = fail_first
    if losses > 3:
        with pytest.raises(slimdp_tf.ClusterError, match="^Lost ps 0 again. Going back to .* round 1 did not help 3"):
            drill.rounds.recovery.after_loss(ServerLost("Lost ps 0."))
        return
    drill.rounds.recovery.after_loss(ServerLost("Lost ps 0."))
    np.testing.assert_array_equal(drill.values(), saved)
    assert (drill.rounds.recovery.count, len(failed)) == (1, losses)


@pytest.mark.slow
def test_a_worker_that_waits_for_good_for_a_lost_server_is_taken_again(tmp_path, monkeypatch, caplog):
    drill, gate = Drill(methods.slim(0.5, 0.25, q=3), START, 2, 1, MOVES), threading.Event()
    drill.rounds.snapshots = Keeper(drill.rounds, tmp_path)
    drill.run()
    drill.rounds.snapshots.save()
    saved = drill.values()
    monkeypatch.setattr(recovery, "BUSY_S", 5.0)
    monkeypatch.setattr(_tf, "address_of", lambda device: device)
    monkeypatch.setattr(slimdp_tf.distribute.workers, "answers", lambda address: True)
    drill.rounds.workers.submit(lambda worker: gate.wait(60), 1)
    drill.rounds.recovery.after_loss(ServerLost("ps 0 was started anew."))
    assert drill.rounds.workers.live == {0, 1} and not gate.is_set()
    assert "worker 1 is lost (it waits for what a server held that was lost)" in caplog.text
    np.testing.assert_array_equal(drill.values(), saved)
    drill.run()
    assert drill.rounds.records[-1].workers == 2
    gate.set()


def train(strategy, callbacks) -> tuple[keras.Model, float]:
    """A linear model of 12 rounds per epoch, and its loss in the end."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((12 * 2 * 4 * strategy.workers, 6)).astype(np.float32)
    y = (x @ rng.standard_normal((6, 2))).astype(np.float32)
    keras.utils.set_random_seed(7)
    with strategy.scope():
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(2)])
        model.compile(keras.optimizers.SGD(0.05, momentum=0.5), "mse")
    model.fit(x, y, batch_size=4, epochs=2, verbose=0, callbacks=callbacks)
    return model, model.evaluate(x, y, verbose=0)


def during(strategy, number: int, act) -> None:
    """Lets `act` happen once, after so many rounds."""
    strategy.on_round(lambda record: act() if len(strategy.records) == number else None)


@pytest.mark.cluster
def test_a_server_that_comes_back_is_restored_and_training_goes_on(tmp_path, caplog):
    method = methods.slim(0.6, 0.4, p=2, q=4, memory="carry", average="contributors")
    with slimdp_tf.local_cluster(workers=2, ps=2) as cluster:
        strategy = slimdp_tf.SlimDPStrategy(cluster, method, seed=3)
        during(strategy, 8, lambda: cluster.restart("ps", 1))
        _, loss = train(strategy, [slimdp_tf.Snapshots(tmp_path, every_rounds=3)])
        assert strategy.rounds.recovery.count == 1
        assert 2 <= strategy.rounds.recovery.lost <= 8
        assert strategy.rounds.round == 24 - strategy.rounds.recovery.lost  # every batch was trained
        assert loss < 0.05
        assert "Lost ps 1 at" in caplog.text

        # When it stays away, the error says what to do.
        strategy = slimdp_tf.SlimDPStrategy(cluster, method, seed=3, cluster_deadline_s=5)
        during(strategy, 2, lambda: cluster.kill("ps", 0))
        again = slimdp_tf.Snapshots(tmp_path / "again", every_rounds=1)
        with pytest.raises(slimdp_tf.ClusterError, match="ps 0 at .* did not come back within 5 s. To resume, start"):
            train(strategy, [again])


@pytest.mark.cluster
def test_a_server_that_comes_back_is_restored_where_there_is_no_barrier(tmp_path, caplog):
    slim = methods.slim(0.6, 0.4, p=2, q=4, memory="carry", average="contributors", pacing="async", staleness=2)
    with slimdp_tf.local_cluster(workers=2, ps=2) as cluster:
        strategy = slimdp_tf.SlimDPStrategy(cluster, slim, seed=3)
        during(strategy, 8, lambda: cluster.restart("ps", 1))
        _, loss = train(strategy, [slimdp_tf.Snapshots(tmp_path, every_rounds=3)])
    recovery = strategy.rounds.recovery
    assert recovery.count == 1 and recovery.lost <= 8
    assert 24 - recovery.lost <= strategy.rounds.round <= 24 - recovery.lost + slim.staleness
    assert len(strategy.records) == 24  # every call of a round ended
    assert [record.refused for record in strategy.records] == [0] * 24
    assert loss < 0.05
    assert "Lost ps 1 at" in caplog.text and "Every server answers again" in caplog.text
