"""The contract of agreements."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from slimdp_tf.testing.contract import Contract, draw_eighths, require
from slimdp_tf.types import Agreement, anywhere


class AgreementContract(Contract):
    """Of `types.Agreement`: ascending keys of every block, and what the selectors are told of them.

    Attributes:
        is_global: the keys do not depend on how the model is cut into blocks.
    """

    is_global = True
    cuts = ([24], [8, 8, 8], [1, 22, 1])

    def test_keys_are_ascending_positions_of_their_block(self):
        for rule in self.rules():
            for sizes in self.cuts:
                for keys, size in zip(_refresh(rule, *_draw(sizes)), sizes):
                    require(keys.dtype == np.int32 and keys.ndim == 1, f"{rule}: {keys!r} is not i32[c]")
                    require((np.diff(keys) > 0).all(), f"{rule}: {keys} is not ascending")
                    require(all(0 <= key < size for key in keys), f"{rule}: {keys} is beyond {size}")

    def test_keys_are_the_same_however_the_model_is_cut(self):
        for rule in self.rules() if self.is_global else []:
            for blank in (False, True):
                found = [_flatten(_refresh(rule, *_draw(sizes, blank)), sizes) for sizes in self.cuts]
                for keys in found[1:]:
                    np.testing.assert_array_equal(keys, found[0], f"{rule} depends on the cut")

    def test_traced_and_eager_agree(self):
        for rule in self.rules():
            for sizes in self.cuts[1:2]:
                values, updates = _draw(sizes)
                traced = tf.function(lambda v, u, rule=rule: rule.refresh(v, u, anywhere))(values, updates)
                for one, other in zip(_refresh(rule, values, updates), traced):
                    np.testing.assert_array_equal(one, other, f"{rule} does otherwise when traced")

    def test_tells_every_block_its_share(self):
        for rule in self.rules():
            for sizes in self.cuts:
                keys = [tf.range(size // 3, dtype=tf.int32) for size in sizes]
                before, outside = 0, sum(size - size // 3 for size in sizes)
                for core, size, agreed in zip(keys, sizes, rule.agree(keys, sizes, anywhere)):
                    np.testing.assert_array_equal(agreed["core"], core, f"{rule}")
                    here = size - size // 3
                    np.testing.assert_array_equal(agreed["share"], [before, here, outside, sum(sizes)], f"{rule}")
                    before += here

    def test_says_when(self):
        for rule in self.rules():
            require(isinstance(rule.period, int) and rule.period >= 0, f"{rule}: period {rule.period!r}")
            require(isinstance(rule.whole, bool), f"{rule}: whole {rule.whole!r}")


def _draw(sizes: list[int], is_blank: bool = False) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Weights and updates of every block, many of them equal, or all of them where `is_blank`."""
    weights, updates = (tf.round(draw_eighths(sum(sizes), number)) for number in (1, 2))
    if is_blank:
        weights, updates = tf.ones_like(weights), tf.zeros_like(updates)
    return tf.split(weights, sizes), tf.split(updates, sizes)


def _refresh(rule: Agreement, values: list[tf.Tensor], updates: list[tf.Tensor]) -> list[np.ndarray]:
    return [keys.numpy() for keys in rule.refresh(values, updates, anywhere)]


def _flatten(keys: list[np.ndarray], sizes: list[int]) -> np.ndarray:
    """Positions in the blocks -> positions in the model."""
    return np.concatenate([k + sum(sizes[:j]) for j, k in enumerate(keys)])
