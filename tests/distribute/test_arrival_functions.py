"""The merge of one push is traced once, and tells what became of it."""

import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf import methods
from slimdp_tf.distribute.local_variable import standing_on
from slimdp_tf.inspection import ABSENT
from tests.distribute.one_process import Drill

pytestmark = pytest.mark.slow


def test_one_trace_serves_all_workers():
    drill = Drill(methods.slim(0.5, 0.25, q=2, pacing="async"), [np.ones(8)], 2, 2, np.ones((2, 8)))
    drill.run(), drill.run()
    functions = drill.rounds.binding.functions
    assert functions.merge_one(False) is functions.merge_one(False) is not functions.merge_one(True)
    assert functions.refresh() is functions.refresh()
    for worker in range(2):
        with standing_on(worker):
            verdict, core = functions.merge_one(False)(
                tf.constant(99, tf.int64), tf.constant(worker), tf.constant([True, True])
            ).numpy()
        assert (verdict, core) == (ABSENT, 2)
    np.testing.assert_array_equal(drill.values().shape, [8])
