"""LARS: numbers by hand, the same under a strategy, and a file that gives it back."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from slimdp_tf import methods
from slimdp_tf.training.lars import Lars
from tests.cluster import strategy
from tests.training.small_models import compile_linear, flatten, make_data


def step(optimizer, value, *gradients) -> np.ndarray:
    variable = keras.Variable(np.asarray(value, np.float32))
    optimizer.build([variable])
    for gradient in gradients:
        optimizer.apply([keras.ops.convert_to_tensor(np.asarray(gradient, np.float32))], [variable])
    return np.asarray(variable)


def test_numbers_by_hand():
    # |w| = 5, |g| = 10: lambda = 0.1 * 5 / 10 = 0.05; v = 2 * 0.05 * g = (0.6, 0.8).
    weight, gradient = [[3.0, 4.0]], [[6.0, 8.0]]
    np.testing.assert_allclose(step(Lars(2.0, 0.0, 0.1), weight, gradient), [[2.4, 3.2]], rtol=1e-6)
    # Again with momentum: |w| = 4, lambda = 0.04, v = 0.5 (0.6, 0.8) + 2 * 0.04 * (6, 8) = (0.78, 1.04).
    np.testing.assert_allclose(step(Lars(2.0, 0.5, 0.1), weight, gradient, gradient), [[1.62, 2.16]], rtol=1e-5)


def test_decay_is_part_of_the_gradient_and_of_lambda():
    # lambda = 0.1 * 5 / (10 + 2 * 5) = 0.025; v = 0.025 * (6 + 2 * 3, 8 + 2 * 4) = (0.3, 0.4).
    moved = step(Lars(1.0, 0.0, 0.1, weight_decay=2.0), [[3.0, 4.0]], [[6.0, 8.0]])
    np.testing.assert_allclose(moved, [[2.7, 3.6]], rtol=1e-6)


def test_vectors_and_zeros_step_as_in_sgd():
    np.testing.assert_allclose(step(Lars(0.5, 0.0, 0.1, 2.0), [3.0, 4.0], [6.0, 8.0]), [0.0, 0.0])
    np.testing.assert_allclose(step(Lars(0.5, 0.0, 0.1), [[0.0, 0.0]], [[6.0, 8.0]]), [[-3.0, -4.0]])
    np.testing.assert_allclose(step(Lars(0.5, 0.0, 0.1), [[3.0, 4.0]], [[0.0, 0.0]]), [[3.0, 4.0]])


def test_is_saved_and_loaded(tmp_path):
    model = compile_linear(None, lambda: Lars(0.2, 0.8, 0.01, 0.1))
    x, y = make_data(8)
    model.fit(x, y, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras").optimizer
    assert isinstance(loaded, Lars)
    assert (loaded.momentum, loaded.trust, loaded.decay) == (0.8, 0.01, 0.1)
    np.testing.assert_allclose(loaded.velocities[0], model.optimizer.velocities[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"momentum": 1.0}, r"momentum must be a number within \[0, 1\). Received: 1.0"),
        ({"weight_decay": -1.0}, r"weight_decay must be a number within \[0, inf\). Received: -1.0"),
        ({"trust": 0.0}, "trust must be a number above 0. Received: 0.0"),
    ],
)
def test_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        Lars(**options)


@pytest.mark.cluster
def test_with_one_worker_it_is_plain_keras():
    x, y = make_data(6 * 8)
    models = [compile_linear(under, lambda: Lars(0.5, trust=0.05)) for under in (None, strategy(methods.plump(), 1, 1))]
    for model in models:
        model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    np.testing.assert_allclose(flatten(models[1]), flatten(models[0]), atol=1e-5)
