"""The warm-up: numbers by hand, over another schedule, under a strategy, and back from a file."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from slimdp_tf import methods
from slimdp_tf.training.warm_up import WarmUp
from tests.cluster import strategy
from tests.training.small_models import compile_linear, flatten, make_data


def read(schedule, steps=(0, 1, 2, 4, 8)) -> list[float]:
    return [float(schedule(step)) for step in steps]


def test_numbers_by_hand():
    np.testing.assert_allclose(read(WarmUp(0.8, 4)), [0.0, 0.2, 0.4, 0.8, 0.8], rtol=1e-6)
    np.testing.assert_allclose(read(WarmUp(0.8, 4, first=0.4)), [0.4, 0.5, 0.6, 0.8, 0.8], rtol=1e-6)


def test_leads_to_another_schedule():
    decay = keras.optimizers.schedules.ExponentialDecay(0.8, 4, 0.5)  # halves every 4 steps
    np.testing.assert_allclose(read(WarmUp(decay, 4), (0, 4, 8)), [0.0, 0.4, 0.2], rtol=1e-6)


@pytest.mark.parametrize(
    "target", [0.5, keras.optimizers.schedules.ExponentialDecay(0.8, 4, 0.5)], ids=["rate", "decay"]
)
def test_is_saved_and_loaded(target):
    made = keras.optimizers.SGD(WarmUp(target, 4, 0.1))
    loaded = keras.optimizers.deserialize(keras.optimizers.serialize(made))
    assert isinstance(loaded._learning_rate, WarmUp)
    np.testing.assert_allclose(read(loaded._learning_rate), read(made._learning_rate), rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((0.1, 0), "steps, of the warm-up, must be an integer of at least 1. Received: 0"),
        ((0.1, 4, -0.1), "first, the rate of step 0, must be a number of at least 0. Received: -0.1"),
    ],
)
def test_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        WarmUp(*options)


@pytest.mark.cluster
def test_with_one_worker_it_is_plain_keras():
    x, y = make_data(6 * 8)
    models = [
        compile_linear(under, lambda: keras.optimizers.SGD(WarmUp(0.1, 8)))
        for under in (None, strategy(methods.plump(2), 1, 1))
    ]
    for model in models:
        model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    np.testing.assert_allclose(flatten(models[1]), flatten(models[0]), atol=1e-5)
