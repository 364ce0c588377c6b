"""Runs without a barrier, and with overlap, that were interrupted and go on; what their snapshots count is there."""

from __future__ import annotations

import dataclasses

import keras
import numpy as np
import pytest

import slimdp_tf
from slimdp_tf import methods
from slimdp_tf.distribute.snapshot_file import SnapshotFile
from tests.cluster import strategy
from tests.distribute.test_exactly_once import Sum
from tests.training.resume_program import EPOCHS, ROUNDS, EndAfter, fit
from tests.training.small_models import flatten
from tests.training.test_snapshots import Interrupted, check_same, interrupt

pytestmark = pytest.mark.cluster

ASYNC = {"pacing": "async", "staleness": 2}
SLIM = methods.slim(0.4, 0.2, p=2, q=4, memory="carry", average="contributors", **ASYNC)
PLUMP = methods.plump(**ASYNC)


def make(method, workers: int = 2, ps: int = 2, **arguments) -> slimdp_tf.SlimDPStrategy:
    return strategy(method, workers, ps, seed=3, **arguments)


def break_off(folder, under: slimdp_tf.SlimDPStrategy, callbacks=()) -> dict:
    """A run that ends by an error in its second epoch; the last snapshot's counters."""
    with pytest.raises(Interrupted):
        fit(under, slimdp_tf.Snapshots(folder, every_rounds=3), [*callbacks, EndAfter(ROUNDS + 5, interrupt)])
    under.rounds.snapshots.file.finish()
    return SnapshotFile(folder, 3).read_last()[0]


class Seen(keras.callbacks.Callback):
    """Takes down the weights that the first epoch begins with, and the loss that each round shows."""

    def __init__(self):
        super().__init__()
        self.weights, self.losses = None, []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(logs["loss"])

    def on_epoch_begin(self, epoch, logs=None):
        if self.weights is None:
            self.weights = np.concatenate([v.numpy().ravel() for v in self.model.trainable_variables])


@pytest.mark.parametrize("method", [PLUMP, SLIM], ids=lambda method: method.name)
def test_one_worker_without_a_barrier_goes_on_bit_for_bit(tmp_path, method):
    whole = fit(make(method, workers=1), slimdp_tf.Snapshots(tmp_path / "whole", every_rounds=3))
    about = break_off(tmp_path / "broken", make(method, workers=1))
    under = make(method, workers=1)
    check_same(fit(under, slimdp_tf.Snapshots(tmp_path / "broken", every_rounds=3)), whole)
    assert [record.round for record in under.records] == [*range(about["round"], under.rounds.round)]
    assert under.rounds.round == whole[0].distribute_strategy.rounds.round


@pytest.mark.parametrize("method", ["plump", "slim"])
def test_overlapped_rounds_go_on_bit_for_bit(tmp_path, method):
    recipe = {"plump": methods.plump(p=2), "slim": dataclasses.replace(SLIM, pacing="sync")}[method]
    whole = fit(make(recipe, overlap=True), slimdp_tf.Snapshots(tmp_path / "whole", every_rounds=3))
    about = break_off(tmp_path / "broken", make(recipe, overlap=True))
    assert about["round"] == 12  # the last of them was exchanged for the snapshot
    under = make(recipe, overlap=True)
    check_same(fit(under, slimdp_tf.Snapshots(tmp_path / "broken", every_rounds=3)), whole)
    assert (under.rounds.round, under.rounds.steps) == (EPOCHS * ROUNDS, EPOCHS * ROUNDS * recipe.p)


@pytest.mark.parametrize(("workers", "ps"), [(2, 2), (3, 1), (1, 3)])
def test_workers_without_a_barrier_go_on_from_the_weights_and_counters_saved(tmp_path, workers, ps):
    before, after = Seen(), Seen()
    about = break_off(tmp_path, make(SLIM), [before])
    saved = SnapshotFile(tmp_path, 3).read_last()[1]["servers/weight/value"]
    under = make(SLIM, workers, ps)
    model, _ = fit(under, slimdp_tf.Snapshots(tmp_path), [after], shuffle=False)
    np.testing.assert_array_equal(after.weights, saved)
    assert 12 <= about["round"] <= 12 + SLIM.staleness
    assert about["steps"] == about["round"] * SLIM.p
    assert about["position"]["step"] == (about["round"] - ROUNDS) * SLIM.p
    assert [lane["number"] for lane in about["lanes"]] == [about["round"]] * 2
    assert under.records[0].round == about["round"]
    assert after.losses[0] < before.losses[-1] + 0.3 * (before.losses[0] - before.losses[-1])  # it does not jump
    assert after.losses[-1] < before.losses[ROUNDS - 1]  # the mean over this epoch, and over the first
    assert np.isfinite(flatten(model)).all()
    if workers == 2:
        assert (under.rounds.round, under.rounds.steps) == (EPOCHS * ROUNDS, EPOCHS * ROUNDS * SLIM.p)
        assert int(model.optimizer.iterations) == EPOCHS * ROUNDS * SLIM.p


class Count(keras.Model):
    """Its loss falls by one with each weight: every step of gradient descent adds exactly 1 to all of them."""

    def __init__(self):
        super().__init__()
        self.counts = self.add_weight(shape=(24,), initializer="zeros", name="counts")

    def call(self, x):
        return x[:, :1] * 0.0 - keras.ops.sum(self.counts)


@pytest.mark.parametrize("ps", [1, 3])
def test_a_snapshot_without_a_barrier_holds_the_rounds_that_it_counts(tmp_path, ps):
    """The servers add up what they are sent, and every local step adds 1."""
    method = dataclasses.replace(methods.plump(p=2, **ASYNC), merge=Sum())
    under = make(method, workers=2, ps=ps)
    with under.scope():
        model = Count()
        model.compile(keras.optimizers.SGD(1.0), loss=lambda y, out: out)
    x = np.ones((4 * 2 * 2 * 15, 3), np.float32)  # 15 rounds
    file, found = SnapshotFile(tmp_path, 100), []

    def look(batch, logs):
        under.rounds.snapshots.file.finish()
        found.append(file.read_last())

    snapshots = slimdp_tf.Snapshots(tmp_path, every_rounds=1, max_to_keep=100)
    look_back = keras.callbacks.LambdaCallback(on_train_batch_end=look)
    model.fit(x, x[:, :1], batch_size=4, epochs=2, verbose=0, callbacks=[snapshots, look_back])
    assert len({about["round"] for about, _ in found}) >= 5
    for about, arrays in found:
        merged = sum(lane["all_steps"] for lane in about["lanes"])
        assert merged == 2 * about["steps"] == 2 * 2 * about["round"]
        assert about["merging"]["merges"] == 2 * about["round"]
        np.testing.assert_array_equal(arrays["servers/weight/value"], np.full(24, merged, np.float32))
        held = [arrays[f"workers/{worker}/variables/000_counts"] for worker in range(2)]
        np.testing.assert_array_equal(np.max(held, 0), np.full(24, merged))  # by the one that was merged last
    np.testing.assert_array_equal(model.counts.numpy(), np.full(24, 2 * 2 * 30))
