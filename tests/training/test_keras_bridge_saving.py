"""Getting, setting, saving and loading weights on two real workers: always the server's current model."""

from __future__ import annotations

import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.cluster import strategy
from tests.training.small_models import (
    KINDS_OF_COPIES,
    ask_workers,
    compile_linear,
    flatten,
    make_data,
    make_linear,
    servers_weights,
)

pytestmark = [pytest.mark.cluster, pytest.mark.flaky(reruns=0)]


@pytest.fixture(scope="module")
def two_steps():
    return strategy(KINDS_OF_COPIES["plump"])


@pytest.fixture(scope="module", params=KINDS_OF_COPIES)
def each_kind(request, two_steps):
    return two_steps if request.param == "plump" else strategy(KINDS_OF_COPIES[request.param])


def make_model() -> keras.Model:
    """With BatchNormalization and Dropout, whose states are saved, too."""
    keras.utils.set_random_seed(3)
    layers = [keras.layers.BatchNormalization(), keras.layers.Dropout(0.2), keras.layers.Dense(2)]
    return keras.Sequential([keras.Input((4,)), *layers])


def train(under, model=None, make=make_model, **arguments) -> keras.Model:
    x, y = make_data(32)
    model = model or compile_linear(under, lambda: keras.optimizers.Adam(0.05), make)
    model.fit(x, y, batch_size=4, shuffle=False, verbose=0, **arguments)
    return model


def trained_weights(model) -> np.ndarray:
    """The trainable weights as the model shows them."""
    return np.concatenate([np.ravel(v.numpy()) for v in model.trainable_variables])


def hold_the_servers(under, model) -> list[bool]:
    """Whether each worker holds the servers' weights."""
    held = zip(*[ask_workers(v) for v in model.trainable_variables])
    return [np.array_equal(np.concatenate([np.ravel(c) for c in copies]), servers_weights(under)) for copies in held]


def test_get_weights_is_what_the_servers_hold(each_kind):
    model = train(each_kind)
    np.testing.assert_array_equal(trained_weights(model), servers_weights(each_kind))
    assert hold_the_servers(each_kind, model) == [False, False]  # a worker is steps ahead
    each_kind.rounds.rest()  # it adopts what was merged
    assert hold_the_servers(each_kind, model) == [each_kind.method.name == "plump"] * 2
    np.testing.assert_array_equal(trained_weights(model), servers_weights(each_kind))


def test_a_file_holds_what_the_servers_hold(each_kind, tmp_path):
    model = train(each_kind)
    model.save(tmp_path / "model.keras")
    held = servers_weights(each_kind)
    np.testing.assert_array_equal(trained_weights(keras.models.load_model(tmp_path / "model.keras")), held)
    model.save_weights(tmp_path / "model.weights.h5")
    twin = make_model()
    twin.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(trained_weights(twin), held)


def test_set_weights_reaches_servers_and_workers(each_kind):
    model = train(each_kind)
    ones = [np.ones_like(w) for w in model.get_weights()]
    model.set_weights(ones)
    np.testing.assert_array_equal(flatten(model), 1.0)
    model.optimizer.learning_rate = 0.0
    train(each_kind, model)
    np.testing.assert_array_equal(trained_weights(model), 1.0)
    np.testing.assert_array_equal(servers_weights(each_kind), 1.0)


def test_set_weights_in_mid_training(two_steps):
    target = [np.full((4, 2), 0.5, np.float32), np.zeros(2, np.float32)]
    x, y = make_data(2 * 4 * 6)
    model, seen = compile_linear(two_steps, lambda: keras.optimizers.SGD(0.0)), []

    def look(batch, logs):
        seen.append((flatten(model)[0], logs["loss"]))
        if batch == 3:
            model.set_weights(target)
            model.reset_metrics()

    model.fit(
        x,
        y,
        batch_size=4,
        shuffle=False,
        verbose=0,
        callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=look)],
    )
    first = make_linear().get_weights()[0].ravel()[0]
    assert [value for value, _ in seen] == pytest.approx([first, first, 0.5])
    expected = np.mean(np.square(x[32:] @ target[0] - y[32:]))
    assert seen[-1][1] == pytest.approx(expected, rel=1e-5)  # both workers trained with them, and counted from zero


def test_assigning_one_variable_keeps_the_others(two_steps):
    model = train(two_steps, make=make_linear)
    kernel = model.get_weights()[0]
    model.layers[0].bias.assign([3.0, 4.0])
    np.testing.assert_array_equal(model.get_weights()[0], kernel)
    model.optimizer.learning_rate = 0.0
    train(two_steps, model)
    np.testing.assert_array_equal(model.get_weights()[0], kernel)
    np.testing.assert_array_equal(model.get_weights()[1], [3.0, 4.0])


@pytest.mark.parametrize("ending", [".keras", ".weights.h5"])
def test_a_file_loaded_under_the_scope_goes_on(two_steps, tmp_path, ending):
    model = train(two_steps)
    path = tmp_path / ("model" + ending)
    if ending == ".keras":
        model.save(path)
        with two_steps.scope():
            twin = keras.models.load_model(path)
    else:
        model.save_weights(path)
        twin = compile_linear(two_steps, lambda: keras.optimizers.Adam(0.05), make_model)
        with two_steps.scope():
            twin.optimizer.build(twin.trainable_variables)
        twin.load_weights(path)
    np.testing.assert_array_equal(flatten(twin), flatten(model))
    assert int(twin.optimizer.iterations) == int(model.optimizer.iterations) == 4
    for mine, theirs in zip(twin.optimizer.variables, model.optimizer.variables):
        np.testing.assert_array_equal(mine.numpy(), theirs.numpy())
    train(two_steps, twin)
    assert int(twin.optimizer.iterations) == 8
    assert np.abs(flatten(twin) - flatten(model)).max() > 1e-3


def test_load_weights_between_fits(two_steps, tmp_path):
    model = train(two_steps)
    model.save_weights(tmp_path / "model.weights.h5")
    saved = flatten(model)
    train(two_steps, model)
    assert np.abs(flatten(model) - saved).max() > 1e-3
    model.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(flatten(model), saved)
    assert int(model.optimizer.iterations) == 4
    train(two_steps, model)
    assert ask_workers(model.optimizer._iterations) == [8, 8]


_ELSEWHERE = """
import sys
sys.modules["slimdp_tf"] = None  # importing it raises
import keras, numpy as np
try:
    import slimdp_tf
except ImportError:
    pass
else:
    sys.exit("slimdp_tf can be imported here")
x = np.load({x!r})
model = keras.models.load_model({model!r})
np.save({out!r}, model.predict(x, verbose=0))
model.fit(x, np.zeros((len(x), 2)), verbose=0)
print("iterations", int(model.optimizer.iterations))
"""


def run_elsewhere(script: str, tmp_path) -> str:
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=240, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_a_saved_model_needs_plain_keras_only(two_steps, tmp_path):
    x, _ = make_data(11)
    model = train(two_steps, epochs=2)
    model.save(tmp_path / "model.keras")
    np.save(tmp_path / "x.npy", x)
    paths = {"x": str(tmp_path / "x.npy"), "model": str(tmp_path / "model.keras"), "out": str(tmp_path / "out.npy")}
    said = run_elsewhere(_ELSEWHERE.format(**paths), tmp_path)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), model.predict(x, verbose=0), atol=1e-6)
    assert said.split() == ["iterations", "9"]


def test_an_exported_model_serves(two_steps, tmp_path):
    x, _ = make_data(11)
    model = train(two_steps)
    model.export(tmp_path / "served", verbose=False)
    served = tf.saved_model.load(tmp_path / "served")
    np.testing.assert_allclose(served.serve(x).numpy(), model.predict(x, verbose=0), atol=1e-6)
    train(two_steps, model)  # and training goes on
    assert int(model.optimizer.iterations) == 8
