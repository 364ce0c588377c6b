"""What all contracts share: the rules under test, how a breach is told, and the numbers the rules are given."""

from __future__ import annotations

import abc

import numpy as np
import tensorflow as tf

F32, I32 = tf.TensorSpec([None], tf.float32), tf.TensorSpec([None], tf.int32)
SEED = tf.TensorSpec([2], tf.int32)


class Contract(abc.ABC):
    """What all contracts share: the rules under test."""

    @abc.abstractmethod
    def rules(self) -> list:
        """The rules to be tested, with the options that matter."""


def require(is_kept: bool, breach: str) -> None:
    """Fails the test with `breach`, which says what was found, unless the contract is kept."""
    if not is_kept:
        raise AssertionError(breach)


def make_seed(number: int) -> tf.Tensor:
    """A seed, i32[2]."""
    return tf.constant([number, 5], tf.int32)


def draw_normal(count: int, number: int = 0) -> tf.Tensor:
    """Normal values, f32[count], always the same."""
    return tf.constant(np.random.default_rng([number, count]).normal(size=count), tf.float32)


def make_halves(is_mixed: bool = True) -> list[tf.Tensor]:
    """Vectors of what float16 holds, as f32: its least and greatest numbers of either sign; then all in one."""
    least, greatest = np.float16(6e-8), np.float16(65504.0)
    vectors = [[least], [greatest], [-least] * 37, [-greatest] * 37]
    if is_mixed:
        vectors.append([least, greatest, 0.0, -least, -greatest, 2.0**-14, -0.1, 1 / 3] * 9)
    return [tf.constant(np.array(vector, np.float16), tf.float32) for vector in vectors]


def draw_eighths(count: int, number: int = 0) -> tf.Tensor:
    """Multiples of 1/8 within [-4, 4], f32[count], always the same: their sums and differences are exact."""
    return tf.constant(np.random.default_rng([number, count]).integers(-32, 33, count) / 8.0, tf.float32)
