"""The contract of adoptions."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from slimdp_tf.testing.contract import Contract, draw_normal, require


class AdoptContract(Contract):
    """Of `types.Adopt`: every entry by itself."""

    def test_takes_every_entry_by_itself(self):
        local, incoming = draw_normal(7, 1), draw_normal(7, 2)
        for rule in self.rules():
            whole = rule.adopt(local, incoming)
            require(whole.dtype == tf.float32 and whole.shape == [7], f"{rule} makes f32[7] into {whole}")
            for index in ([], [3], [6, 0, 2]):
                part = rule.adopt(
                    tf.gather(local, tf.constant(index, tf.int32)), tf.gather(incoming, tf.constant(index, tf.int32))
                )
                np.testing.assert_array_equal(part, whole.numpy()[index], f"{rule}")
            np.testing.assert_array_equal(rule.adopt(local, local), local, f"{rule} changes what both ends hold")
            np.testing.assert_array_equal(tf.function(rule.adopt)(local, incoming), whole, f"{rule}, traced")
