"""Quant-DP: updates in QSGD, weights as they are unless asked otherwise."""

from __future__ import annotations

import pytest

from slimdp_tf import methods
from slimdp_tf.rules.codecs import Qsgd, Raw
from slimdp_tf.rules.memories import Carry, Forget


def test_is_the_paper_s_by_default():
    method = methods.quant()
    assert method.up.codec == Qsgd(8, 512, "max")
    assert (method.up.memory, method.up.is_dense, method.up.carries) == (Forget(), True, "update")
    assert (method.down.codec, method.down.is_dense, method.down.carries) == (Raw(), True, "weights")


def test_a_quantised_pull_carries_the_server_s_update():
    method = methods.quant(p=2, bits=4, bucket=64, quantize_pull=True)
    assert method.up.codec == method.down.codec == Qsgd(4, 64)
    assert (method.down.carries, method.down.memory, method.p) == ("update", Carry(), 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bits": 1}, "bits must be an integer from 2 to 8 .* Received: 1"),
        ({"bits": 9}, "bits must be an integer from 2 to 8 .* Received: 9"),
        ({"bits": "8"}, "bits must be an integer from 2 to 8 .* Received: '8'"),
        ({"bucket": 0}, "bucket must be an integer of at least 1. Received: 0"),
        ({"quantize_pull": "False"}, "quantize_pull must be True or False. Received: 'False'"),
        ({"quantize_pull": 1}, "quantize_pull must be True or False. Received: 1"),
        ({"p": 0}, "p, the mini-batches per round, .* Received: 0"),
    ],
)
def test_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        methods.quant(**options)
