"""Training loops of the user's own with strategy.run, on two real workers."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf import methods
from tests.cluster import strategy
from tests.training.small_models import average_by_hand, flatten, make_data, make_linear

pytestmark = [pytest.mark.cluster, pytest.mark.flaky(reruns=0)]


@pytest.fixture(scope="module")
def one_step():
    return strategy(methods.plump(p=1))


@pytest.fixture(scope="module")
def four_steps():
    return strategy(methods.plump(p=4))


class Loop:
    """A linear model, its optimizer and metric under a strategy, and the steps of a loop."""

    def __init__(self, under, rate: float = 0.05):
        with under.scope():
            self.model, self.optimizer = make_linear(), keras.optimizers.SGD(rate)
            self.error = keras.metrics.MeanSquaredError()
            self.optimizer.build(self.model.trainable_variables)

    def step(self, batch, factor=1.0):
        x, y = batch
        with tf.GradientTape() as tape:
            prediction = self.model(x, training=True)
            loss = factor * keras.ops.mean(keras.ops.square(prediction - y))
        gradients = tape.gradient(loss, self.model.trainable_variables)
        self.optimizer.apply(gradients, self.model.trainable_variables)
        self.error.update_state(y, prediction)
        return {"loss": loss, "rows": tf.shape(x)[0]}

    def test(self, batch):
        x, y = batch
        self.error.update_state(y, self.model(x, training=False))
        return self.model(x, training=False)


def distribute(under, x, y, batch: int):
    return under.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((x, y)).batch(batch))


def test_one_step_a_round_is_one_process_on_the_joined_batch(one_step):
    x, y = make_data(48)
    loop, found, expected = Loop(one_step), [], []
    for batch in distribute(one_step, x, y, 4):
        result = one_step.run(loop.step, args=(batch,))
        found.append(float(one_step.reduce("MEAN", result["loss"])))
        assert int(one_step.reduce(tf.distribute.ReduceOp.SUM, result["rows"])) == 8
        assert [int(rows) for rows in one_step.experimental_local_results(result["rows"])] == [4, 4]
    plain = make_linear()
    plain.compile(keras.optimizers.SGD(0.05), "mse", jit_compile=False)
    for start in range(0, 48, 8):
        plain.reset_metrics()  # Keras 3.12 goes on counting from the last batch
        expected.append(float(plain.train_on_batch(x[start : start + 8], y[start : start + 8])))
    np.testing.assert_allclose(flatten(loop.model), flatten(plain), atol=1e-5)
    assert found == pytest.approx(expected, rel=1e-4)
    assert float(loop.error.result()) == pytest.approx(np.mean(expected), rel=1e-4)  # of the rows of both workers
    assert int(loop.optimizer.iterations) == 6


def test_four_steps_a_round(four_steps):
    x, y = make_data(2 * 4 * 8)
    loop, iterator = Loop(four_steps), iter(distribute(four_steps, x, y, 4))
    first = len(four_steps.records)
    for step in range(8):
        four_steps.run(loop.step, args=(next(iterator),))
        weights = average_by_hand(x, y, 4, [4] * ((step + 1) // 4))
        np.testing.assert_allclose(flatten(loop.model), weights, atol=1e-5)  # the server's: they move every 4th step
    assert len(four_steps.records) - first == 2
    with pytest.raises(StopIteration):
        next(iterator)


def test_tensors_go_to_every_worker(one_step):
    x, y = make_data(16)
    loop, iterator = Loop(one_step, rate=0.1), iter(distribute(one_step, x, y, 4))
    before = flatten(loop.model)
    one_step.run(loop.step, args=(next(iterator), tf.constant(0.0)))
    np.testing.assert_array_equal(flatten(loop.model), before)
    result = one_step.run(loop.step, args=(next(iterator),), kwargs={"factor": tf.constant(2.0)})
    assert np.abs(flatten(loop.model) - before).max() > 1e-3
    assert all(loss > 0 for loss in one_step.experimental_local_results(result["loss"]))


def test_steps_that_do_not_train_do_not_exchange(one_step):
    x, y = make_data(16)
    loop = Loop(one_step)
    for batch in distribute(one_step, x, y, 4):
        one_step.run(loop.step, args=(batch,))
    loop.error.reset_state()
    rounds, outputs = len(one_step.records), []
    for batch in distribute(one_step, x, y, 4):
        outputs.append(one_step.experimental_local_results(one_step.run(loop.test, args=(batch,))))
    assert len(one_step.records) == rounds
    kernel, bias = loop.model.get_weights()
    np.testing.assert_allclose(outputs[0][1], x[1:8:2] @ kernel + bias, atol=1e-5)  # with the server's weights
    assert float(loop.error.result()) == pytest.approx(np.mean(np.square(x @ kernel + bias - y)), rel=1e-4)


def test_datasets_from_a_function_and_workers_that_run_out_of_data(one_step):
    x, y = make_data(24)

    def make(context):
        mine = slice(0, 16) if context.input_pipeline_id == 0 else slice(16, 24)
        return tf.data.Dataset.from_tensor_slices((x[mine], y[mine])).filter(lambda x, y: True).batch(4)

    loop, rows = Loop(one_step), []
    with pytest.raises(tf.errors.OutOfRangeError):
        for batch in one_step.distribute_datasets_from_function(make):
            rows.append(int(one_step.reduce("SUM", one_step.run(loop.step, args=(batch,))["rows"])))
    assert rows == [8, 8, 4, 4]
    assert np.isfinite(flatten(loop.model)).all()


def test_two_models_in_turn_are_bound_once():
    under = strategy(methods.plump(p=1))
    x, y = make_data(32)
    first, second = Loop(under), Loop(under)
    bound, bind = [], under.rounds.binding._bind
    under.rounds.binding._bind = lambda *arguments: bound.append(True) or bind(*arguments)
    batches, again = iter(distribute(under, x, y, 4)), iter(distribute(under, x, y, 4))
    for _ in range(4):
        under.run(first.step, args=(next(batches),))
        under.run(second.step, args=(next(again),))
    assert len(bound) == 2 and len(under.records) == 8
    np.testing.assert_allclose(flatten(first.model), flatten(second.model), atol=1e-6)
    np.testing.assert_allclose(flatten(first.model), average_by_hand(x, y, 4, [1] * 4), atol=1e-5)


def test_a_batch_is_taken_once(one_step):
    x, y = make_data(16)
    loop = Loop(one_step)
    batch = next(iter(distribute(one_step, x, y, 4)))
    one_step.run(loop.step, args=(batch,))
    with pytest.raises(ValueError, match="it stands for the next batch of each worker, so it can be used once"):
        one_step.run(loop.step, args=(batch,))


def test_fit_goes_on_after_a_loop_and_a_loop_after_fit(one_step):
    x, y = make_data(16)
    loop = Loop(one_step)
    with one_step.scope():
        loop.model.compile(loop.optimizer, "mse")
    for batch in distribute(one_step, x, y, 4):
        one_step.run(loop.step, args=(batch,))
    loop.model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
    for batch in distribute(one_step, x, y, 4):
        one_step.run(loop.step, args=(batch,))
    plain = make_linear()
    plain.compile(keras.optimizers.SGD(0.05), "mse", jit_compile=False)
    plain.fit(x, y, batch_size=8, shuffle=False, epochs=3, verbose=0)
    np.testing.assert_allclose(flatten(loop.model), flatten(plain), atol=1e-5)
    assert int(loop.optimizer.iterations) == 6


# -- refused in words -------------------------------------------------------------------------------------------------


def test_run_inside_a_function_is_refused(one_step):
    x, y = make_data(16)
    loop, iterator = Loop(one_step), iter(distribute(one_step, x, y, 4))

    @tf.function
    def step():
        return one_step.run(loop.step, args=(next(iterator),))

    with pytest.raises(RuntimeError, match="Call strategy.run from Python, not inside a tf.function"):
        step()


def test_variables_from_outside_the_scope_are_refused():
    under = strategy(methods.plump(p=1))
    x, y = make_data(16)
    loop, outside = Loop(under), make_linear()
    iterator = iter(distribute(under, x, y, 4))

    def distil(batch):
        return loop.step((batch[0], outside(batch[0])))

    with pytest.raises(ValueError, match="uses variables that were not made under strategy.scope.*kernel"):
        under.run(distil, args=(next(iterator),))


def test_a_step_that_trains_nothing_is_refused():
    under = strategy(methods.plump(p=1))
    x, y = make_data(16)
    loop, iterator = Loop(under), iter(distribute(under, x, y, 4))
    with pytest.raises(ValueError, match="There is nothing to train"):
        under.run(loop.test, args=(next(iterator),))
