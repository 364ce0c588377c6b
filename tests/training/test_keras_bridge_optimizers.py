"""Every optimizer of Keras and what optimizers can be told, on real workers; one worker is plain Keras."""

from __future__ import annotations

import inspect

import keras
import numpy as np
import pytest

from slimdp_tf import methods
from tests.cluster import strategy
from tests.training.small_models import ask_workers, compile_linear, flatten, make_data, make_linear

pytestmark = [pytest.mark.cluster, pytest.mark.paired]

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


@pytest.mark.parametrize("name", NAMES)
def test_with_two_workers_every_optimizer_trains(two_steps, name):
    x, y = make_data(2 * 4 * 4)
    model, first = compile_linear(two_steps, lambda: make_optimizer(name)), len(two_steps.records)
    before = flatten(model)
    history = model.fit(x, y, batch_size=4, verbose=0)
    assert len(two_steps.records) - first == 2
    assert np.isfinite(history.history["loss"][0]) and np.isfinite(flatten(model)).all()
    assert np.abs(flatten(model) - before).max() > 1e-4
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
    x, y = make_data(2 * 4 * 5)
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([2, 4], [0.5, 0.25, 0.125])
    seen = []
    look = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append(float(model.optimizer.learning_rate))
    )
    model = compile_linear(two_steps, lambda: keras.optimizers.SGD(schedule))
    model.fit(x, y, batch_size=4, callbacks=[look], verbose=0)
    assert seen == [0.5, 0.25, 0.125]  # after 2, 4 and 5 steps


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
