"""The functions of a worker whose exchange runs beside its local steps."""

from __future__ import annotations

import tensorflow as tf

from slimdp_tf.distribute.roles import Role
from slimdp_tf.distribute.round_functions import REST, RoundFunctions, do_nothing, no_bytes, time_after
from slimdp_tf.distribute.step import Step


class OverlapFunctions(RoundFunctions):
    """Traces what workers do in either half of a round; the merge is the same as without overlap.

    In the first half the copy is pushed, in the second the answer is adopted into it; nothing orders this and the local
    steps, so both run at once.
    """

    def half(self, step: Step, local_steps, pull: str | None, push: str | None, end: str | None):
        """The concrete function (handles, tensors, steps, round, worker) -> [report, *outputs]; see `worker`.

        Args:
            step, local_steps, pull, push: as in `worker`.
            end: None in the first half; "over": the exchange is over and taken over; "new": the same for a worker that
                has nothing but what it has just pulled; "healed": for one whose update was not finite.
        """
        key = (step, pull, push, end)
        if key not in self._traced:
            scalar = tf.TensorSpec([], tf.int32)
            self._traced[key] = tf.function(
                lambda *arguments: self._half(step, local_steps, pull, push, end, *arguments), autograph=False
            ).get_concrete_function(step.handle_specs, step.argument_specs, scalar, scalar, scalar)
        return self._traced[key]

    def still(self, pull: str | None, push: str | None, end: str | None):
        """As `half`, without local steps: no iterators, no tensors."""
        return self.half(REST, do_nothing, pull, push, end)

    def rest(self, pull: str):
        return self.still(pull, None, "new")

    def _half(self, step, local_steps, pull, push, end, handles, arguments, steps, number, worker):
        shared = list(self.cache.shared.values())
        begun = tf.timestamp()
        done, outputs = local_steps(handles, arguments, steps)
        loss = tf.reduce_sum(outputs[0][:1]) if step.has_loss else tf.constant(float("nan"), tf.float64)
        trained_at = time_after([done, *outputs])
        pulled, matches = [no_bytes(s) for s in shared], tf.zeros([3], tf.int64)
        pushed, explored, is_still = [no_bytes(s) for s in shared], tf.zeros([], tf.int64), tf.constant(False)
        note = shared[0].read_note()
        if push is not None:  # a worker that had no data has nothing to say
            nothing = [*pushed, explored, is_still]
            *pushed, explored, is_still = tf.cond(
                note[1] > 0, lambda: self._push(number, worker, push, note), lambda: nothing
            )
        if pull is not None:
            *pulled, matches = self._adopt(number, worker, pull)
        exchanged_at = time_after([*pushed, *pulled, matches, explored, is_still])
        shown_s = tf.maximum(exchanged_at - trained_at, 0.0)  # of the exchange: what the steps did not hide
        if end is not None:
            with tf.control_dependencies([trained_at, exchanged_at]):
                taken = [s.take_over(end == "new", end == "healed") for s in shared]
            shown_s += time_after(taken) - tf.maximum(exchanged_at, trained_at)
        own = tf.stack([tf.cast(loss, tf.float32), tf.cast(done, tf.float32)])
        shared[0].write_note(own if end is None else _both(note, own))
        none = tf.zeros([], tf.float64)
        seconds = [shown_s if pull else none, trained_at - begun, none if pull else shown_s]
        counts = tf.concat([tf.concat([out, into], 1) for out, into in zip(pushed, pulled)], 0)
        metrics = [v.value() for v in self.cache.of_role(Role.SUM)]
        numbers = [seconds, done, loss, counts, matches, explored, is_still, *metrics]
        return [tf.concat([tf.reshape(tf.cast(n, tf.float64), [-1]) for n in numbers], 0), *outputs]


def _both(first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
    """Mean loss and steps of two halves, f32[2] each."""
    steps = first[1] + second[1]
    parts = [tf.where(half[1] > 0, half[0] * half[1], 0.0) for half in (first, second)]
    return tf.stack([tf.math.divide_no_nan(parts[0] + parts[1], steps), steps])
