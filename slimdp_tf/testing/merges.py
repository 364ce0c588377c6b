"""The contract of merges."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from slimdp_tf.testing.contract import Contract, draw_normal, require
from slimdp_tf.types import Entries, Merge, Note, edited, reduced


class MergeContract(Contract):
    """Of `types.Merge`: only what present workers sent counts, whoever comes first.

    Attributes:
        is_order_free: the order of the workers does not matter (but for rounding).
    """

    is_order_free = True
    size = 9

    def test_nothing_sent_nothing_changes(self):
        nothing = [(None, [0.0] * 9), ([], []), ([4, 1], [0.0, 0.0])]
        for rule in self.rules():
            for pushes in ([nothing[0]] * 3, [nothing[1]] * 3, nothing, [nothing[2]]):
                for present in (True, False):
                    merged = self._merge(rule, pushes, [present] * len(pushes))
                    np.testing.assert_array_equal(merged, self._value(), f"{rule}")

    def test_absent_workers_count_for_nothing(self):
        for rule, pushes in self._list_pushes():
            alone = self._merge(rule, pushes, [True] * len(pushes))
            absent = (None, [0.0] * 9) if pushes[0][0] is None else ([], [])
            for place in range(len(pushes) + 1):
                presence = [True] * len(pushes)
                presence.insert(place, False)
                merged = self._merge(rule, [*pushes[:place], absent, *pushes[place:]], presence)
                np.testing.assert_array_equal(merged, alone, f"{rule} counts an absent worker")

    def test_order_of_workers_does_not_matter(self):
        for rule, pushes in self._list_pushes() if self.is_order_free else []:
            one, other = (self._merge(rule, order, [True] * len(pushes)) for order in (pushes, pushes[::-1]))
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6, err_msg=f"{rule} depends on the order")

    def test_makes_no_number_of_what_is_none(self):
        for rule in self.rules():
            for bad in ((None, [np.nan] * 9), ([4], [np.inf])):
                merged = self._merge(rule, [bad, (None, [1.0] * 9)], [True, True])
                require(not np.isfinite(merged[4]), f"{rule} makes {bad} into {merged[4]}")

    def test_traced_and_eager_agree(self):
        for rule, pushes in self._list_pushes():
            eager, traced = (self._merge(rule, pushes, [True] * len(pushes), w) for w in (lambda v: v, tf.function))
            require(eager.dtype == traced.dtype == np.float32 and eager.shape == (9,), f"{rule} changed shape or dtype")
            require(eager.tobytes() == traced.tobytes(), f"{rule} merges otherwise when traced")

    def _value(self) -> tf.Tensor:
        return draw_normal(self.size)

    def _list_pushes(self):
        dense = [(None, draw_normal(9, number).numpy()) for number in range(3)]
        sparse = [([0, 4], [1.0, 0.3]), ([4, 8, 2], [0.7, -0.1, 0.5]), ([], [])]
        for rule in self.rules():
            yield from ((rule, pushes) for pushes in (dense, sparse, [dense[0], *sparse], dense[:1], sparse[:1]))

    def _merge(self, rule, pushes: list, presence: list[bool], wrap: Callable = lambda verb: verb) -> np.ndarray:
        value = self._value()
        incoming = [(None if i is None else tf.constant(i, tf.int32), tf.constant(v, tf.float32)) for i, v in pushes]
        return wrap(_fold(rule))(rule.init(value), value, incoming, [tf.constant(p) for p in presence]).numpy()


def _fold(rule: Merge) -> Callable:
    """(state, value, pushes, presence) -> the block after the merge."""

    def fold(state, value, pushes, presence):
        incoming = [Entries(index, sent) for index, sent in pushes]
        notes = [Note(present, tf.constant(1.0), tf.constant(1)) for present in presence]
        increments, edits = rule.merge(state, value, incoming, notes)
        edited(state, edits)
        for increment in increments:
            value = reduced(value, increment)
        return value

    return fold
