"""Going back to the last snapshot inside a run: after a server was lost, and after updates that were not finite."""

import keras
import numpy as np
import pytest

import slimdp_tf
from slimdp_tf import methods
from slimdp_tf.distribute.refusals import NonFiniteUpdateError
from slimdp_tf.distribute.servers import ServerLost
from slimdp_tf.distribute.snapshots import Keeper
from tests.distribute.one_process import Drill

START = [np.arange(8.0).reshape(2, 4), np.ones(4)]
MOVES = np.stack([np.arange(12) / 8, -np.ones(12) / 4]).astype(np.float32)


# -- updates that are not finite --------------------------------------------------------------------------------------


def make_drill(folder, **schedule) -> Drill:
    drill = Drill(methods.slim(0.5, 0.25, q=3), START, 2, 1, MOVES, on_nonfinite="rollback")
    keeper = drill.rounds.snapshots = Keeper(drill.rounds, folder, **schedule)
    drill.rounds.listeners.append(lambda record: keeper.save() if keeper.is_due else None)
    return drill


@pytest.mark.slow
def test_goes_back_after_an_update_that_is_not_finite(tmp_path):
    drill = make_drill(tmp_path, every_rounds=2)
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
