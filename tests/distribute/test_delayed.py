"""The copy that is exchanged while its original is trained on; `test_overlapped.py` has whole rounds."""

import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf import methods
from slimdp_tf.distribute.local_variable import standing_on
from slimdp_tf.distribute.roles import Role
from tests.distribute.test_overlapped import make_drill
from tests.distribute.test_rounds import FLAT


@pytest.mark.slow
def test_what_was_trained_meanwhile_is_kept_and_exchanged_next():
    """x = l + (x - b): the copy was moved by +1, the weights meanwhile by +10."""
    drill = make_drill(methods.plump(p=2))
    drill.run()
    shared = drill.rounds.cache.shared[Role.WEIGHT]

    def turn():
        begun = shared.layout.join([v.value() for v in shared.layout.variables])
        shared.write_local([value + 1.0 for value in shared.read_local()])
        for variable in shared.layout.variables:
            variable.assign_add(tf.fill(variable.shape, 10.0))
        return begun, shared.take_over(is_new=False), shared.layout.join(shared.read_local())

    with standing_on(0):
        begun, taken, copied = tf.function(turn, autograph=False).get_concrete_function()()
    np.testing.assert_allclose(taken - begun, np.full(FLAT.size, 11.0), atol=1e-5)
    np.testing.assert_array_equal(taken, copied)
