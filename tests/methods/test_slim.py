"""Slim-DP: which rules each combination of options is, and what is refused."""

from __future__ import annotations

import pytest

from slimdp_tf import methods
from slimdp_tf.rules.agreements import Nothing, SignificantCore
from slimdp_tf.rules.codecs import Qsgd, Raw
from slimdp_tf.rules.memories import Carry, Forget
from slimdp_tf.rules.merges import Average
from slimdp_tf.rules.selectors import Core, Dense, Explore, Pushed


def test_is_the_paper_s_by_default():
    method = methods.slim(0.2, 0.1, p=4, q=50)
    assert method.up.selectors == (Core(), Explore(0.1, keyed=True))
    assert method.down.selectors == (Pushed(),)
    assert (method.up.codec, method.up.memory, method.merge) == (Raw(), Forget(), Average("workers"))
    assert method.agreement == SignificantCore(0.1, 50, "auto")
    assert method.agreement.whole and method.p == 4


def test_options_choose_the_rules():
    method = methods.slim(0.2, 0.1, c=2.0, memory="carry", average="contributors", explorer_keys="derived")
    assert method.up.selectors == (Core(), Explore(0.1, keyed=False))
    assert (method.up.memory, method.merge) == (Carry(), Average("contributors"))
    assert method.agreement == SignificantCore(0.1, 1000, 2.0, waited=method.agreement.waited)
    assert method.agreement.waited == pytest.approx(0.9 / 0.1)  # (1 - beta) / (alpha - beta) rounds until its turn


def test_waiting_ends_with_the_whole_round():
    assert methods.slim(0.2, 0.1, q=4, memory="carry").agreement.waited == 4.0
    assert methods.slim(0.2, 0.2, q=7, memory="carry").agreement.waited == 7.0
    assert methods.slim(0.2, 0.1, q=4).agreement.waited == 1.0  # what is forgotten does not wait


def test_explores_only_or_exploits_only():
    explorer = methods.slim(0.2, 0.0)
    assert (explorer.up.selectors, explorer.agreement) == ((Explore(0.2),), Nothing())
    core = methods.slim(0.2, 0.2)
    assert (core.up.selectors, core.agreement.beta) == ((Core(),), 0.2)


@pytest.mark.parametrize(
    ("alpha", "beta", "keys", "is_dense"),
    [
        (1.0, 1.0, "sent", True),  # (2 alpha - beta) n words: 1 n
        (0.6, 0.2, "sent", True),  # 1.0 n
        (0.6, 0.3, "sent", False),  # 0.9 n
        (0.6, 0.2, "derived", False),  # alpha n = 0.6 n
        (1.0, 0.0, "derived", True),
    ],
)
def test_goes_dense_where_that_costs_no_more(alpha, beta, keys, is_dense):
    method = methods.slim(alpha, beta, explorer_keys=keys)
    assert (method.up.selectors == (Dense(),)) == is_dense
    assert method.up.is_dense == method.down.is_dense == is_dense
    assert (method.agreement == Nothing()) == is_dense


def test_slim_quant_is_slim_with_qsgd():
    method = methods.slim_quant(0.2, 0.1, bits=4, bucket=64)
    assert method.up.codec == Qsgd(4, 64)
    assert method.up.selectors == (Core(), Explore(0.1, keyed=False))
    assert (method.up.memory, method.merge) == (Carry(), Average("contributors"))
    assert (method.down.codec, method.down.selectors) == (Raw(), (Pushed(),))


@pytest.mark.parametrize(
    ("minibatches", "p", "rounds"), [(20000, 1, 20000), (20000, 4, 5000), (10, 3, 4), (9, 3, 3), (1, 16, 1)]
)
def test_q_in_rounds(minibatches, p, rounds):
    assert methods.rounds(minibatches, p) == rounds


@pytest.mark.parametrize(
    ("minibatches", "p", "message"),
    [
        (0, 1, "minibatches must be an integer of at least 1. Received: 0"),
        ("20", 1, "minibatches must be an integer of at least 1. Received: '20'"),
        (float("nan"), 1, "minibatches must be an integer of at least 1. Received: nan"),
        (20, 0, "p must be an integer of at least 1. Received: 0"),
        (20, True, "p must be an integer of at least 1. Received: True"),
    ],
)
def test_rounds_refuses(minibatches, p, message):
    with pytest.raises(ValueError, match=message):
        methods.rounds(minibatches, p)


@pytest.mark.parametrize("factory", [methods.slim, methods.slim_quant], ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        *[({"alpha": a}, r"alpha must be a share within \(0, 1\]\. Received: ") for a in (0, -0.1, 1.1, "0.2", True)],
        ({"alpha": float("nan")}, r"alpha must be a share within \(0, 1\]\. Received: nan"),
        ({"alpha": None}, r"alpha must be a share within \(0, 1\]\. Received: None"),
        ({"alpha": 0.2, "beta": 0.3}, r"beta must be within \[0, alpha\] = \[0, 0.2\]\. Received: 0.3"),
        *[({"beta": b}, r"beta must be within \[0, alpha\] = .* Received: ") for b in (-0.1, "0", False, float("nan"))],
        *[({"q": q}, r"q, the rounds .* integer of at least 1\. Received: ") for q in (0, 2.5, "10", True)],
        *[({"p": p}, r"p, the mini-batches .* integer of at least 1\. Received: ") for p in (0, 1.5, "4", True)],
        *[({"c": c}, r"c, the weight of \|g\|.* Received: ") for c in (-1, float("inf"), float("nan"), "1", True)],
        ({"memory": "drop"}, "memory must be 'forget' or 'carry'. Received: 'drop'"),
        ({"average": "all"}, "average must be over 'workers' or 'contributors'. Received: 'all'"),
        ({"explorer_keys": None}, "explorer_keys must be 'sent' or 'derived'. Received: None"),
    ],
)
def test_refuses(factory, options, message):
    with pytest.raises(ValueError, match=message):
        factory(**options)


@pytest.mark.parametrize("options", [{"bits": 1}, {"bits": 9}, {"bucket": 0}])
def test_slim_quant_refuses_what_qsgd_refuses(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be an integer .* Received: "):
        methods.slim_quant(**options)
