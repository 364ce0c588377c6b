"""Methods that go by the loss."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from slimdp_tf import methods
from slimdp_tf.rules.events import Drift
from slimdp_tf.rules.merges import Average
from slimdp_tf.rules.schedules import WithLoss
from slimdp_tf.rules.weights_of_workers import ByLoss
from slimdp_tf.simulate import Simulation, simulate
from tests.methods.bowls import SHAPES, START, find_distance, train

pytestmark = pytest.mark.slow


def test_what_they_are_made_of():
    assert methods.adaptive_period(8, 20).trigger == WithLoss(8, 20)
    assert methods.loss_weighted(2.0, 0.2, 3.0).merge == ByLoss(Average(), 2.0, 0.2, 3.0)


def test_rounds_become_shorter_as_the_loss_falls():
    simulation, planned, losses = Simulation(methods.adaptive_period(8, 2), START, 3, shapes=SHAPES), [], []

    def watched(worker, weights, steps, number):
        weights, loss = train(worker, weights, steps, number)
        losses.append(loss)
        return weights, loss

    for _ in range(3):
        planned.append(simulation.planned)
        simulation.run_round(watched, planned[-1])
    first, last = np.mean(losses[:3]), np.mean(losses[3:6])
    assert planned == [8, 8, math.ceil(math.sqrt(last / first) * 8)] and planned[2] < 8
    assert find_distance(simulation.weights) < 0.1 * find_distance(START)


def test_weighs_by_the_loss():
    simulation = Simulation(methods.loss_weighted(), START, 2, shapes=SHAPES)
    simulation.run_round(lambda worker, weights, steps, number: (weights - 1.0 - worker, 1.0 + worker), 1)
    # Mean loss 1.5: 1.5 of the first (moved by 1), 0.75 of the second (moved by 2).
    np.testing.assert_allclose(simulation.weights, START - (1.5 * 1 + 0.75 * 2) / 2, rtol=1e-5)


def test_without_losses_it_is_plump():
    ours, plump = (
        simulate(method, START, lambda *a: train(*a)[0], 4, 3, shapes=SHAPES).weights
        for method in (methods.loss_weighted(), methods.plump())
    )
    np.testing.assert_allclose(ours, plump, atol=1e-6)


@pytest.mark.parametrize("method", [methods.adaptive_period(8, 5), methods.loss_weighted()], ids=lambda m: m.name)
def test_learns(method):
    assert find_distance(simulate(method, START, train, 60, 3, 2, shapes=SHAPES).weights) < 0.01 * find_distance(START)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: methods.adaptive_period(0), "period, the mini-batches per round, .* Received: 0"),
        (lambda: methods.adaptive_period(every=0), "every, in rounds, .* Received: 0"),
        (lambda: methods.loss_weighted(-1), "kappa must be a number of at least 0. Received: -1"),
        (lambda: methods.loss_weighted(least=2.0), "least and most must be 0 < least <= most. Received: 2.0, 1.5"),
    ],
)
def test_refuses(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_events_need_no_barrier_and_cannot_have_one():
    method = methods.event_triggered(0.5, p=2, most=3, staleness=1)
    assert (method.trigger, method.pacing, method.staleness) == (Drift(0.5, 2, 3), "async", 1)
    with pytest.raises(ValueError, match="pacing must be 'async' for event_triggered: by Drift .* Received: 'sync'"):
        dataclasses.replace(method, pacing="sync")


def test_a_worker_trains_until_it_has_drifted():
    # |z| = 2 and a step moves by 0.5 |1| = 1: after two steps |w - z| = 2 >= 0.75 * 2. The push weighs 1/2.
    method = methods.event_triggered(0.75, most=9)
    ended = simulate(method, np.ones(4), lambda k, w, steps, t: w + 0.5, 1, 2, arrivals=[0])
    np.testing.assert_allclose(ended.weights, np.ones(4) + 0.5)
    ended = simulate(methods.event_triggered(9.0, most=3), np.ones(4), lambda k, w, steps, t: w + 0.5, 1, 1)
    np.testing.assert_allclose(ended.weights, np.ones(4) + 1.5)
