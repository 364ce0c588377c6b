"""The loss of a mini-batch, from the model's mean loss before and after a step."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf.training.batch_loss import run_with_loss


def make_model() -> keras.Model:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer="ones")])
    model.compile(keras.optimizers.SGD(0.0), "mse")
    return model


def loss_of(model) -> keras.metrics.Metric:
    return next(metric for metric in model.metrics if metric.name == "loss")


def test_is_the_batch_s_and_not_the_epoch_s():
    model, x = make_model(), np.array([[1.0, 1.0], [2.0, 1.0]], np.float32)  # outputs 2 and 3
    batches = [(x, np.array([[2.0], [1.0]], np.float32)), (x, np.array([[1.0], [2.0]], np.float32))]
    losses = [run_with_loss(loss_of(model), lambda b=batch: model.train_step(b)) for batch in batches]
    assert [float(loss) for _, loss in losses] == [2.0, 1.0]  # (0 + 4) / 2, (1 + 1) / 2
    assert float(losses[1][0]["loss"]) == pytest.approx(1.5)  # the log is the mean of both


def test_a_step_that_says_no_loss_has_none():
    model = make_model()
    logs, loss = run_with_loss(loss_of(model), lambda: {"mine": tf.constant(1.0)})
    assert list(logs) == ["mine"] and np.isnan(loss)
    assert np.isnan(run_with_loss(None, dict)[1])
