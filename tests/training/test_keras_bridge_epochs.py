"""Steps, rounds, epochs, several fits and compile again, on two real workers."""

from __future__ import annotations

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf import methods
from tests.cluster import strategy
from tests.training.small_models import (
    Seen,
    Watch,
    ask_workers,
    average_by_hand,
    compile_linear,
    flatten,
    make_data,
    make_linear,
)

pytestmark = [pytest.mark.cluster, pytest.mark.flaky(reruns=0)]


@pytest.fixture(scope="module")
def two_steps():
    return strategy(methods.plump(p=2))


@pytest.fixture(scope="module")
def four_steps():
    return strategy(methods.plump(p=4))


class CountsTraces(keras.Sequential):
    """Counts how often its train_step is traced."""

    traces = 0

    def train_step(self, data):
        self.traces += 1
        return super().train_step(data)


def make_counting() -> keras.Model:
    return CountsTraces([keras.Input((4,)), keras.layers.Dense(2, kernel_initializer=keras.initializers.Ones())])


def test_steps_per_epoch_that_p_does_not_divide(four_steps):
    x, y = make_data(2 * 4 * 12)
    model, first = compile_linear(four_steps), len(four_steps.records)
    batches = []
    noting = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: batches.append(batch),
        on_train_batch_end=lambda batch, logs: batches.append(batch),
    )
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(4).repeat()
    history = model.fit(dataset, epochs=2, steps_per_epoch=6, callbacks=[noting], verbose=0)
    assert [record.steps_in_round for record in four_steps.records[first:]] == [4, 2, 4, 2]
    assert batches == [0, 3, 4, 5] * 2
    assert int(model.optimizer.iterations) == 12 and history.params["steps"] == 6
    assert ask_workers(model.optimizer._iterations) == [12, 12]
    np.testing.assert_allclose(flatten(model), average_by_hand(x, y, 4, [4, 2, 4, 2]), atol=1e-5)


def test_an_epoch_of_arrays_ends_with_a_short_round(four_steps):
    x, y = make_data(2 * 4 * 5)
    model, first = compile_linear(four_steps), len(four_steps.records)
    model.fit(x, y, batch_size=4, shuffle=False, epochs=2, verbose=0)
    assert [record.steps_in_round for record in four_steps.records[first:]] == [4, 1, 4, 1]
    expected = average_by_hand(np.concatenate([x, x]), np.concatenate([y, y]), 4, [4, 1, 4, 1])
    np.testing.assert_allclose(flatten(model), expected, atol=1e-5)


def test_initial_epoch(two_steps):
    x, y = make_data(16)
    model = compile_linear(two_steps)
    history = model.fit(x, y, batch_size=2, epochs=5, initial_epoch=3, verbose=0)
    assert history.epoch == [3, 4] and int(model.optimizer.iterations) == 8


def test_several_fits_go_on_without_a_new_trace(two_steps):
    x, y = make_data(32)
    once = compile_linear(two_steps, lambda: keras.optimizers.SGD(0.05, momentum=0.9), make_counting)
    once.fit(x, y, batch_size=4, shuffle=False, epochs=4, verbose=0)
    model = compile_linear(two_steps, lambda: keras.optimizers.SGD(0.05, momentum=0.9), make_counting)
    losses = []
    for fit in range(4):
        losses += model.fit(x, y, batch_size=4, shuffle=False, verbose=0).history["loss"]
        assert int(model.optimizer.iterations) == 4 * (fit + 1)
    assert model.traces == once.traces == 1
    np.testing.assert_array_equal(flatten(model), flatten(once))  # momentum went on, too
    assert losses == once.history.history["loss"]


def test_two_models_take_turns_under_one_strategy(two_steps):
    x, y = make_data(32)
    first, second = compile_linear(two_steps), compile_linear(two_steps)
    for model in (first, second, first):
        model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
    assert [int(model.optimizer.iterations) for model in (first, second)] == [8, 4]
    np.testing.assert_allclose(flatten(second), average_by_hand(x, y, 4, [2, 2]), atol=1e-5)
    twice = average_by_hand(np.concatenate([x, x]), np.concatenate([y, y]), 4, [2, 2, 2, 2])
    np.testing.assert_allclose(flatten(first), twice, atol=1e-5)


def test_compile_again_keeps_the_weights_and_takes_the_new_optimizer(two_steps):
    x, y = make_data(32)
    model = compile_linear(two_steps)
    model.fit(x, y, batch_size=4, verbose=0)
    weights = flatten(model)
    with two_steps.scope():
        model.compile(keras.optimizers.SGD(0.0), "mae", metrics=["mse"])
    np.testing.assert_array_equal(flatten(model), weights)
    history = model.fit(x, y, batch_size=4, verbose=0).history
    np.testing.assert_array_equal(flatten(model), weights)
    assert set(history) == {"loss", "mse"} and int(model.optimizer.iterations) == 4
    with two_steps.scope():
        model.compile(keras.optimizers.Adam(0.1), "mae", metrics=["mape"])
    history = model.fit(x, y, batch_size=4, verbose=0).history
    assert set(history) == {"loss", "mape"} and int(model.optimizer.iterations) == 4
    assert np.abs(flatten(model) - weights).max() > 0.01


def test_fit_inside_the_scope(two_steps):
    x, y = make_data(32)
    outside = compile_linear(two_steps)
    outside.fit(x, y, batch_size=4, shuffle=False, verbose=0)
    with two_steps.scope():
        inside = compile_linear(None)
        inside.fit(x, y, batch_size=4, shuffle=False, validation_data=(x, y), verbose=0)
    np.testing.assert_array_equal(flatten(inside), flatten(outside))


def test_a_model_that_is_built_by_its_first_batch(two_steps):
    x, y = make_data(32)
    unbuilt = compile_linear(two_steps, model=lambda: keras.Sequential([keras.layers.Dense(2, "tanh")]))
    unbuilt.fit(x, y, batch_size=4, verbose=0)
    assert unbuilt.count_params() == 10 and int(unbuilt.optimizer.iterations) == 4


def test_a_model_of_sequences_of_unknown_length_is_built_by_a_real_batch(two_steps):
    layers = [keras.layers.Conv1D(3, 5), keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(1)]
    model = compile_linear(two_steps, model=lambda: keras.Sequential(layers))
    dataset = tf.data.Dataset.range(16).map(lambda i: (tf.ones([6 + i % 2 * 4, 2]), tf.ones([1])))
    model.fit(dataset.padded_batch(2, ([None, 2], [1])), verbose=0)
    assert int(model.optimizer.iterations) == 4


@pytest.mark.parametrize("is_known", [True, False], ids=["known length", "unknown length"])
def test_a_dataset_that_ends_early_is_said_and_ends_the_epoch(two_steps, is_known):
    x, y = make_data(16)
    with two_steps.scope():
        model, seen = make_linear(), Seen(16)
        model.compile("sgd", "mse", metrics=[seen])
    watching = Watch(lambda model: seen.by_worker)
    dataset = tf.data.Dataset.from_tensor_slices((x, np.stack([np.arange(16.0), y[:, 0]], 1))).batch(2)
    dataset = dataset if is_known else dataset.filter(lambda x, y: True)
    with pytest.warns(UserWarning, match="The data ended before steps_per_epoch"):
        history = model.fit(dataset, epochs=2, steps_per_epoch=7, callbacks=[watching], verbose=0)
    assert watching.found == [[[1, 0] * 8, [0, 1] * 8]] * 2  # in both epochs every worker sees each of its rows once
    assert history.history["seen"] == [16, 16] and len(history.history["loss"]) == 2
    assert int(model.optimizer.iterations) == 2 * 4


def test_data_that_ends_with_the_epoch_is_no_reason_to_warn(two_steps):
    x, y = make_data(16)
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(2)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="The data ended")
        model = compile_linear(two_steps)
        model.fit(dataset, epochs=2, verbose=0)
        model.fit(dataset, epochs=2, steps_per_epoch=4, verbose=0)
    assert int(model.optimizer.iterations) == 16
