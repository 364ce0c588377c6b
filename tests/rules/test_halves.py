"""Half: 16 bits per value, to the nearest."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf.exchange import payload_bytes
from slimdp_tf.rules.halves import Half
from slimdp_tf.testing import CodecContract
from slimdp_tf.testing.contract import make_halves

SEED = tf.constant([1, 2], tf.int32)


class TestHalf(CodecContract):
    is_unbiased = False
    is_random = False

    def rules(self):
        return [Half(), Half("float16")]


def decode(codec, values) -> list[float]:
    return codec.decode(codec.encode(tf.constant(values, tf.float32), SEED), len(values)).numpy().tolist()


def test_float16_sends_what_float16_holds_exactly():
    for values in make_halves():
        np.testing.assert_array_equal(decode(Half("float16"), values), values)


def test_by_hand():
    # bfloat16 has 8 bits: between 1 and 2 steps of 1/128. float16 has 11: steps of 1/1024.
    assert decode(Half(), [1.0 + 1 / 128, 1.0 + 0.7 / 128, 1e30]) == pytest.approx(
        [1 + 1 / 128, 1 + 1 / 128, 1e30], rel=5e-3
    )
    assert decode(Half(), [1.0 + 1 / 128, 1.0 + 0.7 / 128])[0] == decode(Half(), [1.0 + 0.7 / 128])[0] == 1 + 1 / 128
    assert decode(Half("float16"), [1.0 + 1 / 1024, 1e30, -1e30]) == [1 + 1 / 1024, 65504.0, -65504.0]


def test_takes_two_bytes():
    for dtype in ("bfloat16", "float16"):
        assert [int(b) for b in payload_bytes(Half(dtype).encode(tf.ones([7]), SEED))] == [14, 0]


def test_what_is_none_stays_none():
    assert np.isnan(decode(Half("float16"), [np.nan])).all()


@pytest.mark.parametrize("dtype", ["float32", "half", None])
def test_refuses(dtype):
    with pytest.raises(ValueError, match="dtype must be 'bfloat16' or 'float16'. Received: "):
        Half(dtype)
