"""Runs that were interrupted, by an error or by SIGKILL, and go on as if they had not been."""

from __future__ import annotations

import signal
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import slimdp_tf
from tests import sources
from tests.cluster import strategy
from tests.training.resume_program import BATCH, METHODS, ROUNDS, EndAfter, fit, make_data
from tests.training.small_models import flatten

pytestmark = pytest.mark.cluster


class Interrupted(RuntimeError):
    """What stands for an accident in this process."""


def interrupt():
    raise Interrupted


def make_pipeline(p: int) -> tf.data.Dataset:
    x, y = make_data(p)
    return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(50).batch(BATCH)


def kill_one(folder, method: str, rounds: int) -> None:
    """A run in processes of its own that are all killed after so many rounds."""
    command = [sys.executable, "-m", "tests.training.resume_program", str(folder), method, str(rounds)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=sources.ROOT)
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-3000:]


def check_same(resumed, whole) -> None:
    """Two (model, history) that must not differ in anything."""
    np.testing.assert_array_equal(flatten(resumed[0]), flatten(whole[0]))
    for mine, theirs in zip(resumed[0].optimizer.variables, whole[0].optimizer.variables):
        np.testing.assert_array_equal(mine.numpy(), theirs.numpy())
    for name, values in resumed[1].history.items():
        assert values == whole[1].history[name][-len(values) :]


@pytest.fixture(scope="module")
def undisturbed():
    """method -> what it comes to without an accident."""
    found = {}

    def run(name: str):
        if name not in found:
            found[name] = fit(strategy(METHODS[name], seed=3), None)
        return found[name]

    return run


@pytest.mark.parametrize("method", ["plump", "slim"])
def test_goes_on_after_everything_was_killed_in_the_middle_of_an_epoch(tmp_path, undisturbed, method):
    kill_one(tmp_path, method, ROUNDS + 5)
    under = strategy(METHODS[method], seed=3)
    check_same(fit(under, slimdp_tf.Snapshots(tmp_path)), undisturbed(method))
    rounds = [record.round for record in under.records]
    assert rounds in ([*range(12, 16)], [*range(9, 16)])  # the last snapshot may not have been written whole


def test_what_is_saved_can_be_listed(tmp_path):
    fit(strategy(METHODS["slim"], seed=3), slimdp_tf.Snapshots(tmp_path), epochs=1)
    listed = dict(tf.train.list_variables(tf.train.latest_checkpoint(tmp_path)))
    names = {name.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE") for name in listed}
    assert {"about", "servers/weight/value", "servers/weight/core", "workers/1/weight/anchor"} <= names
    assert {"servers/average/value", "workers/0/variables/000_kernel"} <= names
    assert listed["servers/weight/value/.ATTRIBUTES/VARIABLE_VALUE"] == [6 * 9 + 9 + 2 * 9 + 9 * 2 + 2]


def test_goes_on_in_a_shuffled_pipeline(tmp_path):
    method = METHODS["slim"]
    whole = fit(strategy(method, seed=3), None, data=make_pipeline(method.p))
    snapshots = slimdp_tf.Snapshots(tmp_path, every_rounds=3)
    with pytest.raises(Interrupted):
        fit(strategy(method, seed=3), snapshots, [EndAfter(ROUNDS + 3, interrupt)], data=make_pipeline(method.p))
    resumed = fit(strategy(method, seed=3), slimdp_tf.Snapshots(tmp_path), data=make_pipeline(method.p))
    check_same(resumed, whole)


def interrupted(tmp_path, rounds: int = ROUNDS + 5, callbacks=(), **cluster) -> None:
    """A run that ends by an error after so many rounds; the last snapshot was taken when 3 divided them."""
    under = strategy(METHODS["plump"], seed=3, **cluster)
    with pytest.raises(Interrupted):
        fit(under, slimdp_tf.Snapshots(tmp_path, every_rounds=3), [*callbacks, EndAfter(rounds, interrupt)])
    under.rounds.snapshots.file.finish()


def test_goes_on_with_another_number_of_servers(tmp_path, undisturbed):
    interrupted(tmp_path, ps=3)
    resumed, _ = fit(strategy(METHODS["plump"], seed=3, ps=1), slimdp_tf.Snapshots(tmp_path))
    np.testing.assert_allclose(flatten(resumed), flatten(undisturbed("plump")[0]), atol=1e-6)


@pytest.mark.parametrize("workers", [1, 3])
def test_goes_on_with_another_number_of_workers(tmp_path, undisturbed, workers, caplog):
    interrupted(tmp_path)
    under = strategy(METHODS["plump"], seed=3, workers=workers)
    resumed, history = fit(under, slimdp_tf.Snapshots(tmp_path), shuffle=False)
    whole = undisturbed("plump")[1].history["loss"]
    assert abs(history.history["loss"][-1] - whole[-1]) < 0.3 * (whole[0] - whole[-1])  # it does not jump
    assert np.isfinite(flatten(resumed)).all()
    said = caplog.text
    expected = {1: "what workers [1] had not sent yet is lost", 3: "workers [2] have no state in it"}[workers]
    assert "Going on from the snapshot of round 12" in said and expected in said and "dealt out anew" in said


@pytest.mark.parametrize("rounds", [ROUNDS + 5, 2 * ROUNDS - 1])
@pytest.mark.parametrize("is_last", [True, False])
def test_agrees_with_backup_and_restore(tmp_path, undisturbed, rounds, is_last):
    """Whichever stands first in the list: no step is trained twice."""

    def back_up():
        return keras.callbacks.BackupAndRestore(tmp_path / "backup")

    under = strategy(METHODS["plump"], seed=3)
    with pytest.raises(Interrupted):
        snapshots = slimdp_tf.Snapshots(tmp_path / "snapshots", every_rounds=3)
        fit(under, snapshots, [back_up(), EndAfter(rounds, interrupt)])
    under.rounds.snapshots.file.finish()
    again = slimdp_tf.Snapshots(tmp_path / "snapshots")
    callbacks = [back_up(), again] if is_last else [again, back_up()]
    resumed = fit(strategy(METHODS["plump"], seed=3), None, callbacks)
    check_same(resumed, undisturbed("plump"))
    assert int(resumed[0].optimizer.iterations) == 2 * ROUNDS


def test_what_backup_and_restore_saved_later_wins(tmp_path):
    """The epoch had not ended in the snapshot; it had in the backup."""
    under, backup = strategy(METHODS["plump"], seed=3), tmp_path / "backup"
    with pytest.raises(Interrupted):
        first = [keras.callbacks.BackupAndRestore(backup), EndAfter(ROUNDS + 1, interrupt)]
        fit(under, slimdp_tf.Snapshots(tmp_path / "snapshots", every_rounds=6), first)
    under.rounds.snapshots.file.finish()
    under = strategy(METHODS["plump"], seed=3)
    resumed, _ = fit(under, slimdp_tf.Snapshots(tmp_path / "snapshots"), [keras.callbacks.BackupAndRestore(backup)])
    assert int(resumed.optimizer.iterations) == 2 * ROUNDS
    assert len(under.records) == ROUNDS


def test_a_run_that_is_complete_trains_no_more(tmp_path, undisturbed):
    fit(strategy(METHODS["plump"], seed=3), slimdp_tf.Snapshots(tmp_path))
    under = strategy(METHODS["plump"], seed=3)
    resumed, _ = fit(under, slimdp_tf.Snapshots(tmp_path))
    assert under.records == []
    np.testing.assert_array_equal(flatten(resumed), flatten(undisturbed("plump")[0]))


def test_refuses_in_words_what_it_cannot_go_on_from(tmp_path):
    fit(strategy(METHODS["plump"], seed=3), slimdp_tf.Snapshots(tmp_path), epochs=1)
    with pytest.raises(ValueError, match="was taken with another method: Method.name='plump'"):
        fit(strategy(METHODS["slim"], seed=3), slimdp_tf.Snapshots(tmp_path))
    with pytest.raises(ValueError, match="every_rounds must be an integer of at least 1. Received: 0"):
        slimdp_tf.Snapshots(tmp_path, every_rounds=0)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="is for models of a SlimDPStrategy"):
        model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0, callbacks=[slimdp_tf.Snapshots(tmp_path)])
