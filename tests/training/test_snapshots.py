"""Runs that were interrupted, by an error or by SIGKILL, and go on as if they had not been."""

from __future__ import annotations

import signal
import subprocess
import sys

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
