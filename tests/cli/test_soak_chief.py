"""The chief of a soak: what it writes and when it stops. Its training: tests/cli/test_soak.py."""

import types

import numpy as np
import pytest

from slimdp_tf.cli import soak_chief


@pytest.fixture
def reporter(tmp_path):
    listeners, written = [], []
    recovery = types.SimpleNamespace(lost=7)
    strategy = types.SimpleNamespace(on_round=listeners.append, rounds=types.SimpleNamespace(recovery=recovery))
    made = soak_chief.Reporter(strategy, tmp_path, lambda **seen: written.append(seen))
    made.set_model(types.SimpleNamespace(get_weights=lambda: [np.ones(2), np.zeros(3)], stop_training=False))
    made.listeners, made.written = listeners, written
    return made


def test_writes_rounds_and_epochs(reporter):
    reporter.listeners[0](types.SimpleNamespace(round=3, workers=2))
    reporter.on_epoch_end(1, {"loss": 0.5})
    reporter.model.get_weights = lambda: [np.array([1.0, np.nan])]
    reporter.on_epoch_end(2, {"loss": 0.25})
    first, *epochs = reporter.written
    assert first == {"round": 3, "workers": 2}
    assert [epoch["is_finite"] for epoch in epochs] == [True, False]
    assert epochs[0] == {"epoch": 1, "loss": 0.5, "is_finite": True, "lost": 7}


def test_stops_when_it_is_asked_to(reporter, tmp_path):
    reporter.on_train_batch_end(0)
    assert not reporter.model.stop_training
    (tmp_path / soak_chief.STOP).touch()
    reporter.on_train_batch_end(1)
    assert reporter.model.stop_training


def test_the_data_has_an_answer_that_can_be_learned():
    x, y = soak_chief.make_data(200, 1)
    again = soak_chief.make_data(200, 1)
    np.testing.assert_array_equal(x, again[0])
    assert x.shape == (200, 64) and set(y) <= set(range(10)) and len(set(y)) > 5
    assert soak_chief.make_model(1).output_shape == (None, 10)
