"""Halves of a round as graphs."""

import numpy as np
import pytest

from slimdp_tf import methods
from slimdp_tf.distribute.overlap_functions import _both
from tests.distribute.test_overlapped import make_drill


@pytest.mark.slow
def test_one_trace_serves_all_workers_and_rounds():
    drill = make_drill(methods.plump(p=2))
    for _ in range(3):
        drill.run()
    known = len(drill.rounds.binding.functions._traced)
    for _ in range(3):
        drill.run()
    assert len(drill.rounds.binding.functions._traced) == known


def test_the_note_of_a_round_is_that_of_both_halves():
    np.testing.assert_allclose(_both(np.float32([2.0, 3]), np.float32([4.0, 1])), [2.5, 4])
    np.testing.assert_allclose(_both(np.float32([np.nan, 0]), np.float32([4.0, 1])), [4.0, 1])
    np.testing.assert_allclose(_both(np.float32([np.nan, 0]), np.float32([np.nan, 0])), [0.0, 0])
