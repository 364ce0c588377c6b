"""The passes over a worker's tf.data pipeline, opened in turn: a shuffle draws another order for each."""

from __future__ import annotations

import tensorflow as tf

from slimdp_tf.distribute import _tf


class Passes:
    """Opens iterators over the pipelines of the workers, each under its worker's device."""

    def __init__(self):
        self._variants: dict[int, tf.Tensor] = {}
        self._opened: dict[int, int] = {}

    def begin(self, worker: int, variant: tf.Tensor) -> None:
        """Takes the pipeline of a worker that has just come; none of its passes has been opened."""
        self._variants[worker], self._opened[worker] = variant, 0

    def open(self, worker: int, number: int, taken: tf.Tensor | None, element_spec) -> tf.Tensor:
        """Handle of pass `number`, from 0 (-1: a look at the data before all), past its first `taken` elements, i64[].

        TensorFlow counts the iterators that it makes of a shuffle, so the passes that this worker's process has not
        seen are opened and let go first: it then draws the order that belongs to `number`.
        """
        for _ in range(self._opened[worker], number):
            _tf.open_iterator(self._variants[worker], element_spec)
        self._opened[worker] = max(self._opened[worker], number + 1)
        return _tf.open_iterator(self._variants[worker], element_spec, taken)
