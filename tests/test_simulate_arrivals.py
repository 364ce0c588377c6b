"""Pushes merged one by one: in a given order the result is given, and one worker alone is in step with itself."""

from __future__ import annotations

import numpy as np
import pytest

from slimdp_tf import methods
from slimdp_tf.simulate import Simulation, simulate
from slimdp_tf.simulate_arrivals import Arriving

pytestmark = pytest.mark.slow

N = 12
START = np.arange(N, dtype=np.float32)
CARRYING = {"alpha": 0.5, "beta": 0.25, "q": 3, "memory": "carry", "explorer_keys": "derived"}


def move(worker, weights, steps, number):
    """Every step subtracts 1 on worker 0, 2 on worker 1."""
    return weights - steps * (worker + 1.0)


def pull_to(worker, weights, steps, number):
    """Gradient descent on a bowl around 0.5 (worker 0) or 1.5 (worker 1): the mean of both is least at 1."""
    for _ in range(steps):
        weights = weights - 0.1 * (weights - 0.5 - worker)
    return weights


def test_a_push_counts_as_one_of_k_and_a_worker_goes_on_from_its_own_merge():
    # 0: 1/2; 0 again: 1/2; 1 started from the beginning: 2/2.
    ended = simulate(methods.plump(pacing="async"), START, move, 1, 2, arrivals=[0, 0, 1])
    np.testing.assert_allclose(ended.weights, START - 0.5 - 0.5 - 1.0)
    np.testing.assert_allclose(ended.locals[0][0], START - 1.0)
    np.testing.assert_allclose(ended.locals[1][0], START - 2.0)


def test_staleness_is_the_merges_since_the_worker_s_own():
    arriving = Arriving(Simulation(methods.plump(pacing="async"), START, 3))
    for worker in (0, 0, 1, 2, 0):
        arriving.take(worker, move)
    assert arriving.staleness == [0, 0, 2, 3, 2]


@pytest.mark.parametrize("name", ["plump", "top_k", "slim", "easgd", "loss_weighted", "fed_avg", "half"])
def test_one_worker_alone_is_in_step(name):
    options = CARRYING if name == "slim" else {"workers": 1} if name == "easgd" else {}
    ended = [
        simulate(getattr(methods, name)(**options, pacing=pacing), START, pull_to, 8, 1, 2).weights
        for pacing in ("sync", "async")
    ]
    np.testing.assert_allclose(ended[1], ended[0], atol=1e-6)


def test_contributors_are_those_that_sent_an_entry_last():
    # Both send everything every time: each counts as one of two, although each is merged by itself.
    method = methods.slim(1.0, 1.0, average="contributors", pacing="async")
    ended = simulate(method, START, move, 1, 2, arrivals=[0, 1, 0])
    np.testing.assert_allclose(ended.weights, START - 0.5 - 1.0 - 0.5)
    # Of the core, too, which both send from their third push on.
    method = methods.slim(0.5, 0.5, q=100, average="contributors", pacing="async")
    simulation = Simulation(method, START, 2)
    arriving = Arriving(simulation)
    for worker in (0, 1, 0, 1, 0, 1):
        arriving.take(worker, move)
    before, core = simulation.weights, simulation.agreed[0]["core"].numpy()
    assert len(core) == 6
    arriving.take(0, move)
    arriving.take(1, move)
    moved = np.zeros(N)
    moved[core] = 0.5 + 1.0
    np.testing.assert_allclose(before - simulation.weights, moved, atol=1e-6)


def test_the_core_is_chosen_when_every_worker_has_delivered_a_whole_update():
    simulation = Simulation(methods.slim(**CARRYING, pacing="async"), START, 2)
    arriving, versions = Arriving(simulation), []
    for worker in (0, 0, 1, 0, 1, 1):  # whole: rounds 0 and 2 of either worker
        arriving.take(worker, move)
        versions.append(simulation.version)
    assert versions == [0, 0, 1, 1, 1, 2]
    told = [int(held[0]["signature"][0]) for held in arriving.held]
    assert told == [1, 2]  # worker 1 is told of the core that its push completed, worker 0 with its next answer


@pytest.mark.parametrize(
    "method",
    [methods.plump(pacing="async"), methods.slim(**CARRYING, average="contributors", pacing="async")],
    ids=["plump", "slim, carry"],
)
def test_converges_in_any_order(method):
    order = np.random.default_rng(4).permuted(np.tile([0, 1], (120, 1)), axis=1).ravel().tolist()
    ended = simulate(method, START, pull_to, 1, 2, 2, arrivals=order)
    np.testing.assert_allclose(ended.weights, np.ones(N), atol=0.1)


def test_refuses_an_order_without_sense():
    with pytest.raises(ValueError, match=r"numbers of workers, 0 to 1, .* Received: \[0, 2\] with pacing 'async'"):
        simulate(methods.plump(pacing="async"), START, move, 1, 2, arrivals=[0, 2])
    with pytest.raises(ValueError, match="with pacing 'sync'"):
        simulate(methods.plump(), START, move, 1, 2, arrivals=[0, 1])
