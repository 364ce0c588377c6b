"""The contract of memories."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from slimdp_tf.testing.contract import Contract, draw_eighths, require
from slimdp_tf.types import Entries, Memory, edited, taken, written


class MemoryContract(Contract):
    """Of `types.Memory`: the update is anchor - local, and sent + kept = recalled.

    Attributes:
        keeps_everything: what was not sent, or was decoded otherwise, is recalled again.
    """

    keeps_everything = True
    size = 12

    def test_recalls_what_was_done(self):
        local, moved = draw_eighths(self.size, 1), draw_eighths(self.size, 2)
        for rule in self.rules():
            state = rule.init(local)
            np.testing.assert_array_equal(rule.recall(state, local, None), np.zeros(self.size), f"{rule}")
            for index in (None, tf.constant([5, 2], tf.int32), tf.zeros([0], tf.int32)):
                np.testing.assert_array_equal(rule.recall(state, local - moved, index), taken(moved, index), f"{rule}")

    def test_sent_and_kept_is_recalled(self):
        for rule in self.rules() if self.keeps_everything else []:
            done = sent = 0.0
            for moved, before, pushed, kept, after in self._walk(rule):
                done, sent = done + moved, sent + pushed
                np.testing.assert_array_equal(pushed + kept, before, f"{rule} loses at a push")
                np.testing.assert_array_equal(kept, after, f"{rule}: a pull changed what is unsent")
                np.testing.assert_array_equal(sent + after, done, f"{rule}: sent + kept is not what was done")

    def test_keeps_shapes_and_dtypes(self):
        for rule in self.rules():
            for _, before, _, kept, after in self._walk(rule):
                require(before.shape == kept.shape == after.shape == (self.size,), f"{rule} changed a shape")

    def test_traced_and_eager_agree(self):
        for rule in self.rules():
            eager, traced = (list(self._walk(rule, wrap)) for wrap in (lambda verb: verb, tf.function))
            for one, other in zip(eager, traced):
                np.testing.assert_array_equal(one, other, f"{rule} does otherwise when traced")

    def _walk(self, rule, wrap: Callable = lambda verb: verb):
        """Per round: what was done, recalled before the push, decoded, recalled after the push and after the pull."""
        push, pull, local = wrap(_push(rule)), wrap(_pull(rule)), draw_eighths(self.size, 0)
        state = rule.init(local)
        shapes = {name: (tensor.shape, tensor.dtype) for name, tensor in state.items()}
        for number, index in enumerate(([0, 3, 7], [], None, [11, 2], None, [5])):
            index = index if index is None else tf.constant(index, tf.int32)
            moved = draw_eighths(self.size, 10 + number)
            local = local - moved
            before, decoded, local, state = push(state, local, index)
            kept = rule.recall(state, local, None)
            local, state = pull(state, local, index, taken(draw_eighths(self.size, 20 + number), index))
            found = {name: (tensor.shape, tensor.dtype) for name, tensor in state.items()}
            require(found == shapes, f"{rule} made its state {shapes} into {found}")
            sent = written(tf.zeros([self.size]), Entries(index, decoded))
            yield tuple(np.asarray(t) for t in (moved, before, sent, kept, rule.recall(state, local, None)))


def _push(rule: Memory) -> Callable:
    """(state, local, index) -> all that is recalled, what the receiver decodes, the new local, the new state."""

    def push(state, local, index):
        recalled = rule.recall(state, local, None)
        wanted = rule.recall(state, local, index)
        decoded = tf.round(wanted)  # a coarse codec, exact in binary
        edits = rule.keep(state, local, Entries(index, wanted), Entries(index, decoded))
        local = edits.pop("local") if rule.returns else local
        return recalled, decoded, local, edited(state, edits)

    return push


def _pull(rule: Memory) -> Callable:
    """(state, local, index, pulled values) -> the new local block and the new state."""

    def pull(state, local, index, pulled):
        before, after = Entries(index, taken(local, index)), Entries(index, pulled)
        local = written(local, after)
        return local, edited(state, rule.rebase(state, local, before, after, after))

    return pull
