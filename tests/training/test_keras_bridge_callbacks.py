"""The callbacks of Keras on two real workers: right values, at the granularity of rounds."""

from __future__ import annotations

import csv
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf import methods
from slimdp_tf.simulate import Simulation
from tests.cluster import strategy
from tests.training.small_models import (
    KINDS_OF_COPIES,
    Watch,
    ask_workers,
    average_by_hand,
    compile_linear,
    descend_by_hand,
    flatten,
    make_data,
    make_linear,
    servers_weights,
)

pytestmark = [pytest.mark.cluster, pytest.mark.flaky(reruns=0)]


@pytest.fixture(scope="module")
def two_steps():
    return strategy(methods.plump(p=2))


@pytest.fixture(scope="module")
def one_step():
    return strategy(methods.plump(p=1))


def each_batch(look, kept: list) -> keras.callbacks.Callback:
    return keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: kept.append(look(batch, logs)))


# -- numbers ----------------------------------------------------------------------------------------------------------


def test_loss_and_accuracy_of_rounds_and_epochs_are_those_of_all_rows_seen(two_steps):
    x, _ = make_data(29)
    y = (np.arange(29) % 3).astype(np.int32)
    model = compile_linear(
        two_steps,
        lambda: keras.optimizers.SGD(0.0),
        lambda: make_linear(4, 3),
        loss=keras.losses.SparseCategoricalCrossentropy(True),
        metrics=["accuracy"],
    )
    kept: list = []
    history = model.fit(
        x, y, batch_size=4, shuffle=False, epochs=2, callbacks=[each_batch(lambda b, logs: (b, logs), kept)], verbose=0
    ).history
    kernel, bias = (w.astype(np.float64) for w in model.get_weights())
    scores = x @ kernel + bias
    losses = np.log(np.exp(scores).sum(1)) - scores[np.arange(29), y]
    hits = scores.argmax(1) == y
    for batch, logs in kept:
        seen = min(29, 8 * (batch + 1))  # 15 and 14 rows: batches of 4, 4, 4, 3 and 4, 4, 4, 2
        assert logs["loss"] == pytest.approx(losses[:seen].mean(), rel=1e-5)
        assert logs["accuracy"] == pytest.approx(hits[:seen].mean(), rel=1e-5)
    assert [batch for batch, _ in kept] == [1, 3] * 2
    assert history["loss"] == pytest.approx([losses.mean()] * 2, rel=1e-5)
    assert history["accuracy"] == pytest.approx([hits.mean()] * 2, rel=1e-5)


def fit_reading(under, x, y) -> list[np.ndarray]:
    """The weights as a callback reads them after each round, which are what the servers hold then."""
    model, kept, held = compile_linear(under), [], []
    look = [
        each_batch(lambda batch, logs: flatten(model), kept),
        each_batch(lambda batch, logs: servers_weights(under), held),
    ]
    model.fit(x, y, batch_size=4, shuffle=False, callbacks=look, verbose=0)
    np.testing.assert_array_equal(kept, held)
    return kept


def test_weights_read_after_each_batch_are_the_servers(two_steps):
    x, y = make_data(2 * 4 * 5)
    for rounds, weights in zip(([2], [2, 2], [2, 2, 1]), fit_reading(two_steps, x, y), strict=True):
        np.testing.assert_allclose(weights, average_by_hand(x, y, 4, rounds), atol=1e-5)


@pytest.mark.parametrize("name", ["slim_carry", "quant_pull"])
def test_weights_read_after_each_batch_are_the_servers_where_workers_hold_others(name):
    method, (x, y) = KINDS_OF_COPIES[name], make_data(2 * 4 * 8)

    def train(worker, weights, steps, number):
        return descend_by_hand(weights, x, y, 4, worker, range(steps * number, steps * (number + 1)))

    simulation = Simulation(method, flatten(make_linear()), workers=2, servers=2)
    for weights in fit_reading(strategy(method), x, y):
        simulation.run_round(train, 2)
        np.testing.assert_allclose(weights, simulation.weights, atol=1e-5)
    assert simulation.round == 4


def test_the_progress_bar_counts_steps_and_shows_the_metrics(two_steps, capsys):
    x, y = make_data(2 * 4 * 5)
    model = compile_linear(two_steps, metrics=["mae"])
    history = model.fit(x, y, batch_size=4, verbose=1).history
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out.replace("\x08", ""))
    assert "2/5" in shown and "4/5" in shown
    last = shown.rstrip().splitlines()[-1]
    assert "5/5" in last
    assert f"loss: {history['loss'][0]:.4f}" in last and f"mae: {history['mae'][0]:.4f}" in last


def test_csv_logger(two_steps, tmp_path):
    x, y = make_data(32)
    model = compile_linear(two_steps, metrics=["mae"])
    logger = keras.callbacks.CSVLogger(tmp_path / "log.csv")
    history = model.fit(x, y, batch_size=4, epochs=3, validation_data=(x, y), callbacks=[logger], verbose=0).history
    rows = list(csv.DictReader((tmp_path / "log.csv").open()))
    assert [row["epoch"] for row in rows] == ["0", "1", "2"]
    for name in ("loss", "mae", "val_loss", "val_mae"):
        assert [float(row[name]) for row in rows] == pytest.approx(history[name])


def read_events(folder) -> dict[str, dict[int, np.ndarray]]:
    """The values of every tag by their place on TensorBoard's axis."""
    found: dict[str, dict[int, np.ndarray]] = {}
    for path in sorted(folder.glob("events*")):
        for record in tf.data.TFRecordDataset(str(path)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                if value.HasField("tensor") and value.metadata.plugin_data.plugin_name != "graphs":
                    assert event.step not in found.setdefault(value.tag, {})
                    found[value.tag][event.step] = tf.make_ndarray(value.tensor)
    return found


def check_curve(found: dict[int, np.ndarray], expected: dict[int, float]):
    assert {step: float(value) for step, value in found.items()} == pytest.approx(expected, rel=1e-6)


def test_tensorboard(two_steps, tmp_path):
    x, y = make_data(32)
    model, kept = compile_linear(two_steps, metrics=["mae"]), []
    board = keras.callbacks.TensorBoard(tmp_path, histogram_freq=1, update_freq=1)
    history = model.fit(
        x,
        y,
        batch_size=4,
        epochs=2,
        validation_data=(x, y),
        callbacks=[board, each_batch(lambda b, logs: logs["loss"], kept)],
        verbose=0,
    ).history
    train, validation = read_events(tmp_path / "train"), read_events(tmp_path / "validation")
    for name in ("loss", "mae"):
        check_curve(train[f"epoch_{name}"], dict(enumerate(history[name])))
        check_curve(validation[f"epoch_{name}"], dict(enumerate(history[f"val_{name}"])))
        by_steps = dict(zip((4, 8), history[f"val_{name}"]))  # steps of one worker
        check_curve(validation[f"evaluation_{name}_vs_iterations"], by_steps)
    check_curve(train["batch_loss"], dict(enumerate(kept, 1)))  # rounds, which are two steps each
    assert len(kept) == 4
    (histograms,) = [values for tag, values in train.items() if "kernel" in tag]
    assert list(histograms) == [0, 1]
    histogram = histograms[1]
    kernel = model.get_weights()[0]
    assert histogram[0, 0] == pytest.approx(kernel.min()) and histogram[-1, 1] == pytest.approx(kernel.max())


# -- callbacks that steer ---------------------------------------------------------------------------------------------


def test_learning_rate_scheduler(one_step):
    x, y = make_data(32)
    found = []
    for under, batch in ((None, 8), (one_step, 4)):
        scheduler = keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.1 / (epoch + 1))
        model = compile_linear(under)
        history = model.fit(x, y, batch_size=batch, shuffle=False, epochs=3, callbacks=[scheduler], verbose=0).history
        assert history["learning_rate"] == pytest.approx([0.1, 0.05, 0.1 / 3])
        found.append(flatten(model))
    np.testing.assert_allclose(found[1], found[0], atol=1e-5)


def test_reduce_learning_rate_on_plateau(two_steps):
    x, y = make_data(32)
    plateau = keras.callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=1, min_delta=100.0)
    model = compile_linear(two_steps, lambda: keras.optimizers.SGD(0.08))
    history = model.fit(x, y, batch_size=4, epochs=4, callbacks=[plateau], verbose=0).history
    assert history["learning_rate"] == pytest.approx([0.08, 0.08, 0.04, 0.02])
    assert float(model.optimizer.learning_rate) == pytest.approx(0.01)
    model.fit(x, y, batch_size=4, verbose=0)
    assert ask_workers(model.optimizer._learning_rate) == pytest.approx([0.01, 0.01])


def spoil_after(epoch: int) -> keras.callbacks.Callback:
    """A learning rate that makes everything worse from this epoch on."""
    return keras.callbacks.LearningRateScheduler(lambda now, rate: 0.05 if now < epoch else 4.0)


def test_early_stopping_restores_the_best_weights(two_steps):
    x, y = make_data(32)
    model, watching = compile_linear(two_steps), Watch(flatten)
    stopping = keras.callbacks.EarlyStopping("val_loss", patience=2, restore_best_weights=True)
    history = model.fit(
        x,
        y,
        batch_size=4,
        epochs=9,
        validation_data=(x, y),
        callbacks=[spoil_after(3), watching, stopping],
        verbose=0,
    ).history
    assert len(history["loss"]) == 5 and np.argmin(history["val_loss"]) == 2
    np.testing.assert_array_equal(flatten(model), watching.found[2])
    assert model.evaluate(x, y, verbose=0) == pytest.approx(history["val_loss"][2], rel=1e-5)
    model.optimizer.learning_rate = 0.0
    model.fit(x, y, batch_size=4, verbose=0)  # the workers have them, too
    np.testing.assert_array_equal(flatten(model), watching.found[2])


@pytest.mark.parametrize("ending", [".keras", ".weights.h5"])
def test_model_checkpoint_after_every_epoch(two_steps, tmp_path, ending):
    x, y = make_data(32)
    model, watching = compile_linear(two_steps), Watch(flatten)
    saving = keras.callbacks.ModelCheckpoint(
        tmp_path / ("{epoch}" + ending), save_weights_only=ending.endswith("h5"), verbose=0
    )
    model.fit(x, y, batch_size=4, epochs=2, callbacks=[watching, saving], verbose=0)
    for epoch in (1, 2):
        if ending == ".keras":
            loaded = keras.models.load_model(tmp_path / f"{epoch}.keras")
            assert int(loaded.optimizer.iterations) == 4 * epoch
        else:
            loaded = make_linear()
            loaded.load_weights(tmp_path / f"{epoch}.weights.h5")
        np.testing.assert_array_equal(flatten(loaded), watching.found[epoch - 1])


def test_model_checkpoint_of_the_best_only(two_steps, tmp_path):
    x, y = make_data(32)
    model, watching = compile_linear(two_steps), Watch(flatten)
    saving = keras.callbacks.ModelCheckpoint(tmp_path / "best.keras", "val_loss", save_best_only=True)
    model.fit(
        x, y, batch_size=4, epochs=4, validation_data=(x, y), callbacks=[spoil_after(2), watching, saving], verbose=0
    )
    np.testing.assert_array_equal(flatten(keras.models.load_model(tmp_path / "best.keras")), watching.found[1])


def test_model_checkpoint_after_so_many_steps(two_steps, tmp_path):
    x, y = make_data(2 * 4 * 6)
    model, kept = compile_linear(two_steps), []
    saving = keras.callbacks.ModelCheckpoint(tmp_path / "{batch}.weights.h5", save_weights_only=True, save_freq=4)
    model.fit(x, y, batch_size=4, callbacks=[each_batch(lambda b, logs: flatten(model), kept), saving], verbose=0)
    (path,) = tmp_path.iterdir()
    steps = int(path.name.removesuffix(".weights.h5"))
    assert steps in (4, 6)  # Keras 3.12 begins to count with the second batch
    loaded = make_linear()
    loaded.load_weights(path)
    np.testing.assert_array_equal(flatten(loaded), kept[steps // 2 - 1])


class Interruption(Exception):
    pass


@pytest.mark.parametrize("save_freq", ["epoch", 4])
def test_backup_and_restore_goes_on_where_it_was(two_steps, tmp_path, save_freq):
    x, y = make_data(32)

    def fit(callbacks):
        model = compile_linear(two_steps)
        callbacks = [*callbacks, keras.callbacks.BackupAndRestore(tmp_path / "backup", save_freq)]
        return model, model.fit(x, y, batch_size=4, shuffle=False, epochs=4, callbacks=callbacks, verbose=0)

    def interrupt(epoch, logs):
        if epoch == 2:
            raise Interruption

    with pytest.raises(Interruption):
        fit([keras.callbacks.LambdaCallback(on_epoch_begin=interrupt)])
    model, history = fit([])
    backed_up, epochs = ([x, x], [2, 3]) if save_freq == "epoch" else ([x, x[:16]], [1, 2, 3])
    # Keras's count comes to 4 with the first round of epoch 1, after 6 steps; that epoch is then done again.
    trained = [*backed_up, *[x for _ in epochs]]
    rounds = [2] * (sum(map(len, trained)) // 16)
    assert history.epoch == epochs and int(model.optimizer.iterations) == sum(rounds)
    targets = [y[: len(rows)] for rows in trained]
    expected = average_by_hand(np.concatenate(trained), np.concatenate(targets), 4, rounds)
    np.testing.assert_allclose(flatten(model), expected, atol=1e-5)


def test_swap_ema_weights(two_steps):
    x, y = make_data(32)
    model = compile_linear(two_steps, lambda: keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9))
    swapped = []
    kept = keras.callbacks.LambdaCallback(on_test_begin=lambda logs: swapped.append(flatten(model)))
    callbacks = [keras.callbacks.SwapEMAWeights(), kept]
    model.fit(x, y, batch_size=4, validation_data=(x, y), callbacks=callbacks, verbose=0)
    averages = [average.numpy().ravel() for average in model.optimizer._model_variables_moving_average]
    np.testing.assert_allclose(swapped[0], np.concatenate(averages), atol=1e-6)


# -- not a number -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_nonfinite", ["raise", "skip"])
def test_terminate_on_nan_ends_the_fit_in_peace(on_nonfinite):
    under = strategy(methods.plump(p=2), on_nonfinite=on_nonfinite)
    x, y = make_data(2 * 4 * 6)
    bad = x.copy()
    bad[2 * 4 * 2 + 1] = np.nan  # the second worker, the second round
    model, kept = compile_linear(under), []
    ended = []
    callbacks = [
        each_batch(lambda batch, logs: (batch, flatten(model)), kept),
        keras.callbacks.TerminateOnNaN(),
        keras.callbacks.LambdaCallback(on_train_end=lambda logs: ended.append(True)),
    ]
    model.fit(bad, y, batch_size=4, shuffle=False, epochs=3, callbacks=callbacks, verbose=0)
    assert [batch for batch, _ in kept] == [1, 3] and ended == [True]
    assert np.isfinite(kept[1][1]).all() and np.isfinite(flatten(model)).all()
    assert [record.refused for record in under.records] == [0, 1]
    model.fit(x, y, batch_size=4, verbose=0)  # what was refused is over
    assert [record.refused for record in under.records] == [0, 1, 0, 0, 0]
