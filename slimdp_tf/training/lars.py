"""LARS, which Keras has not: every layer steps in proportion to its weights (You, Gitman & Ginsburg 2017)."""

from __future__ import annotations

import math

import keras
from keras import ops

from slimdp_tf.training.keras_bridge import place_of


@keras.saving.register_keras_serializable(package="slimdp_tf")
class Lars(keras.optimizers.Optimizer):
    """v <- mu v + rate lambda (g + wd w); w <- w - v, with lambda = trust |w| / (|g| + wd |w|) for each variable.

    lambda is 1 where w or g is zero. Vectors and scalars (biases, BatchNorm) step without lambda and without decay.

    Args:
        learning_rate: rate, a number or a schedule.
        momentum: mu, in [0, 1).
        trust: the trust coefficient, above 0.
        weight_decay: wd, at least 0; it is part of the gradient here, as in the paper.
        name, **kwargs: as for every Keras optimizer.

    Reference: You et al. 2017, algorithm 1. Leaving out biases and BatchNorm is usage, not the paper's.
    """

    def __init__(
        self,
        learning_rate=0.1,
        momentum: float = 0.9,
        trust: float = 0.001,
        weight_decay: float = 0.0,
        name: str = "lars",
        **kwargs,
    ):
        for what, value, most in (("momentum", momentum, 1.0), ("weight_decay", weight_decay, math.inf)):
            if not 0.0 <= value < most:
                raise ValueError(f"{what} must be a number within [0, {most:g}). Received: {value!r}")
        if not 0.0 < trust < math.inf:
            raise ValueError(f"trust must be a number above 0. Received: {trust!r}")
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        self.momentum, self.trust, self.decay = momentum, trust, weight_decay

    def build(self, variables) -> None:
        """Makes a velocity for each variable."""
        if self.built:
            return
        super().build(variables)
        self.velocities = [self.add_variable_from_reference(variable, name="velocity") for variable in variables]

    def update_step(self, gradient, variable, learning_rate) -> None:
        """One step of one variable."""
        rate, gradient = (ops.cast(value, variable.dtype) for value in (learning_rate, gradient))
        velocity = self.velocities[place_of(self, variable)]
        if len(variable.shape) > 1:
            weight = ops.convert_to_tensor(variable)
            size, slope = ops.norm(weight), ops.norm(gradient)
            gradient = gradient + self.decay * weight
            is_known = ops.logical_and(size > 0.0, slope > 0.0)
            ratio = self.trust * size / ops.where(is_known, slope + self.decay * size, 1.0)
            rate = rate * ops.where(is_known, ratio, 1.0)
        moved = self.momentum * velocity + rate * gradient
        self.assign(velocity, moved)
        self.assign_sub(variable, moved)

    def get_config(self) -> dict:
        """What makes the same optimizer."""
        own = {"momentum": self.momentum, "trust": self.trust, "weight_decay": self.decay}
        return {**super().get_config(), **own}
