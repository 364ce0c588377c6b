"""How models meet: what each method is made of, what it is equal to, and that it learns."""

from __future__ import annotations

import numpy as np
import pytest

from slimdp_tf import methods
from slimdp_tf.rules.elastic import Spring, Stay
from slimdp_tf.rules.merges import Average
from slimdp_tf.rules.schedules import After
from slimdp_tf.rules.server_steps import BlockMomentum, OuterNesterov, Scaled
from slimdp_tf.rules.weights_of_workers import ByData
from slimdp_tf.simulate import Simulation, simulate
from tests.methods.bowls import SHAPES, START, find_distance, train

pytestmark = pytest.mark.slow


def run(method, rounds=6, workers=3):
    return simulate(method, START, train, rounds, workers, 2, shapes=SHAPES)


def test_what_they_are_made_of():
    assert methods.local_sgd(8).p == 8
    assert methods.post_local_sgd(10, 4).trigger == After(10, 4)
    assert methods.fed_avg(5).merge == ByData()
    for factory in (methods.easgd, methods.eamsgd):
        method = factory(0.8, 5, workers=2)
        assert (method.up.memory, method.merge, method.adopt) == (Spring(0.4), Scaled(Average(), 0.8), Stay())
        assert method.p == 5
    assert methods.bmuf(0.5, 2.0, 7).merge == BlockMomentum(Average(), 0.5, 2.0, True)
    assert methods.diloco(3, 0.6, 0.8).merge == OuterNesterov(Average(), 0.6, 0.8)


@pytest.mark.parametrize(
    "method",
    [
        methods.local_sgd(5),
        methods.post_local_sgd(5, 5),
        methods.fed_avg(5),
        methods.easgd(0.9, 5, 3),
        methods.bmuf(0.5, 1.0, 5),
        methods.bmuf(0.5, 1.0, 5, nesterov=False),
        methods.diloco(5),
    ],
    ids=lambda m: m.name,
)
def test_learns(method):
    assert find_distance(run(method, 40).weights) < 1e-3 * find_distance(START)


@pytest.mark.parametrize(
    ("method", "same"),
    [
        (methods.local_sgd(1), methods.plump()),
        (methods.local_sgd(4), methods.plump(4)),
        (methods.fed_avg(4), methods.plump(4)),
        (methods.post_local_sgd(0, 4), methods.plump(4)),
        (methods.post_local_sgd(100, 4), methods.plump()),
        (methods.bmuf(0.0, 1.0, 4), methods.plump(4)),
        (methods.diloco(4, 1.0, 0.0), methods.plump(4)),
    ],
)
def test_is_averaging(method, same):
    np.testing.assert_allclose(run(method).weights, run(same).weights, atol=1e-6)


def test_post_local_sgd_lengthens_its_rounds():
    assert run(methods.post_local_sgd(3, 5)).steps == 3 + 3 * 5


def test_one_worker_without_block_momentum_is_plain_training():
    alone = START
    for _ in range(6):
        alone, _ = train(0, alone, 4, 0)
    np.testing.assert_allclose(run(methods.bmuf(0.0, 1.0, 4), workers=1).weights, alone, atol=1e-5)


def test_easgd_is_the_paper_s_equations():
    method, alpha = methods.easgd(0.6, 2, 3), 0.2
    simulation = Simulation(method, START, 3, 2, shapes=SHAPES)
    centre, workers = START.astype(np.float64), [START.astype(np.float64)] * 3
    for number in range(8):
        simulation.run_round(train, 2)
        workers = [train(k, x.astype(np.float32), 2, number)[0].astype(np.float64) for k, x in enumerate(workers)]
        moved = [x - alpha * (x - centre) for x in workers]
        centre = centre + alpha * sum(x - centre for x in workers)
        workers = moved
        np.testing.assert_allclose(simulation.weights, centre, atol=1e-5)
        for k, x in enumerate(workers):
            np.testing.assert_allclose(np.concatenate(simulation.locals[k]), x, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: methods.local_sgd(0), "p, the mini-batches per round, .* Received: 0"),
        (lambda: methods.post_local_sgd(-1), "steps, until rounds become longer, .* Received: -1"),
        (lambda: methods.post_local_sgd(1, 0), "then, the mini-batches per round, .* Received: 0"),
        (
            lambda: methods.easgd(1.0),
            r"beta, the centre's moving rate, must be a number within \(0, 1\). Received: 1.0",
        ),
        (lambda: methods.eamsgd(workers=0), "workers must be an integer of at least 1. Received: 0"),
        (lambda: methods.bmuf(1.0), r"momentum must be a number within \[0, 1\). Received: 1.0"),
        (lambda: methods.bmuf(nesterov=0), "nesterov must be True or False. Received: 0"),
        (lambda: methods.diloco(lr=-0.7), "rate must be a number above 0. Received: -0.7"),
    ],
)
def test_refuses(call, message):
    with pytest.raises(ValueError, match=message):
        call()
