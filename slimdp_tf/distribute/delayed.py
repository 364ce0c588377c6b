"""Exchanging a copy of the weights while the weights themselves are trained on.

x: the weights; l: the copy that is exchanged; b: x when l was copied from it. An exchange pushes l and adopts into l.
When it has ended, what it changed is taken over, and what was trained meanwhile is kept and exchanged next:

    x <- l + (x - b);  l <- x;  b <- x
"""

from __future__ import annotations

import tensorflow as tf

from slimdp_tf.distribute.local_variable import Shelf, Vector
from slimdp_tf.distribute.shared import Shared


class DelayedShared(Shared):
    """A method on a copy of some variables; see `Shared`."""

    def __init__(self, method, variables, devices, workers, seed):
        self._copy, self._begun, self._note = (Shelf([None] * len(workers)) for _ in range(3))
        super().__init__(method, variables, devices, workers, seed)

    def read_local(self) -> list[tf.Tensor]:
        flat = self._copy.read()
        flat.set_shape([self.layout.entries])
        return self.layout.restore(self.layout.cut(flat))

    def write_local(self, values: list[tf.Tensor]) -> None:
        self._copy.write(self.layout.join(values))

    def take_over(self, is_new: bool, is_healed: bool = False) -> tf.Tensor:
        """Ends an exchange and makes the next one's copy.

        Args:
            is_new: whether the worker here has nothing but what it has just pulled.
            is_healed: whether its update was refused as not finite: what is not finite is not kept.

        Returns:
            The weights, f32[n].
        """
        flat = self._copy.read()
        flat.set_shape([self.layout.entries])
        if not is_new:
            moved = self.layout.join(super().read_local()) - self._begun.read()
            flat = flat + (tf.where(tf.math.is_finite(moved), moved, tf.zeros_like(moved)) if is_healed else moved)
        super().write_local(self.layout.restore(self.layout.cut(flat)))
        self._copy.write(flat)
        self._begun.write(flat)
        return flat

    def begin_here(self) -> None:
        flat = self.layout.join(super().read_local())
        self._copy.write(flat)
        self._begun.write(flat)

    def read_note(self) -> tf.Tensor:
        """Loss and steps behind the update that is about to be pushed, f32[2]."""
        return self._note.read()

    def write_note(self, note: tf.Tensor) -> None:
        """Sets what `read_note` reads."""
        self._note.write(note)

    def _furnish(self, worker: int) -> None:
        super()._furnish(worker)
        with tf.device(self.workers.devices[worker]):
            self._copy.put(worker, Vector(tf.float32))
            self._begun.put(worker, Vector(tf.float32))
            self._note.put(worker, tf.Variable(tf.zeros([2]), trainable=False))
