"""What all contracts share, and that a contract without rules is none."""

from __future__ import annotations

import numpy as np
import pytest

from slimdp_tf import testing
from slimdp_tf.testing.contract import draw_eighths, draw_normal, make_seed, require

CONTRACTS = [getattr(testing, name) for name in testing.__all__]


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda c: c.__name__)
def test_asks_for_rules(contract):
    assert issubclass(contract, testing.Contract)
    with pytest.raises(TypeError, match="abstract.*rules"):
        contract()


def test_require_says_what_was_found():
    require(True, "never said")
    with pytest.raises(AssertionError, match="three is not four"):
        require(False, "three is not four")


def test_draws_are_always_the_same():
    for draw in (draw_normal, draw_eighths):
        np.testing.assert_array_equal(draw(9, 1), draw(9, 1))
        assert (draw(9, 1).numpy() != draw(9, 2).numpy()).any()
        assert draw(0).shape == [0]
    assert (draw_eighths(50).numpy() * 8 % 1 == 0).all()
    assert (make_seed(1).numpy() != make_seed(2).numpy()).any()
