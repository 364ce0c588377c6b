"""fit, evaluate and predict on every kind of data, on two real workers: who sees what, how often, in which order."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf import methods
from slimdp_tf.distribute import sources
from tests.cluster import strategy
from tests.training.small_models import Seen, Watch, compile_linear, flatten, make_data, make_linear

pytestmark = [pytest.mark.cluster, pytest.mark.flaky(reruns=0)]


@pytest.fixture(scope="module")
def two_steps():
    """A strategy that exchanges every second step."""
    return strategy(methods.plump(p=2))


@pytest.fixture(scope="module")
def one_step():
    return strategy(methods.plump(p=1))


def make_ids(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """x whose rows, and targets whose first column, are the rows' numbers."""
    ids = np.arange(rows, dtype=np.float32)
    return np.stack([ids] * 4, 1) / rows, np.stack([ids, ids], 1)


def watch(under, rows: int, **arguments):
    """A model that does not move, its `Seen` metric, and a callback that asks it after every epoch."""
    with under.scope():
        model, seen = make_linear(), Seen(rows)
        model.compile(keras.optimizers.SGD(0.0), "mse", metrics=[seen], **arguments)
    return model, seen, Watch(lambda model: (seen.by_worker, seen.batch.numpy()))


def rows_of(worker: int, rows: int, times: int = 1) -> list[int]:
    return [times if row % 2 == worker else 0 for row in range(rows)]


# -- arrays -----------------------------------------------------------------------------------------------------------


def test_arrays_each_worker_gets_its_rows_only_and_once(two_steps, monkeypatch):
    sent = []
    moved = sources._moved
    monkeypatch.setattr(sources, "_moved", lambda array: sent.append(array.nbytes) or moved(array))
    x, y = make_ids(23)
    model, _, watching = watch(two_steps, 23)
    history = model.fit(x, y, batch_size=4, epochs=2, callbacks=[watching], verbose=0)
    for by_worker, _ in watching.found:
        assert by_worker == [rows_of(0, 23), rows_of(1, 23)]
    assert sum(sent) == x.nbytes + y.nbytes  # for two epochs
    assert history.history["seen"] == [23.0, 23.0]
    assert history.params["steps"] == 3  # 12 rows on the first worker


def test_arrays_are_shuffled_anew_for_each_epoch_unless_told_not_to(two_steps):
    x, y = make_ids(24)
    model, seen, watching = watch(two_steps, 24)
    model.fit(x, y, batch_size=2, epochs=2, callbacks=[watching], verbose=0)
    (_, first), (_, second) = watching.found
    assert not np.array_equal(first, second)
    model.fit(x, y, batch_size=2, shuffle=False, verbose=0)
    np.testing.assert_array_equal(seen.batch.numpy(), 1 + np.arange(24) // 4)


def test_tensors_are_arrays(two_steps):
    x, y = make_ids(12)
    model, _, watching = watch(two_steps, 12)
    model.fit(tf.constant(x), tf.constant(y), batch_size=3, callbacks=[watching], verbose=0)
    assert watching.found[0][0] == [rows_of(0, 12), rows_of(1, 12)]


# -- tf.data ----------------------------------------------------------------------------------------------------------


def test_a_finite_dataset_of_slices_is_cut_before_it_is_sent(two_steps):
    x, y = make_ids(1200)
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(1200).batch(50)
    model, _, watching = watch(two_steps, 1200)
    model.fit(dataset, epochs=2, callbacks=[watching], verbose=0)
    for by_worker, _ in watching.found:
        assert by_worker == [rows_of(0, 1200), rows_of(1, 1200)]
    (_, first), (_, second) = watching.found
    assert not np.array_equal(first, second)  # shuffled anew
    graphs = two_steps.experimental_distribute_dataset(dataset).source._graphs
    assert sum(len(graph) for graph in graphs) < 1.2 * (x.nbytes + y.nbytes)


def test_a_dataset_that_goes_through_every_row_on_the_worker(two_steps):
    dataset = tf.data.Dataset.range(24).map(lambda i: (tf.fill([4], 0.1), tf.fill([2], tf.cast(i, tf.float32))))
    model, _, watching = watch(two_steps, 24)
    model.fit(dataset.shuffle(24).batch(3), epochs=2, callbacks=[watching], verbose=0)
    for by_worker, _ in watching.found:
        assert np.sum(by_worker, 0).tolist() == [1] * 24
        assert np.sum(by_worker, 1).tolist() == [12, 12]
    (_, first), (_, second) = watching.found
    assert not np.array_equal(first, second)  # shuffled anew, in the same way on both


def test_a_dataset_of_file_names(two_steps, tmp_path):
    x, y = make_ids(12)
    for row in range(12):
        (tmp_path / f"{row}.bin").write_bytes(x[row].tobytes() + y[row].tobytes())

    def read(name):
        values = tf.io.decode_raw(tf.io.read_file(name), tf.float32)
        return values[:4], values[4:6]

    names = tf.data.Dataset.from_tensor_slices([str(tmp_path / f"{row}.bin") for row in range(12)])
    model, _, watching = watch(two_steps, 12)
    model.fit(names.map(read).batch(2), callbacks=[watching], verbose=0)
    assert watching.found[0][0] == [rows_of(0, 12), rows_of(1, 12)]


def test_a_tensor_that_a_dataset_also_uses_whole_is_not_cut(two_steps):
    x, y = make_ids(12)
    table, order = tf.constant(y), tf.range(12)
    dataset = tf.data.Dataset.from_tensor_slices(order).map(lambda i: (tf.ones([4]), tf.gather(table, order[i])))
    model, _, watching = watch(two_steps, 12)
    model.fit(dataset.cache().batch(2), epochs=2, callbacks=[watching], verbose=0)
    for by_worker, _ in watching.found:
        assert np.sum(by_worker, 0).tolist() == [1] * 12


def test_a_repeated_dataset_goes_on_through_the_epochs(two_steps):
    x, y = make_ids(16)
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(2).repeat()
    model, _, watching = watch(two_steps, 16)
    model.fit(dataset, epochs=2, steps_per_epoch=6, callbacks=[watching], verbose=0)
    total = np.add(*[by_worker for by_worker, _ in watching.found])  # 12 batches each: three passes over 8 rows
    np.testing.assert_array_equal(total, [rows_of(0, 16, 3), rows_of(1, 16, 3)])


def test_a_dataset_of_unknown_length(two_steps):
    x, y = make_ids(30)
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).filter(lambda x, y: y[0] % 3 != 1.0).batch(2)
    model, _, watching = watch(two_steps, 30)
    history = model.fit(dataset, epochs=3, callbacks=[watching], verbose=0)
    for by_worker, _ in watching.found:
        assert np.sum(by_worker, 0).tolist() == [0 if row % 3 == 1 else 1 for row in range(30)]
    assert history.history["seen"] == [20.0] * 3
    assert int(model.optimizer.iterations) == 15


@pytest.mark.parametrize("of_unknown_length", [(), (0,), (1,), (0, 1)])
def test_datasets_from_a_function_each_worker_its_own(two_steps, of_unknown_length):
    x, y = make_ids(20)

    def make(context):
        assert (context.num_input_pipelines, context.num_replicas_in_sync) == (2, 2)
        mine = slice(0, 6) if context.input_pipeline_id == 0 else slice(6, 20)
        rows = tf.data.Dataset.from_tensor_slices((x[mine], y[mine]))
        if context.input_pipeline_id in of_unknown_length:
            rows = rows.filter(lambda *row: True)
        return rows.batch(context.get_per_replica_batch_size(4))

    model, _, watching = watch(two_steps, 20)
    model.fit(two_steps.distribute_datasets_from_function(make), epochs=2, callbacks=[watching], verbose=0)
    for by_worker, _ in watching.found:
        assert by_worker == [[1] * 6 + [0] * 14, [0] * 6 + [1] * 14]


# -- weights of examples ----------------------------------------------------------------------------------------------

_CLASS_WEIGHT = {0: 1.0, 1: 0.25, 2: 3.0}


def make_classes(rows: int):
    x, _ = make_data(rows)
    return x, np.arange(rows) // 2 % 3


def compile_classes(under):
    return compile_linear(under, model=lambda: make_linear(4, 3), loss=keras.losses.SparseCategoricalCrossentropy(True))


@pytest.mark.parametrize("kind", ["sample_weight", "class_weight", "class_weight of a dataset", "sample_weight in it"])
def test_weights_of_examples_are_those_of_plain_keras(one_step, kind):
    x, y = make_classes(48)
    weight = np.array([_CLASS_WEIGHT[c] for c in y], np.float32)
    plain, model = compile_classes(None), compile_classes(one_step)
    alone = plain.fit(x, y, sample_weight=weight, batch_size=8, shuffle=False, verbose=0)
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(4)
    weighted = tf.data.Dataset.from_tensor_slices((x, y, weight)).batch(4)
    history = {
        "sample_weight": lambda: model.fit(x, y, sample_weight=weight, batch_size=4, shuffle=False, verbose=0),
        "class_weight": lambda: model.fit(x, y, class_weight=_CLASS_WEIGHT, batch_size=4, shuffle=False, verbose=0),
        "class_weight of a dataset": lambda: model.fit(dataset, class_weight=_CLASS_WEIGHT, verbose=0),
        "sample_weight in it": lambda: model.fit(weighted, verbose=0),
    }[kind]()
    np.testing.assert_allclose(flatten(model), flatten(plain), atol=1e-5)
    assert history.history["loss"][0] == pytest.approx(alone.history["loss"][0], rel=1e-4)


def test_class_weight_of_a_distributed_dataset_is_refused(one_step):
    x, y = make_classes(16)
    dataset = one_step.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((x, y)).batch(4))
    with pytest.raises(ValueError, match="class_weight is not possible with a distributed dataset"):
        compile_classes(one_step).fit(dataset, class_weight=_CLASS_WEIGHT, verbose=0)


# -- validation -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["arrays", "arrays and weights", "dataset", "split"])
def test_validation_is_that_of_plain_keras_with_these_weights(two_steps, kind):
    x, y = make_data(40)
    weight = np.linspace(0, 2, 10).astype(np.float32)
    given = {
        "arrays": {"validation_data": (x[30:], y[30:])},
        "arrays and weights": {"validation_data": (x[30:], y[30:], weight)},
        "dataset": {"validation_data": tf.data.Dataset.from_tensor_slices((x[30:], y[30:])).batch(4)},
        "split": {"validation_split": 0.25},
    }[kind]
    train = (x, y) if kind == "split" else (x[:30], y[:30])
    model = compile_linear(two_steps, weighted_metrics=["mae"])
    history = model.fit(*train, batch_size=4, epochs=2, verbose=0, **given).history
    plain = compile_linear(None, weighted_metrics=["mae"])
    plain.set_weights(model.get_weights())
    held = {"sample_weight": weight} if kind == "arrays and weights" else {}
    expected = plain.evaluate(x[30:], y[30:], batch_size=4, verbose=0, return_dict=True, **held)
    assert history["val_loss"][-1] == pytest.approx(expected["loss"], rel=1e-5)
    assert history["val_mae"][-1] == pytest.approx(expected["mae"], rel=1e-5)
    assert len(history["val_loss"]) == 2 and history["val_loss"][1] < history["val_loss"][0]
    assert len(two_steps.records) > 0 and model.history.params["steps"] == 4


def test_validation_counts_every_example_once_and_does_not_disturb_training(two_steps):
    x, y = make_ids(20)
    model, seen, watching = watch(two_steps, 20)
    history = model.fit(x, y, batch_size=3, epochs=2, validation_data=(x[:11], y[:11]), validation_freq=2, verbose=0)
    assert history.history["seen"] == [20.0, 20.0]
    assert history.history["val_seen"] == [11.0]


# -- evaluate, predict and batches ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["arrays", "dataset"])
def test_evaluate_and_predict_see_every_example_once_and_in_order(two_steps, kind):
    x, y = make_ids(22)
    model, seen, _ = watch(two_steps, 22)
    model.fit(x, y, batch_size=4, verbose=0)
    data = (x, y) if kind == "arrays" else (tf.data.Dataset.from_tensor_slices((x, y)).batch(4),)
    size = {"batch_size": 4} if kind == "arrays" else {}
    plain = compile_linear(None)
    plain.set_weights(model.get_weights())
    loss, count = model.evaluate(*data, verbose=0, **size)
    assert count == 22
    np.testing.assert_array_equal(seen.counts.numpy(), np.ones(22))
    np.testing.assert_array_equal(seen.batch.numpy(), 1 + np.arange(22) // 4)
    assert loss == pytest.approx(plain.evaluate(x, y, batch_size=4, verbose=0), rel=1e-6)
    np.testing.assert_allclose(model.predict(data[0], verbose=0, **size), plain.predict(x, verbose=0), rtol=1e-5)
    assert model.predict(data[0], steps=2, verbose=0, **size).shape == (8, 2)


def test_evaluate_and_predict_use_the_servers_model_after_each_fit(two_steps):
    x, y = make_data(32)
    model, plain = compile_linear(two_steps), compile_linear(None)
    for _ in range(2):
        model.fit(x, y, batch_size=4, verbose=0)
        before = model.evaluate(x, y, verbose=0), model.predict(x, verbose=0)
        plain.set_weights(model.get_weights())
        assert before[0] == pytest.approx(plain.evaluate(x, y, verbose=0), rel=1e-5)
        np.testing.assert_allclose(before[1], plain.predict(x, verbose=0), rtol=1e-5, atol=1e-6)


def test_evaluate_of_a_distributed_dataset(two_steps):
    x, y = make_ids(22)
    model, seen, _ = watch(two_steps, 22)
    dataset = two_steps.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((x, y)).batch(4))
    model.fit(dataset, validation_data=dataset, verbose=0)
    assert model.history.history["val_seen"] == [22.0]
    assert model.evaluate(dataset, verbose=0)[1] == 22


def test_single_batches(two_steps):
    x, y = make_data(12)
    model, plain = compile_linear(two_steps, metrics=["mae"]), compile_linear(None, metrics=["mae"])
    model.fit(x, y, batch_size=2, verbose=0)
    plain.set_weights(model.get_weights())
    model.reset_metrics()  # Keras 3.12 goes on counting from the fit
    np.testing.assert_allclose(model.test_on_batch(x[:5], y[:5]), plain.test_on_batch(x[:5], y[:5]), rtol=1e-5)
    np.testing.assert_allclose(model.predict_on_batch(x[:5]), plain.predict_on_batch(x[:5]), rtol=1e-5)
    with pytest.raises(RuntimeError, match="train_on_batch is not possible under SlimDPStrategy"):
        model.train_on_batch(x[:5], y[:5])
