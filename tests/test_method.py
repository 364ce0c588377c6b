"""A method is data: it says when it refreshes, prints and compares, and refuses parts that do not fit."""

from __future__ import annotations

import dataclasses

import pytest

from slimdp_tf import methods
from slimdp_tf.channel import Channel
from slimdp_tf.method import Method
from slimdp_tf.rules.adoptions import Replace
from slimdp_tf.rules.agreements import SignificantCore
from slimdp_tf.rules.codecs import Qsgd
from slimdp_tf.rules.merges import Average
from slimdp_tf.rules.residuals import Residual
from slimdp_tf.rules.selectors import Core
from slimdp_tf.rules.triggers import Every


def list_rounds(is_in_round) -> list[int]:
    return [number for number in range(12) if is_in_round(number)]


def test_refreshes_after_round_0_and_when_q_divides_the_next():
    method = Method("mine", agreement=SignificantCore(0.1, 4))
    assert list_rounds(method.refreshes) == [0, 3, 7, 11]
    assert list_rounds(method.pushes_whole) == [0, 3, 7, 11]
    assert list_rounds(method.pulls_whole) == [0]


def test_q_of_one_refreshes_after_every_round():
    method = Method("mine", agreement=SignificantCore(0.1, 1))
    assert list_rounds(method.refreshes) == list(range(12))
    assert list_rounds(method.pulls_whole) == [0]


def test_without_agreement_there_is_nothing_to_refresh():
    method = Method("mine")
    for is_in_round in (method.refreshes, method.pushes_whole, method.pulls_whole):
        assert list_rounds(is_in_round) == []


def test_an_agreement_need_not_ask_for_whole_pushes():
    @dataclasses.dataclass(frozen=True)
    class Guess(SignificantCore):
        whole = False

    method = Method("mine", agreement=Guess(0.1, 4))
    assert list_rounds(method.refreshes) == [0, 3, 7, 11]
    assert list_rounds(method.pushes_whole) == list_rounds(method.pulls_whole) == []


def test_p_is_the_trigger_s_period():
    assert Method("mine", trigger=Every(6)).p == 6


@pytest.mark.parametrize("name", methods.names())
def test_prints_and_compares(name):
    factory = getattr(methods, name)
    assert factory() == factory()
    assert hash(factory()) == hash(factory())
    if "p" in methods.options(name):
        assert factory(p=2) != factory()
    assert f"Method(name='{name}'" in repr(factory())


@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        ({"merge": Replace()}, TypeError, r"merge must be a Merge, .* Received: Replace\(\)"),
        ({"merge": Average}, TypeError, "merge must be a Merge, .* Received: <class"),
        ({"adopt": None}, TypeError, "adopt must be a Adopt, .* Received: None"),
        ({"trigger": 4}, TypeError, "trigger must be a Trigger, .* Received: 4"),
        ({"agreement": Every(1)}, TypeError, "agreement must be a Agreement, .* Received: Every"),
        ({"up": Core()}, TypeError, r"up must be a Channel, .* Received: Core\(\)"),
        ({"down": None}, TypeError, "down must be a Channel, .* Received: None"),
        ({"up": Channel(codec="raw")}, TypeError, "codec must be a Codec, .* Received: 'raw'"),
        ({"up": Channel(memory=Qsgd())}, TypeError, "memory must be a Memory, .* Received: Qsgd"),
        ({"up": Channel((Every(1),))}, TypeError, "selector must be a Selector, .* Received: Every"),
        ({"up": Channel(carries="weights")}, ValueError, "up channel carries 'update'. Received: 'weights'"),
        ({"down": Channel(memory=Residual())}, ValueError, r"must leave the server's block as it is.*Residual\(\)"),
        ({"pacing": "later"}, ValueError, "pacing must be 'sync' or 'async'. Received: 'later'"),
    ],
)
def test_refuses(parts, error, message):
    with pytest.raises(error, match=message):
        Method("mine", **parts)
