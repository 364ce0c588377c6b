"""Plump-DP: everything both ways."""

from __future__ import annotations

import pytest

from slimdp_tf import methods
from slimdp_tf.method import Method
from slimdp_tf.rules.agreements import Nothing
from slimdp_tf.rules.merges import Average
from slimdp_tf.rules.triggers import Every

PACING = {"pacing": "sync", "staleness": 4}


def test_everything_travels_as_it_is():
    method = methods.plump(4)
    assert method == Method("plump", trigger=Every(4))
    assert method.up.is_dense and method.down.is_dense
    assert (method.up.carries, method.down.carries) == ("update", "weights")
    assert (method.merge, method.agreement, method.p) == (Average("workers"), Nothing(), 4)


def test_options_of_every_method_are_its_parameters():
    assert methods.names()[:4] == ["plump", "quant", "slim", "slim_quant"]
    assert sorted(methods.names()) == sorted(set(methods.__all__) - {"names", "options", "rounds"})
    assert methods.options("plump") == {"p": 1, **PACING}
    assert methods.options("quant") == {"p": 1, "bits": 8, "bucket": 512, "quantize_pull": False, **PACING}
    for name in methods.names():
        assert getattr(methods, name)(**methods.options(name)) == getattr(methods, name)()


def test_refuses_an_unknown_method():
    with pytest.raises(ValueError, match=r"Known methods: plump, quant, slim, slim_quant, .*\. Received: 'slimm'"):
        methods.options("slimm")


@pytest.mark.parametrize("p", [0, -1, 1.5, "4", True, None])
def test_refuses_p(p):
    with pytest.raises(ValueError, match=r"p, the mini-batches per round, .* at least 1\. Received: "):
        methods.plump(p)
