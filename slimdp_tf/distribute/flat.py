"""A worker's flattened weights, of which an answer changes some entries or all."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from slimdp_tf.distribute.blocks import Layout
from slimdp_tf.distribute.local_variable import Shelf, Vector
from slimdp_tf.types import Entries


class Flat:
    """The flattened weights of the worker here, held while a round's function changes them.

    They are held in a variable, whose entries TensorFlow overwrites in place and faster than those of a tensor; outside
    that function it is empty.

    Args:
        layout: the weights and their blocks.
        workers: how many workers there are.
        is_dense: whether answers change every entry; then no variable is needed.
    """

    def __init__(self, layout: Layout, workers: int, is_dense: bool):
        self.layout, self.is_dense = layout, is_dense
        self._held = Shelf([None] * workers)

    def furnish(self, worker: int) -> None:
        """Makes the variable of `worker`, on the device this is called under."""
        if not self.is_dense:
            self._held.put(worker, Vector(tf.float32))

    def hold(self, values: list[tf.Tensor]) -> list[Callable[[tf.Tensor | None], tf.Tensor]]:
        """Takes one value per variable; returns for each block a function: entries -> the weights there."""
        flat = self.layout.join(values)
        if self.is_dense:
            return [lambda index, block=block: block for block in self.layout.cut(flat)]
        self._held.write(flat)
        return [lambda index, start=start: self._held.take(index + start) for start in self.layout.starts]

    def change(self, afters: list[Entries]) -> list[tf.Tensor]:
        """Overwrites entries of each block; returns the blocks, f32[n_j] each, and lets go of them."""
        if self.is_dense:
            return [after.value for after in afters]
        index = tf.concat([after.index + start for after, start in zip(afters, self.layout.starts)], 0)
        self._held.write(Entries(index, tf.concat([after.value for after in afters], 0)))
        flat = self._held.read()
        flat.set_shape([self.layout.entries])
        self._held.write(tf.zeros([0]))
        return self.layout.cut(flat)
