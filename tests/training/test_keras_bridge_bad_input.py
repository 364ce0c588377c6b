"""What fit refuses in words, at once and with nothing lost, on two real workers."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import slimdp_tf
from slimdp_tf import methods
from tests.cluster import strategy
from tests.training.small_models import ask_workers, compile_linear, flatten, make_data, make_linear

pytestmark = [pytest.mark.cluster, pytest.mark.flaky(reruns=0)]


@pytest.fixture(scope="module")
def one_step():
    return strategy(methods.plump(p=1))


@pytest.fixture(scope="module")
def two_steps():
    return strategy(methods.plump(p=2))


# -- the scope --------------------------------------------------------------------------------------------------------


def test_a_model_built_outside_the_scope_is_refused(one_step):
    x, y = make_data(16)
    model = make_linear()
    with one_step.scope():
        model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="was built outside strategy.scope"):
        model.fit(x, y, verbose=0)
    model = make_linear()
    model.compile("sgd", "mse")
    with one_step.scope(), pytest.raises(ValueError, match=r"kernel' was not made under strategy.scope\(\)"):
        model.fit(x, y, verbose=0)


@pytest.mark.parametrize("what", ["optimizer", "metric", "compile", "layer"])
def test_a_part_made_outside_the_scope_is_refused(one_step, what):
    x, y = make_data(16)
    layer, optimizer = keras.layers.Dense(2), keras.optimizers.SGD()
    layer.build((None, 4))
    metric = keras.metrics.MeanSquaredError()
    with one_step.scope():
        model = keras.Sequential([keras.Input((4,)), layer]) if what == "layer" else make_linear()
        model.compile(optimizer if what == "optimizer" else "sgd", "mse", metrics=[metric] if what == "metric" else [])
    if what == "compile":
        model.compile("sgd", "mse")
    with pytest.raises(ValueError, match=r"'[A-Za-z0-9_/]+' was not made under strategy.scope\(\). Build the model"):
        model.fit(x, y, verbose=0)


def test_plain_keras_is_left_alone(one_step):
    x, y = make_data(16)
    model = compile_linear(None)
    assert np.isfinite(model.fit(x, y, verbose=0).history["loss"][0])
    model.train_on_batch(x, y)
    assert np.isfinite(model.evaluate(x, y, verbose=0)) and model.predict(x, verbose=0).shape == (16, 2)


# -- models -----------------------------------------------------------------------------------------------------------


def test_a_model_without_trainable_weights_is_refused(one_step):
    def make():
        model = make_linear()
        model.trainable = False
        return model

    x, y = make_data(16)
    with pytest.raises(ValueError, match="There is nothing to train: the model has no trainable weights"):
        compile_linear(one_step, model=make).fit(x, y, verbose=0)


def test_run_eagerly_is_refused(one_step):
    x, y = make_data(16)
    with pytest.raises(ValueError, match="run_eagerly=True is not possible under SlimDPStrategy"):
        compile_linear(one_step, run_eagerly=True).fit(x, y, verbose=0)


def test_a_train_step_that_raises_says_what_it_said(one_step):
    class Broken(keras.Sequential):
        def train_step(self, data):
            raise KeyError("the user's own mistake")

    x, y = make_data(16)
    with pytest.raises(KeyError, match="the user's own mistake"):
        compile_linear(one_step, model=lambda: Broken([keras.layers.Dense(2)])).fit(x, y, verbose=0)


# -- data -------------------------------------------------------------------------------------------------------------


def test_fewer_examples_than_workers(one_step):
    x, y = make_data(1)
    model = compile_linear(one_step)
    with pytest.raises(ValueError, match="Every worker needs an example of its own: at least 2. Received: 1"):
        model.fit(x, y, verbose=0)
    with pytest.raises(ValueError, match="Every worker needs an example of its own: at least 2. Received: 1"):
        model.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(1), verbose=0)
    whole = tf.data.Dataset.range(8).map(lambda i: (tf.ones([4]), tf.ones([2]))).batch(8)
    with pytest.raises(ValueError, match="Every worker needs a batch of its own: at least 2. Received: 1"):
        model.fit(whole, verbose=0)
    with pytest.raises(ValueError, match="The dataset is empty"):
        model.fit(whole.take(0), verbose=0)


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return make_data(4)


def generate():
    yield make_data(4)


@pytest.mark.parametrize("make", [generate, Batches], ids=["generator", "PyDataset"])
def test_python_code_that_makes_batches_is_refused(one_step, make):
    with pytest.raises(ValueError, match="fit under SlimDPStrategy takes arrays, a tf.data.Dataset, or .* Received: "):
        compile_linear(one_step).fit(make(), verbose=0)


def test_a_dataset_that_calls_python_is_refused(one_step):
    spec = (tf.TensorSpec((None, 4)), tf.TensorSpec((None, 2)))
    generated = tf.data.Dataset.from_generator(generate, output_signature=spec)
    called = tf.data.Dataset.range(8).map(lambda i: tf.numpy_function(np.square, [i], tf.int64))
    for dataset in (generated, called):
        with pytest.raises(ValueError, match="Python code .* is part of this dataset. The workers run TensorFlow"):
            compile_linear(one_step).fit(dataset, verbose=0)
    with pytest.raises(ValueError, match="Python code .* is part of this dataset"):
        one_step.distribute_datasets_from_function(
            lambda context: tf.data.Dataset.from_generator(generate, output_signature=spec)
        )
    with pytest.raises(ValueError, match="The function must make its dataset itself"):
        one_step.distribute_datasets_from_function(lambda context: generated.take(1))


def test_a_table_in_a_dataset_is_sent_with_it(one_step):
    pairs = tf.lookup.KeyValueTensorInitializer(tf.range(8, dtype=tf.int64), tf.range(8.0))
    table = tf.lookup.StaticHashTable(pairs, -1.0)
    dataset = tf.data.Dataset.range(8).map(lambda i: (tf.ones([4]), tf.fill([2], table.lookup(i)))).batch(2)
    model = compile_linear(one_step, lambda: keras.optimizers.SGD(0.0))
    loss = model.fit(dataset, verbose=0).history["loss"][0]
    kernel, bias = model.get_weights()
    assert loss == pytest.approx(np.mean((kernel.sum(0) + bias - np.arange(8.0)[:, None]) ** 2), rel=1e-5)


def test_a_function_that_returns_no_dataset_is_refused(one_step):
    with pytest.raises(TypeError, match="The function must return a tf.data.Dataset. Received: "):
        one_step.distribute_datasets_from_function(lambda context: make_data(4))


# -- updates that are not finite --------------------------------------------------------------------------------------


def spoiled(rows: int, row: int):
    x, y = make_data(rows)
    x[row] = np.nan
    return x, y


_METHODS = {
    "plump": methods.plump(p=2),
    "quant": methods.quant(p=2, bucket=4),
    "slim": methods.slim(1.0, 0.5, p=2, q=4),
}


@pytest.mark.parametrize("name", _METHODS)
def test_an_update_that_is_not_finite_is_raised_and_touches_nothing(name):
    under = strategy(_METHODS[name])
    x, y = spoiled(2 * 4 * 6, 2 * 4 * 2 + 1)  # the second worker, the second round
    model, kept = compile_linear(under), []
    keep = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: kept.append(flatten(model)))
    with pytest.raises(slimdp_tf.NonFiniteUpdateError, match="round 1 from worker 1 at .* is not finite") as raised:
        model.fit(x, y, batch_size=4, shuffle=False, callbacks=[keep], verbose=0)
    assert "on_nonfinite='skip'" in str(raised.value)
    assert np.isfinite(flatten(model)).all() and [record.refused for record in under.records] == [0, 1]
    np.testing.assert_array_equal(flatten(model), kept[1])
    # The other worker's update was merged: the weights are as they would be without the one that was refused.
    alone = model.get_weights()
    assert np.abs(np.concatenate([w.ravel() for w in alone]) - kept[0]).max() > 0


def test_if_all_updates_are_refused_the_weights_keep_every_bit(two_steps):
    x, y = make_data(16)
    model = compile_linear(two_steps)
    model.fit(x, y, batch_size=4, verbose=0)
    before = flatten(model)
    with pytest.raises(slimdp_tf.NonFiniteUpdateError, match="worker 0 at .*, worker 1 at "):
        model.fit(np.full_like(x, np.inf), y, batch_size=4, verbose=0)
    assert flatten(model).tobytes() == before.tobytes()
    model.fit(x, y, batch_size=4, verbose=0)  # the workers are sound again
    assert np.isfinite(flatten(model)).all() and np.abs(flatten(model) - before).max() > 1e-3


@pytest.mark.parametrize("name", _METHODS)
def test_an_update_that_is_not_finite_is_skipped_and_its_worker_recovers(name):
    under = strategy(_METHODS[name], on_nonfinite="skip")
    x, y = spoiled(2 * 4 * 8, 2 * 4 * 2 + 1)
    model = compile_linear(under, lambda: keras.optimizers.Adam(0.05))
    model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
    assert [record.refused for record in under.records] == [0, 1, 0, 0]
    assert [record.workers for record in under.records] == [2] * 4
    assert np.isfinite(flatten(model)).all()
    for variable in model.optimizer.variables:
        assert np.isfinite(ask_workers(variable)).all()  # its moments, too
