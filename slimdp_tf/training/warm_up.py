"""Gradual warm-up of the learning rate, for large batches (Goyal et al. 2017); Keras has it for cosine decay alone."""

from __future__ import annotations

import math

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="slimdp_tf")
class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """rate(t) = first + (target(t) - first) t / steps for t < steps, target(t) from then on; t counts local steps.

    Args:
        target: the learning rate after the warm-up: a number, or a schedule of all steps, the first ones included.
        steps: how long it takes, at least 1. The paper: 5 epochs.
        first: the rate of step 0, at least 0. The paper: target / K.

    Reference: Goyal et al. 2017, section 2.2. Their momentum correction is not part of it.
    """

    def __init__(self, target, steps: int, first: float = 0.0):
        if not isinstance(target, keras.optimizers.schedules.LearningRateSchedule):
            target = float(target)
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
            raise ValueError(f"steps, of the warm-up, must be an integer of at least 1. Received: {steps!r}")
        if not 0.0 <= first < math.inf:
            raise ValueError(f"first, the rate of step 0, must be a number of at least 0. Received: {first!r}")
        self.target, self.steps, self.first = target, steps, first

    def __call__(self, step):
        """The learning rate of a step."""
        target = self.target(step) if callable(self.target) else self.target
        done = ops.minimum(ops.cast(step, "float32") / self.steps, 1.0)
        return self.first + (target - self.first) * done

    def get_config(self) -> dict:
        """What makes the same schedule."""
        target = keras.saving.serialize_keras_object(self.target) if callable(self.target) else self.target
        return {"target": target, "steps": self.steps, "first": self.first}

    @classmethod
    def from_config(cls, config: dict) -> WarmUp:
        """The schedule of a config."""
        target = config["target"]
        return cls(
            **{**config, "target": keras.saving.deserialize_keras_object(target) if type(target) is dict else target}
        )
