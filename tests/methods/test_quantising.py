"""Methods of few bits: what they are made of, that they learn, and what they send."""

from __future__ import annotations

import pytest

from slimdp_tf import methods
from slimdp_tf.channel import Channel
from slimdp_tf.rules.columns import OneBit, Proportion
from slimdp_tf.rules.halves import Half
from slimdp_tf.rules.layers import LloydMax, Ternary
from slimdp_tf.rules.memories import Carry, Forget
from slimdp_tf.rules.merges import Average
from slimdp_tf.rules.residuals import Residual
from slimdp_tf.rules.selectors import Core, Dense
from slimdp_tf.rules.server_steps import AdaGrad
from slimdp_tf.simulate import Simulation, simulate
from tests.methods.bowls import SHAPES, SIZE, START, find_distance, train

pytestmark = pytest.mark.slow

SMALL = {"half": {}, "one_bit": {}, "terngrad": {}, "adaptive_quant": {"pi": 4}, "distribution_quant": {}}


def make(name, **options):
    return getattr(methods, name)(**{**SMALL[name], **options})


def test_what_they_are_made_of():
    for method, codec in (
        (methods.one_bit(), OneBit()),
        (methods.adaptive_quant(8, sample=9), Proportion(8, 9)),
        (methods.distribution_quant(3), LloydMax(3)),
        (methods.half(dtype="float16"), Half("float16")),
    ):
        assert (method.up.codec, method.up.memory, method.up.selectors) == (codec, Residual(), (Dense(),))
    method = methods.terngrad(clip=3.0)
    assert (method.up.codec, method.up.memory) == (Ternary(3.0), Forget())
    assert methods.one_bit(adagrad=True, rate=0.5).merge == AdaGrad(Average(), 0.5)
    assert methods.one_bit().merge == Average()


@pytest.mark.parametrize("name", ["one_bit", "adaptive_quant", "distribution_quant", "half"])
def test_the_pull_is_the_server_s_update_or_its_weights(name):
    method = make(name, quantize_pull=True)
    assert (method.down.codec, method.down.memory, method.down.carries) == (method.up.codec, Carry(), "update")
    assert make(name, quantize_pull=False).down == Channel(carries="weights")


@pytest.mark.parametrize("name", SMALL)
def test_learns(name):
    simulation = simulate(make(name), START, train, 40, 3, seed=1, shapes=SHAPES)
    assert find_distance(simulation.weights) < 0.01 * find_distance(START)


def test_one_bit_learns_with_ada_grad():
    method = methods.one_bit(adagrad=True, rate=0.5)
    simulation = simulate(method, START, train, 40, 3, seed=1, shapes=SHAPES)
    assert find_distance(simulation.weights) < 0.05 * find_distance(START)


@pytest.mark.parametrize("name", ["one_bit", "adaptive_quant", "half"])
def test_workers_hold_what_the_server_thinks_they_do(name):
    simulation = Simulation(make(name), START, 2, 2, shapes=SHAPES)
    for _ in range(3):
        simulation.run_round(train, 1)
        for block, shadow in enumerate(simulation.shadows):
            for worker in range(2):
                assert (simulation.locals[worker][block].numpy() == shadow[0]["anchor"].numpy()).all()


def test_bytes():
    # 12 columns: 6, the bias, 4 and the bias. One bit: ceil(202 / 8) bytes and two floats per column.
    for name, options, expected in (
        ("one_bit", {}, 26 + 12 * 8),
        ("terngrad", {}, 51 + 4 * 4),  # ceil(202 / 4), a float per layer
        ("distribution_quant", {"bits": 3}, 76 + 4 * 12),  # ceil(202 * 3 / 8), three floats per layer
        ("half", {}, 2 * SIZE),
    ):
        simulation = simulate(make(name, **options), START, train, 1, 3, shapes=SHAPES)
        assert simulation.traffic.push_bytes == 3 * expected, name


@pytest.mark.parametrize("codec", [OneBit(), Proportion(), Ternary(), LloydMax()], ids=lambda c: type(c).__name__)
def test_refuses_columns_without_their_entries(codec):
    name = type(codec).__name__
    with pytest.raises(ValueError, match=f"{name} goes by columns or variables .* must be .*Dense.* Received: .Core"):
        Channel((Core(),), codec)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: methods.one_bit(quantize_pull=1), "quantize_pull must be True or False. Received: 1"),
        (lambda: methods.one_bit(adagrad="yes"), "adagrad must be True or False. Received: 'yes'"),
        (lambda: methods.one_bit(adagrad=True, rate=0), "rate must be a number above 0. Received: 0"),
        (lambda: methods.terngrad(clip=-1), "clip, in standard deviations, .* Received: -1"),
        (lambda: methods.adaptive_quant(0), "pi must be an integer of at least 1. Received: 0"),
        (lambda: methods.distribution_quant(8), "bits must be an integer from 1 to 4. Received: 8"),
        (lambda: methods.half(dtype="int8"), "dtype must be 'bfloat16' or 'float16'. Received: 'int8'"),
    ],
)
def test_refuses(call, message):
    with pytest.raises(ValueError, match=message):
        call()
