"""The loss of one mini-batch, for the rules that go by it: what a training step adds to the model's mean loss."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf


def run_with_loss(tracker, step: Callable[[], dict]) -> tuple[dict, tf.Tensor]:
    """Runs a training step of a model.

    Args:
        tracker: the metric "loss" of the model, a mean; None if it has none.
        step: runs it, and returns its logs.

    Returns:
        The logs of the step, and the mean loss of its mini-batch, f64[]: what the step added to the metric "loss", nan
        for a step that does not update it.
    """
    if tracker is None:
        return step(), tf.constant(float("nan"), tf.float64)
    before = _read(tracker)
    logs = step()
    total, count = (after - old for after, old in zip(_read(tracker), before))
    return logs, total / count


def _read(tracker) -> list[tf.Tensor]:
    return [tf.cast(tf.convert_to_tensor(variable), tf.float64) for variable in (tracker.total, tracker.count)]
