"""Every optimizer of Keras and what optimizers can be told, on real workers; one worker is plain Keras."""

from __future__ import annotations

import inspect

import keras
import numpy as np
import pytest

from slimdp_tf import methods
from tests.cluster import strategy
from tests.training.small_models import ask_workers, compile_linear, flatten, make_data, make_linear

pytestmark = [pytest.mark.cluster, pytest.mark.flaky(reruns=0)]

NAMES = sorted(
    name
    for name, found in vars(keras.optimizers).items()
    if inspect.isclass(found)
    and issubclass(found, keras.optimizers.Optimizer)
    and found is not keras.optimizers.Optimizer
    and not (name == "Muon" and keras.__version__.startswith("3.12."))  # asks TensorFlow's variables for `path`
)


def make_optimizer(name: str, rate: float = 0.05) -> keras.optimizers.Optimizer:
    if name == "LossScaleOptimizer":
        return keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(rate), dynamic_growth_steps=3)
    if name == "MultiOptimizer":
        by_path = {".*bias": keras.optimizers.Adam(rate)}
        optimizers = keras.optimizers.OptimizerMap(keras.optimizers.SGD(rate), by_path)
        return keras.optimizers.MultiOptimizer(optimizers)
    return getattr(keras.optimizers, name)(learning_rate=rate)


@pytest.fixture(scope="module")
def one_worker():
    return strategy(methods.plump(p=1), workers=1, ps=1)


@pytest.fixture(scope="module")
def two_steps():
    return strategy(methods.plump(p=2))


def check_is_plain_keras(under, make, model=None) -> tuple[keras.Model, keras.Model]:
    """Trains under one worker and without a strategy: the weights and what was logged must be equal."""
    x, y = make_data(6 * 8)
    plain = compile_linear(None, make, model, jit_compile=False)
    plain.optimizer.build(plain.trainable_variables)  # traced, ScheduleFreeAdamW would begin at zero
    mine = compile_linear(under, make, model)
    logged = [m.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0).history["loss"] for m in (plain, mine)]
    np.testing.assert_allclose(flatten(mine), flatten(plain), atol=1e-5)
    np.testing.assert_allclose(logged[1], logged[0], rtol=1e-4)
    return mine, plain


def test_there_are_optimizers_to_test():
    assert {"SGD", "Adam", "LossScaleOptimizer"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_with_one_worker_every_optimizer_is_plain_keras(one_worker, name):
    mine, plain = check_is_plain_keras(one_worker, lambda: make_optimizer(name))
    assert int(mine.optimizer.iterations) == int(plain.optimizer.iterations) == 12
    for ours, theirs in zip(mine.optimizer.variables, plain.optimizer.variables):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-5, err_msg=ours.path)


def train_apart(make, x, y, rounds: list[int]) -> list[np.ndarray]:
    """The weights after every round of two plain models: each trains on its own rows and keeps its own slots, and at
    the end of a round of so many steps both go on from the mean of their weights."""
    models, means, step = [compile_linear(None, make, run_eagerly=True) for _ in range(2)], [], 0
    for model in models:
        model.optimizer.build(model.trainable_variables)
    for steps in rounds:
        for worker, model in enumerate(models):
            for done in range(step, step + steps):
                rows = slice(2 * 4 * done + worker, 2 * 4 * (done + 1), 2)
                model.train_on_batch(x[rows], y[rows])
        mean = [np.mean(pair, 0) for pair in zip(*(model.get_weights() for model in models))]
        for model in models:
            model.set_weights(mean)
        means.append(flatten(models[0]))
        step += steps
    return means


def check_is_trained_apart(under, make, rounds: list[int]) -> keras.Model:
    """Trains on two workers: the weights after every round must be those of `train_apart`."""
    x, y = make_data(2 * 4 * sum(rounds))
    model, kept = compile_linear(under, make), []
    keep = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: kept.append(flatten(model)))
    model.fit(x, y, batch_size=4, shuffle=False, callbacks=[keep], verbose=0)
    for found, expected in zip(kept, train_apart(make, x, y, rounds), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)
    return model


@pytest.mark.parametrize("name", NAMES)
def test_with_two_workers_every_optimizer_is_plain_keras_on_their_rows(two_steps, name):
    model = check_is_trained_apart(two_steps, lambda: make_optimizer(name), [2, 2])
    assert np.abs(flatten(model) - flatten(make_linear())).max() > 1e-4
    assert int(model.optimizer.iterations) == 4


_TOLD = {
    "schedule": {"learning_rate": keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)},
    "clipnorm": {"clipnorm": 0.1},
    "clipvalue": {"clipvalue": 0.05},
    "global_clipnorm": {"global_clipnorm": 0.1},
    "weight_decay": {"weight_decay": 0.1},
    "use_ema": {"use_ema": True, "ema_momentum": 0.5},
    "ema_overwrite_frequency": {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 3},
    "gradient_accumulation_steps": {"gradient_accumulation_steps": 3},
    "loss_scale_factor": {"loss_scale_factor": 8.0},
    "momentum": {"momentum": 0.9, "nesterov": True},
}


@pytest.mark.parametrize("told", _TOLD)
def test_what_an_optimizer_is_told_holds(one_worker, told):
    check_is_plain_keras(one_worker, lambda: keras.optimizers.SGD(**{"learning_rate": 0.05, **_TOLD[told]}))


@pytest.mark.parametrize("name", ["SGD", "Adam", "LossScaleOptimizer"])
def test_sparse_gradients(one_worker, name):
    def make():
        keras.utils.set_random_seed(3)
        return keras.Sequential(
            [keras.Input((4,)), keras.layers.Embedding(9, 2), keras.layers.Flatten(), keras.layers.Dense(2)]
        )

    x, y = make_data(48)
    ids = np.abs(x * 3).astype(np.int32) % 9
    plain = compile_linear(None, lambda: make_optimizer(name), make, jit_compile=False)
    mine = compile_linear(one_worker, lambda: make_optimizer(name), make)
    for model in (plain, mine):
        model.fit(ids, y, batch_size=8, shuffle=False, verbose=0)
    np.testing.assert_allclose(flatten(mine), flatten(plain), atol=1e-5)


def test_a_schedule_counts_the_steps_of_one_worker(two_steps):
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([0, 2], [0.1, 0.05, 0.02])  # a new rate in mid-round
    model = check_is_trained_apart(two_steps, lambda: keras.optimizers.SGD(schedule), [2, 2, 1])
    assert float(model.optimizer.learning_rate) == pytest.approx(0.02) and int(model.optimizer.iterations) == 5


def test_the_learning_rate_is_set_between_fits(two_steps):
    x, y = make_data(32)
    model = compile_linear(two_steps)
    model.fit(x, y, batch_size=4, verbose=0)
    weights = flatten(model)
    model.optimizer.learning_rate = 0.0
    model.fit(x, y, batch_size=4, verbose=0)
    np.testing.assert_array_equal(flatten(model), weights)
    assert ask_workers(model.optimizer._learning_rate) == [0.0, 0.0]
    model.optimizer.learning_rate = 0.1
    model.fit(x, y, batch_size=4, verbose=0)
    assert np.abs(flatten(model) - weights).max() > 1e-3


def test_moving_averages_of_the_weights_of_two_workers(two_steps):
    x, y = make_data(32)
    model = compile_linear(two_steps, lambda: keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9))
    model.fit(x, y, batch_size=4, verbose=0)
    averages = model.optimizer._model_variables_moving_average
    for weight, average in zip(model.weights, averages):
        np.testing.assert_allclose(weight.numpy(), np.mean(ask_workers(average), 0), atol=1e-6)
    server = flatten(model)
    model.optimizer.learning_rate = 0.0
    model.optimizer.use_ema = False
    model.fit(x, y, batch_size=4, verbose=0)
    np.testing.assert_allclose(flatten(model), server, atol=1e-6)


def test_slots_are_a_workers_own(two_steps):
    x, y = make_data(32)
    model = compile_linear(two_steps, lambda: keras.optimizers.SGD(0.05, momentum=0.9))
    model.fit(x, y, batch_size=4, verbose=0)
    for momentum in model.optimizer.momentums:
        first, second = ask_workers(momentum)
        assert np.abs(first - second).max() > 1e-4
        np.testing.assert_allclose(momentum.numpy(), (first + second) / 2, rtol=1e-6)  # what a checkpoint holds


def test_a_model_made_from_its_configuration_trains_on(two_steps):
    x, y = make_data(32)
    model = compile_linear(two_steps, lambda: keras.optimizers.Adam(0.05), make_linear)
    model.fit(x, y, batch_size=4, verbose=0)
    with two_steps.scope():
        twin = keras.models.clone_model(model)
        twin.set_weights(model.get_weights())
        twin.compile(keras.optimizers.Adam.from_config(model.optimizer.get_config()), "mse")
    np.testing.assert_array_equal(flatten(twin), flatten(model))
    twin.fit(x, y, batch_size=4, verbose=0)
    assert int(twin.optimizer.iterations) == 4
