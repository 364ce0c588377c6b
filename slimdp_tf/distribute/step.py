"""One local step of training, traced once for all workers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from slimdp_tf.distribute import _tf


@dataclasses.dataclass(eq=False)
class Step:
    """One local step.

    Attributes:
        function: (elements, one per iterator; further tensors) -> list of tensors.
        element_specs: the element_spec of each iterator.
        argument_specs: specs of the further tensors.
        is_repeatable: whether `function` gives one f64[m] and may run p times in a loop.
        has_loss: whether the first of a repeatable step's f64[m] is the loss; of several steps it is the mean.
    """

    function: Callable
    element_specs: list
    argument_specs: list[tf.TensorSpec]
    is_repeatable: bool
    has_loss: bool = False

    @property
    def handle_specs(self) -> list[tf.TensorSpec]:
        """Specs of the iterators' handles."""
        return [tf.TensorSpec([], tf.resource) for _ in self.element_specs]

    def trace(self):
        """The concrete function (iterator handles, tensors, steps i32[]) -> (steps done i32[], outputs)."""
        run = self._repeat if self.is_repeatable else self._once
        return tf.function(run, autograph=False).get_concrete_function(
            self.handle_specs, self.argument_specs, tf.TensorSpec([], tf.int32)
        )

    def _once(self, handles, arguments, steps):
        elements = [_tf.iterator_behind(h, spec).get_next() for h, spec in zip(handles, self.element_specs)]
        outputs = self.function(elements, arguments)
        with tf.control_dependencies(outputs):
            return tf.ones([], tf.int32), [tf.identity(output) for output in outputs]

    def _repeat(self, handles, arguments, steps):
        """Up to `steps` steps; ends early where the data does. The outputs are those of the last step."""
        iterator = _tf.iterator_behind(handles[0], self.element_specs[0])

        def body(done, is_going, outputs):
            optional = iterator.get_next_as_optional()

            def step():
                new = self.function([optional.get_value()], arguments)[0]
                if self.has_loss:
                    mean = tf.reduce_sum(outputs[:1])  # of the steps so far; 0 before the first, which has no outputs
                    mean += (new[0] - mean) / tf.cast(done + 1, tf.float64)
                    new = tf.concat([mean[None], new[1:]], 0)
                return done + 1, tf.constant(True), new

            return tf.cond(optional.has_value(), step, lambda: (done, tf.constant(False), outputs))

        done, _, outputs = tf.while_loop(
            lambda done, is_going, outputs: is_going & (done < steps),
            body,
            [tf.zeros([], tf.int32), tf.constant(True), tf.zeros([0], tf.float64)],
            shape_invariants=[tf.TensorShape([]), tf.TensorShape([]), tf.TensorShape([None])],
        )
        return done, [outputs]
