"""Methods that send few entries: what they are made of, what they are equal to, and that they learn."""

from __future__ import annotations

import numpy as np
import pytest

from slimdp_tf import methods
from slimdp_tf.rules.largest import Relevant, TopK
from slimdp_tf.rules.local_updates import LocalUpdates
from slimdp_tf.rules.memories import Carry, Forget
from slimdp_tf.rules.merges import Average
from slimdp_tf.rules.predictions import Predicted, Unpredicted
from slimdp_tf.rules.quanta import Quantum, Threshold
from slimdp_tf.rules.residuals import MomentumCorrection, Residual
from slimdp_tf.rules.rows import Rows
from slimdp_tf.rules.selectors import Explore, Pushed
from slimdp_tf.simulate import Simulation, simulate
from tests.methods.bowls import SHAPES, START, find_distance, train

pytestmark = pytest.mark.slow

SMALL = {
    "top_k": {"R": 0.9},
    "local_combine": {"R": 0.9},
    "random_k": {"ratio": 0.2},
    "dgc": {"rho": 0.1, "m": 0.5, "warmup": 8},
    "threshold": {"tau": 0.08},
    "relevance": {"ratio": 0.3},
    "predictive": {"ratio": 0.1},
    "sampled_rows": {"tall": 20, "m_f": 2, "m_r": 2},
}


def make(name, **options):
    return getattr(methods, name)(**{**SMALL[name], **options})


def test_what_they_are_made_of():
    method = methods.top_k(0.98, sample=0.1, by="layer")
    assert method.up.selectors == method.down.selectors == (TopK(1 - 0.98, 0.1, "layer"),)
    assert (method.up.memory, method.down.memory, method.down.carries) == (Residual(), Carry(), "update")
    assert methods.top_k(drop_pull=False).down.carries == "weights"
    assert methods.random_k(0.1, keys="sent").up.selectors == (Explore(0.1, True),)
    method = methods.local_combine("sum", 0.9, share=0.5, average=7)
    assert (method.up.memory, method.down.memory) == (LocalUpdates("sum", 0.5, 7), Carry())
    method = methods.dgc(0.01, 0.8, True, 2.0, 0.1, 40)
    assert method.up.selectors == (TopK(0.01, 0.1, "layer", 40),)
    assert method.up.memory == MomentumCorrection(0.8, True, 2.0)
    method = methods.threshold(0.5)
    assert (method.up.selectors, method.up.codec, method.up.memory) == ((Threshold(0.5),), Quantum(0.5), Residual())
    assert methods.relevance(0.2).up.selectors == (Relevant(0.2, 0.01),)
    method = methods.predictive(0.1, 0.2, 0.3)
    assert (method.up.memory, method.merge) == (Unpredicted(0.2, 0.3), Predicted(Average(), 0.2, 0.3))
    method = methods.sampled_rows(1, 2, 3)
    assert (method.up.selectors, method.up.memory, method.down.selectors) == ((Rows(1, 2, 3),), Forget(), (Pushed(),))


@pytest.mark.parametrize("name", SMALL)
def test_learns(name):
    simulation = simulate(make(name), START, train, 50, 3, 1, seed=1, shapes=SHAPES)
    assert find_distance(simulation.weights) < 0.05 * find_distance(START)


@pytest.mark.parametrize("combine", ["sum", "error"])
def test_local_combine_learns_in_every_way(combine):
    method = methods.local_combine(combine, 0.9, share=0.3, average=5)
    simulation = simulate(method, START, train, 60, 3, 1, shapes=SHAPES)
    assert find_distance(simulation.weights) < 0.05 * find_distance(START)


def test_a_worker_that_replaces_is_its_residual_away_from_the_agreed_weights():
    simulation = Simulation(methods.local_combine("replace", 0.9), START, 2, shapes=SHAPES)
    for _ in range(8):
        simulation.run_round(train, 1)
        for worker in range(2):
            state, local = simulation.state[worker][0], simulation.locals[worker][0]
            np.testing.assert_allclose(state["agreed"], simulation.shadows[0][0]["anchor"], atol=1e-5)
            np.testing.assert_allclose(state["agreed"] - state["residual"], local, atol=1e-5)


@pytest.mark.parametrize(
    "method",
    [
        methods.top_k(0.0),
        methods.local_combine("replace", 0.0),
        methods.local_combine("error", 0.0),
        methods.random_k(1.0),
        methods.dgc(1.0, 0.0, warmup=0, sample=0.0),
        methods.dgc(1.0, 0.9, warmup=0, sample=0.0),  # what is sent has no momentum left
        methods.relevance(1.0, 1.0),
        methods.predictive(1.0),
        methods.sampled_rows(0, 0, 5),
    ],
    ids=lambda m: m.name,
)
def test_with_everything_sent_it_is_plump(method):
    for servers in (1, 2):
        ours, plump = (
            simulate(m, START, train, 6, 3, servers, shapes=SHAPES).weights for m in (method, methods.plump())
        )
        np.testing.assert_allclose(ours, plump, atol=2e-5)


def test_top_1_is_sent_by_a_worker_and_by_the_server():
    simulation = Simulation(methods.top_k(0.9999), START, 3, shapes=SHAPES)
    for number in range(4):
        before = [local[0].numpy() for local in simulation.locals]
        simulation.run_round(train, 1)
        assert simulation.traffic.push_bytes == simulation.traffic.pull_bytes == 3 * 4 * (number + 1)
        for worker in range(3):  # one entry of each worker's weights has moved, and the server knows what they are
            local = simulation.locals[worker][0].numpy()
            assert (local != before[worker]).sum() == 1
            np.testing.assert_array_equal(local, simulation.shadows[0][0]["anchor"])


def test_dgc_masks_what_it_has_sent():
    simulation = Simulation(methods.dgc(0.05, sample=0.0, warmup=0), START, 2, shapes=SHAPES)
    simulation.run_round(train, 1)
    for state in (state[0] for state in simulation.state):
        sent = (state["residual"].numpy() == 0.0).sum()
        assert sent == sum(max(1, round(0.05 * size)) for size in (72, 6, 120, 4))
        assert ((state["momentum"].numpy() == 0.0) == (state["residual"].numpy() == 0.0)).all()


def test_what_waits_at_the_worker_and_at_the_server_is_all_that_is_missing():
    """Every update is in the server's weights or in a worker's residual."""
    simulation, done = Simulation(methods.top_k(0.9), START, 2, shapes=SHAPES), np.zeros((2, len(START)))
    for _ in range(12):
        start = [local[0].numpy() for local in simulation.locals]

        def watched(worker, weights, steps, t, start=start):
            trained = train(worker, weights, steps, t)
            done[worker] += start[worker] - (trained[0] if isinstance(trained, tuple) else trained)
            return trained

        simulation.run_round(watched, 1)
        waiting = np.mean([state[0]["residual"].numpy() for state in simulation.state], 0)
        np.testing.assert_allclose(START - simulation.weights + waiting, done.mean(0), atol=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: methods.top_k(1.0), r"R, the share that is dropped, must be within \[0, 1\). Received: 1.0"),
        (lambda: methods.top_k("0.9"), "R, the share .* Received: '0.9'"),
        (lambda: methods.top_k(by="matrix"), "by must be 'block' or 'layer'. Received: 'matrix'"),
        (lambda: methods.top_k(drop_pull=1), "drop_pull must be True or False. Received: 1"),
        (lambda: methods.local_combine("add"), "combine must be 'sum', 'replace' or 'error'. Received: 'add'"),
        (lambda: methods.local_combine(average=0), "average, in rounds, must be an integer .* Received: 0"),
        (lambda: methods.random_k(keys="none"), "keys must be 'derived' or 'sent'. Received: 'none'"),
        (lambda: methods.random_k(2.0), "ratio .* Received: 2.0"),
        (lambda: methods.dgc(0.0), "ratio must be a share .* Received: 0.0"),
        (lambda: methods.dgc(m=1), r"momentum must be a number within \[0, 1\). Received: 1"),
        (lambda: methods.dgc(p=0), "p, the mini-batches per round, .* Received: 0"),
        (lambda: methods.threshold(0), "tau, the quantum, must be a number above 0. Received: 0"),
        (lambda: methods.relevance(0.0), "ratio must be a share .* Received: 0.0"),
        (lambda: methods.predictive(gamma=2), r"gamma must be a number within \[0, 1\]. Received: 2"),
        (lambda: methods.sampled_rows(m_f=-1), "frequent must be an integer of at least 0. Received: -1"),
    ],
)
def test_refuses(call, message):
    with pytest.raises(ValueError, match=message):
        call()
