"""Kinds of models, layers and train_steps, on two real workers: one step a round is plain Keras on the joined batch."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

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


@pytest.fixture(scope="module")
def one_worker():
    return strategy(methods.plump(p=1), workers=1, ps=1)


def check_is_joined_batch(under, make, x, y, **arguments) -> tuple[keras.Model, keras.Model]:
    """Trains on two workers with half the batch each, and alone on all of it: weights and logs must be equal."""
    plain = compile_linear(None, model=make, jit_compile=False, **arguments)
    mine = compile_linear(under, model=make, **arguments)
    expected = plain.fit(x, y, batch_size=8, shuffle=False, verbose=0).history
    found = mine.fit(x, y, batch_size=4, shuffle=False, verbose=0).history
    np.testing.assert_allclose(flatten(mine), flatten(plain), atol=1e-5)
    assert set(found) == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-4, err_msg=name)
    return mine, plain


def sequential(*layers) -> keras.Model:
    keras.utils.set_random_seed(3)
    return keras.Sequential([keras.Input((4,)), *[make() for make in layers]])


# -- layers -----------------------------------------------------------------------------------------------------------


def test_embedding(one_step):
    x, y = make_data(32)
    ids = np.abs(x * 3).astype(np.int32) % 9
    layers = keras.layers
    make = lambda: sequential(lambda: layers.Embedding(9, 3), layers.Flatten, lambda: layers.Dense(2))  # noqa: E731
    check_is_joined_batch(one_step, make, ids, y)


def test_recurrent_layers(one_step):
    x, y = make_data(32)
    layers = keras.layers
    make = lambda: sequential(lambda: layers.Reshape((2, 2)), lambda: layers.LSTM(3), lambda: layers.Dense(2))  # noqa: E731
    check_is_joined_batch(one_step, make, x, y)


def test_a_stateful_layer_is_built_for_the_batch_size(two_steps):
    x, y = make_data(32)

    def make():
        inputs = keras.Input(batch_shape=(4, 2, 2))
        return keras.Model(inputs, keras.layers.Dense(2)(keras.layers.LSTM(3, stateful=True)(inputs)))

    model = compile_linear(two_steps, model=make)
    model.fit(x.reshape(32, 2, 2), y, batch_size=4, verbose=0)
    assert int(model.optimizer.iterations) == 4


def test_batch_normalization_is_the_mean_over_workers(two_steps):
    x, y = make_data(2 * 4 * 4)
    normalize, dense = (lambda: keras.layers.BatchNormalization(momentum=0.8)), (lambda: keras.layers.Dense(2))
    model = compile_linear(two_steps, model=lambda: sequential(normalize, dense))
    layer, found = model.layers[0], []
    look = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: found.append((layer.moving_mean.numpy(), layer.moving_variance.numpy()))
    )
    model.fit(x, y, batch_size=4, shuffle=False, callbacks=[look], verbose=0)
    mean, variance = np.zeros(4), np.ones(4)
    for round_number in range(2):
        ends = []
        for worker in range(2):
            m, v = mean, variance
            for step in range(2 * round_number, 2 * round_number + 2):
                batch = x[8 * step + worker : 8 * (step + 1) : 2]
                m, v = 0.8 * m + 0.2 * batch.mean(0), 0.8 * v + 0.2 * batch.var(0)
            ends.append((m, v))
        mean, variance = (np.mean(pair, 0) for pair in zip(*ends))
        np.testing.assert_allclose(found[round_number][0], mean, atol=1e-5)
        np.testing.assert_allclose(found[round_number][1], variance, atol=1e-5)
    plain = sequential(normalize, dense)
    plain.set_weights(model.get_weights())
    np.testing.assert_allclose(model.predict(x, verbose=0), plain.predict(x, verbose=0), atol=1e-5)


class KeepsOutput(keras.metrics.Metric):
    """Keeps the first row of the outputs of the last two batches."""

    def __init__(self, width: int):
        super().__init__(name="kept")
        self.last = self.add_variable((width,), "zeros", name="last")
        self.before = self.add_variable((width,), "zeros", name="before")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.before.assign(self.last * 1.0)
        self.last.assign(y_pred[0])

    def result(self):
        return keras.ops.sum(self.last)

    @property
    def rows(self) -> list[bytes]:
        """The rows of each worker, newest last."""
        found = zip(ask_workers(self.before), ask_workers(self.last))
        return [row.tobytes() for rows in found for row in rows]


@pytest.mark.parametrize(
    "make",
    [
        lambda: keras.layers.Dropout(0.5),
        lambda: keras.layers.Dropout(0.5, seed=11),
        lambda: keras.layers.GaussianNoise(1.0),
    ],
    ids=["Dropout", "Dropout with a seed", "GaussianNoise"],
)
def test_random_layers_differ_from_worker_to_worker_and_from_step_to_step(two_steps, make):
    kept = []

    def compile_kept():
        # A trainable layer behind zeros, so that there is something to train; the noise is what the output shows.
        inputs = keras.Input((64,))
        noise = make()(inputs)
        return keras.Model(inputs, noise + 0.0 * keras.layers.Dense(64)(noise))

    with two_steps.scope():
        model, kept = compile_kept(), KeepsOutput(64)
        model.compile("sgd", "mse", metrics=[kept])
    ones = np.ones((16, 64), np.float32)
    model.fit(ones, ones, batch_size=4, verbose=0)
    rows = kept.rows
    model.fit(ones, ones, batch_size=4, verbose=0)
    assert len(set(rows + kept.rows)) == 8  # two workers, two steps, two fits
    np.testing.assert_array_equal(model.predict(ones, verbose=0), ones)
    assert model.layers[1].seed_generator.state.numpy()[1] == 4  # draws so far, as a checkpoint keeps them


class CountsCalls(keras.layers.Layer):
    """Counts its training steps in an integer."""

    def build(self, shape):
        self.count = self.add_weight(shape=(), dtype="int32", initializer="zeros", trainable=False)

    def call(self, x, training=False):
        if training:
            self.count.assign_add(1)
        return x


def test_integers_that_a_layer_counts(two_steps):
    x, y = make_data(32)
    model = compile_linear(two_steps, model=lambda: sequential(CountsCalls, lambda: keras.layers.Dense(2)))
    model.fit(x, y, batch_size=4, verbose=0)
    assert int(model.layers[0].count) == 4
    model.layers[0].count.assign(10)
    model.fit(x, y, batch_size=4, verbose=0)
    assert int(model.layers[0].count) == 14


def test_normalization_that_was_adapted(one_step):
    x, y = make_data(32)
    x = 5 + 3 * x

    def make():
        normalize = keras.layers.Normalization()
        normalize.adapt(x)
        return sequential(lambda: normalize, lambda: keras.layers.Dense(2))

    check_is_joined_batch(one_step, make, x, y)


class AddsLoss(keras.layers.Layer):
    def call(self, x):
        self.add_loss(0.3 * keras.ops.mean(keras.ops.square(x)))
        return x


def test_add_loss_and_regularizers(one_step):
    x, y = make_data(32)
    dense = lambda: keras.layers.Dense(2, kernel_regularizer="l2")  # noqa: E731
    check_is_joined_batch(one_step, lambda: sequential(dense, AddsLoss), x, y, metrics=["mae"])


# -- precision --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16", "float64"])
def test_precision_is_that_of_plain_keras(one_worker, policy):
    x, y = make_data(48)
    make = lambda: sequential(lambda: keras.layers.Dense(2, dtype=policy))  # noqa: E731
    optimizer = lambda: keras.optimizers.SGD(0.05, momentum=0.9)  # noqa: E731
    plain = compile_linear(None, optimizer, make, jit_compile=False)
    mine = compile_linear(one_worker, optimizer, make)
    for model in (plain, mine):
        model.fit(x, y, batch_size=8, shuffle=False, epochs=2, verbose=0)
        assert model.weights[0].dtype == ("float64" if policy == "float64" else "float32")
    assert type(mine.optimizer) is type(plain.optimizer)  # mixed_float16 scales the loss
    np.testing.assert_allclose(flatten(mine), flatten(plain), atol=1e-5)


def test_mixed_bfloat16_is_plain_keras_on_the_joined_batch(one_step):
    """But for the rounding to 8 bits of what a half batch gives, and the whole one."""
    x, y = make_data(48)
    make = lambda: sequential(lambda: keras.layers.Dense(2, dtype="mixed_bfloat16"))  # noqa: E731
    plain, mine = compile_linear(None, model=make, jit_compile=False), compile_linear(one_step, model=make)
    before = flatten(plain)
    expected = plain.fit(x, y, batch_size=8, shuffle=False, epochs=2, verbose=0).history["loss"]
    found = mine.fit(x, y, batch_size=4, shuffle=False, epochs=2, verbose=0).history["loss"]
    assert mine.layers[-1].compute_dtype == "bfloat16" and mine.weights[0].dtype == "float32"
    moved = np.abs(flatten(plain) - before).max()
    np.testing.assert_allclose(flatten(mine), flatten(plain), atol=2**-8 * moved)
    np.testing.assert_allclose(found, expected, rtol=2**-8)


def test_variables_of_several_types(two_steps):
    x, y = make_data(32)
    dense = keras.layers.Dense
    half, double = (lambda: dense(3, dtype="float16")), (lambda: dense(2, dtype="float64"))
    model = compile_linear(two_steps, model=lambda: sequential(half, lambda: dense(3), double))
    losses = model.fit(x, y, batch_size=4, epochs=6, verbose=0).history["loss"]
    assert [w.dtype for w in model.weights] == ["float16"] * 2 + ["float32"] * 2 + ["float64"] * 2
    assert losses[-1] < losses[0]
    with two_steps.scope():
        twin = sequential(half, lambda: dense(3), double)
    twin.set_weights(model.get_weights())
    np.testing.assert_array_equal(flatten(twin), flatten(model))


# -- inputs and outputs -----------------------------------------------------------------------------------------------


def make_branches() -> keras.Model:
    keras.utils.set_random_seed(3)
    left, right = keras.Input((4,), name="left"), keras.Input((4,), name="right")
    joined = keras.layers.Concatenate()([left, keras.layers.Dense(3, name="side")(right)])
    outputs = {"up": keras.layers.Dense(2, name="up")(joined), "down": keras.layers.Dense(1, name="down")(joined)}
    return keras.Model({"left": left, "right": right}, outputs)


def make_list_branches() -> keras.Model:
    model = make_branches()
    return keras.Model(list(model.input.values()), list(model.output.values()))


@pytest.mark.parametrize("kind", ["arrays", "dataset"])
def test_dicts_of_inputs_and_outputs(one_step, kind):
    x, y = make_data(32)
    inputs, targets = {"left": x, "right": x[:, ::-1]}, {"up": y, "down": y[:, :1]}
    told = {"loss": {"up": "mse", "down": "mae"}, "loss_weights": {"up": 1.0, "down": 0.5}, "metrics": {"up": ["mae"]}}
    plain = compile_linear(None, model=make_branches, jit_compile=False, **told)
    mine = compile_linear(one_step, model=make_branches, **told)
    plain.fit(inputs, targets, batch_size=8, shuffle=False, verbose=0)
    if kind == "arrays":
        mine.fit(inputs, targets, batch_size=4, shuffle=False, verbose=0)
    else:
        mine.fit(tf.data.Dataset.from_tensor_slices((inputs, targets)).batch(4), verbose=0)
    np.testing.assert_allclose(flatten(mine), flatten(plain), atol=1e-5)
    found, expected = mine.history.history, plain.history.history
    assert {"loss", "up_loss", "down_loss", "up_mae"} <= set(expected) and set(found) == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-4, err_msg=name)
    for name, values in plain.predict(inputs, verbose=0).items():
        np.testing.assert_allclose(mine.predict(inputs, verbose=0)[name], values, atol=1e-5)


def test_lists_of_inputs_and_outputs(one_step):
    x, y = make_data(32)
    told = {"loss": ["mse", "mae"], "metrics": [["mae"], ["mse"]]}
    check_is_joined_batch(one_step, make_list_branches, [x, x[:, ::-1]], [y, y[:, :1]], **told)


# -- frozen weights ---------------------------------------------------------------------------------------------------


def test_frozen_layers_stay_and_are_not_exchanged(two_steps):
    x, y = make_data(32)

    def make():
        model = sequential(lambda: keras.layers.Dense(3), lambda: keras.layers.Dense(2))
        model.layers[0].trainable = False
        return model

    model, before = compile_linear(two_steps, model=make), len(two_steps.records)
    frozen, free = model.layers[0].get_weights(), model.layers[1].get_weights()
    model.fit(x, y, batch_size=4, verbose=0)
    np.testing.assert_array_equal(model.layers[0].get_weights()[0], frozen[0])
    assert np.abs(model.layers[1].get_weights()[0] - free[0]).max() > 1e-3
    assert [r.traffic.push_bytes for r in two_steps.records[before:]] == [2 * 4 * (3 * 2 + 2)] * 2
    model.layers[0].trainable = True
    with two_steps.scope():
        model.compile("sgd", "mse")
    model.fit(x, y, batch_size=4, verbose=0)
    assert np.abs(model.layers[0].get_weights()[0] - frozen[0]).max() > 1e-4
    assert two_steps.records[-1].traffic.push_bytes == 2 * 4 * (4 * 3 + 3 + 3 * 2 + 2)


# -- train_step -------------------------------------------------------------------------------------------------------


class OwnStep(keras.Model):
    """A train_step of its own, with a metric of its own."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(2, kernel_initializer="ones")
        self.dense.build((None, 4))
        self.error = keras.metrics.MeanAbsoluteError(name="error")

    def call(self, x):
        return self.dense(x)

    def descend(self, x, y):
        with tf.GradientTape() as tape:
            prediction = self(x, training=True)
            loss = keras.ops.mean(keras.ops.square(prediction - y))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return prediction, loss

    def train_step(self, data):
        x, y = data
        prediction, loss = self.descend(x, y)
        self.error.update_state(y, prediction)
        return {"loss": loss, "error": self.error.result(), "rows": keras.ops.shape(x)[0]}


class OnlyLoss(OwnStep):
    def train_step(self, data):
        return {"loss": self.descend(*data)[1]}


class InnerFunction(OwnStep):
    """Its step is compiled by itself."""

    @tf.function
    def descend(self, x, y):
        return super().descend(x, y)


class InnerCall(OwnStep):
    """Its forward pass is compiled by itself, the tape is outside."""

    @tf.function
    def call(self, x):
        return self.dense(x)


class TwoOptimizers(OwnStep):
    """Bias and kernel have an optimizer each, of which Keras knows only one."""

    def descend(self, x, y):
        with tf.GradientTape() as tape:
            prediction = self(x, training=True)
            loss = keras.ops.mean(keras.ops.square(prediction - y))
        kernel, bias = tape.gradient(loss, [self.dense.kernel, self.dense.bias])
        self.second.apply([kernel], [self.dense.kernel])
        self.optimizer.apply([bias], [self.dense.bias])
        return prediction, loss


def check_own_step(under, make) -> tuple[list[dict], list[dict]]:
    """Trains alone and on two workers; what each batch logged."""
    x, y = make_data(32)
    plain, mine = compile_linear(None, model=make, jit_compile=False), compile_linear(under, model=make)
    logged: tuple[list, list] = ([], [])
    for model, batch, logs in zip((plain, mine), (8, 4), logged):
        keep = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs, keep=logs: keep.append(logs))
        model.fit(x, y, batch_size=batch, shuffle=False, callbacks=[keep], verbose=0)
    np.testing.assert_allclose(flatten(mine), flatten(plain), atol=1e-5)
    return logged


@pytest.mark.parametrize("make", [OwnStep, InnerFunction, InnerCall], ids=lambda make: make.__name__)
def test_a_train_step_with_a_metric_of_its_own(one_step, make):
    plain, mine = check_own_step(one_step, make)
    for found, expected in zip(mine, plain):
        assert found["loss"] == pytest.approx(expected["loss"], rel=1e-4)
        assert found["error"] == pytest.approx(expected["error"], rel=1e-4)
        assert found["rows"] == 4  # a mean over workers, as it is no metric


def test_a_train_step_that_returns_only_a_loss(one_step):
    plain, mine = check_own_step(one_step, OnlyLoss)
    assert [logs["loss"] for logs in mine] == pytest.approx([logs["loss"] for logs in plain], rel=1e-4)


def test_a_train_step_with_two_optimizers(one_step):
    def make():
        model = TwoOptimizers()
        model.second = keras.optimizers.SGD(0.02, momentum=0.5)
        model.second.build([model.dense.kernel])
        return model

    plain, mine = check_own_step(one_step, make)
    assert mine[-1]["loss"] == pytest.approx(plain[-1]["loss"], rel=1e-4)


def test_a_train_step_that_returns_no_dict_is_refused(one_step):
    class Bad(OwnStep):
        def train_step(self, data):
            return self.descend(*data)[1]

    x, y = make_data(8)
    with pytest.raises(TypeError, match="train_step must return a dict of logs. Received: "):
        compile_linear(one_step, model=Bad).fit(x, y, verbose=0)


def test_a_subclassed_model_with_layers_inside_layers(one_step):
    class Block(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.inner = [keras.layers.Dense(3, "tanh"), keras.layers.Dense(2)]

        def call(self, x):
            return self.inner[1](self.inner[0](x))

    class Outer(keras.Model):
        def __init__(self):
            super().__init__()
            keras.utils.set_random_seed(3)
            self.block, self.linear = Block(), make_linear()

        def call(self, x):
            return self.block(x) + self.linear(x)

    def make():
        model = Outer()
        model(np.zeros((1, 4), np.float32))
        return model

    check_is_joined_batch(one_step, make, *make_data(32))
