"""The simulation against Algorithm 1 written down a second time, and against what the methods promise."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from slimdp_tf import methods
from slimdp_tf.channel import Channel
from slimdp_tf.exchange import Exchange
from slimdp_tf.method import Method
from slimdp_tf.rules.agreements import SignificantCore
from slimdp_tf.rules.selectors import Core, Pushed
from slimdp_tf.simulate import Simulation, simulate

pytestmark = pytest.mark.slow

N = 40
CENTRES = np.random.default_rng(1).normal(size=(8, N))
CURVES = np.random.default_rng(2).uniform(0.2, 2.0, size=(8, N))
START = np.random.default_rng(3).normal(size=N).astype(np.float32)


def train(worker, weights, steps, number):
    """Gradient descent on a bowl of the worker's own, a little different in every step."""
    weights = weights.astype(np.float64)
    for step in range(steps):
        noise = np.random.default_rng([worker, number, step]).normal(size=N)
        weights = weights - 0.1 * (CURVES[worker] * (weights - CENTRES[worker]) + 0.3 * noise)
    return weights.astype(np.float32)


@dataclasses.dataclass(frozen=True)
class WatchedExchange(Exchange):
    """Keeps which entries the workers chose and what the server decodes, block by block, worker by worker."""

    chosen_entries: list = dataclasses.field(default_factory=list)
    received: list = dataclasses.field(default_factory=list)

    def push(self, block, state, local, agreed, draw, whole):
        payload, chosen, edits = super().push(block, state, local, agreed, draw, whole)
        self.chosen_entries.append((block, chosen))
        return payload, chosen, edits

    def receive(self, block, payload, parts, whole):
        entries = super().receive(block, payload, parts, whole)
        self.received.append((block, entries.index, entries.value.numpy()))
        return entries


def run_rounds(method, rounds, workers=3, servers=2, seed=4):
    """Yields the simulation after each round, and what the workers had trained before the exchange."""
    simulation, trained = Simulation(method, START, workers, servers, seed), {}
    simulation.exchange = WatchedExchange(method, simulation.exchange.sizes, seed)

    def watched(worker, weights, steps, number):
        trained[worker] = train(worker, weights, steps, number)
        return trained[worker]

    for _ in range(rounds):
        simulation.exchange.chosen_entries.clear()
        simulation.exchange.received.clear()
        simulation.run_round(watched, method.p)
        yield simulation, trained


def flatten(blocks) -> np.ndarray:
    return np.concatenate([block.numpy() for block in blocks])


def find_start(simulation, block: int) -> int:
    """Where a block begins in the model."""
    return sum(simulation.exchange.sizes[:block])


def find_core(simulation) -> np.ndarray:
    """The entries of the model in the core."""
    return np.concatenate([a["core"].numpy() + find_start(simulation, j) for j, a in enumerate(simulation.agreed)])


def find_chosen(simulation, worker: int) -> np.ndarray:
    """The entries of the model that a worker chose in the last round."""
    mine = simulation.exchange.chosen_entries[worker :: simulation.workers]
    return np.concatenate([chosen.numpy() + find_start(simulation, block) for block, chosen in mine])


# -- Algorithm 1, once more ---------------------------------------------------------------------------------------


def select_core(weights, gradient, beta) -> np.ndarray:
    significance = np.abs(weights) + np.abs(weights).mean() / np.abs(gradient).mean() * np.abs(gradient)
    return np.sort(np.argsort(-significance, kind="stable")[: round(beta * len(weights))])


class Literal:
    """Algorithm 1 of the paper in float64: what is not sent is forgotten, eta' = 1/K."""

    def __init__(self, workers, p, beta, q):
        self.workers, self.p, self.beta, self.q, self.t = workers, p, beta, q, 0
        self.server, self.core = START.astype(np.float64), np.array([], int)
        self.local = [self.server.copy() for _ in range(workers)]
        self.reference = [self.server.copy() for _ in range(workers)]

    def run_round(self, explorers):
        """One round; the random picks are given, everything else is done here."""
        sets = [np.concatenate([self.core, explorer]) for explorer in explorers]
        is_whole = self.t == 0 or (self.t + 1) % self.q == 0
        start = [weights.copy() for weights in self.local]
        for k in range(self.workers):
            self.local[k] = train(k, self.local[k].astype(np.float32), self.p, self.t).astype(np.float64)
        moved = self.push(start, [np.arange(N) if is_whole else chosen for chosen in sets])
        for k in range(self.workers):
            pulled = np.arange(N) if self.t == 0 else sets[k]
            self.local[k][pulled] = self.reference[k][pulled] = self.server[pulled]
        if is_whole:
            self.core = select_core(self.server, self.find_gradient(moved), self.beta)
        self.t += 1

    def find_gradient(self, moved):
        return moved

    def push(self, start, sets):
        before = self.server.copy()
        for k, chosen in enumerate(sets):
            self.server[chosen] -= (start[k] - self.local[k])[chosen] / self.workers
        return before - self.server


class Carrying(Literal):
    """With three changes: an update counts from when its entry was last sent, the mean is over the contributors, and
    the gradient outside the core is the update per round waited, (1 - beta) / (alpha - beta) rounds but at most q."""

    alpha = 0.3

    def find_gradient(self, moved):
        if not len(self.core):
            return moved
        gradient = moved / max(1.0, min(self.q, (1 - self.beta) / (self.alpha - self.beta)))
        gradient[self.core] = moved[self.core]
        return gradient

    def push(self, start, sets):
        total, senders = np.zeros(N), np.zeros(N)
        for k, chosen in enumerate(sets):
            total[chosen] += (self.reference[k] - self.local[k])[chosen]
            senders[chosen] += 1
            self.reference[k][chosen] = self.local[k][chosen]
        moved = total / np.maximum(senders, 1)
        self.server = self.server - moved
        return moved


@pytest.mark.parametrize(
    ("oracle", "rounds", "options"),
    [
        (Literal, 12, {}),
        (Literal, 4, {"explorer_keys": "derived", "p": 2}),
        (Carrying, 12, {"memory": "carry", "average": "contributors"}),
    ],
    ids=["literal", "literal, derived keys", "carry, contributors"],
)
def test_is_algorithm_1(oracle, rounds, options):
    method = methods.slim(0.3, 0.15, q=4, **options)
    theirs = oracle(3, method.p, 0.15, 4)
    for simulation, _ in run_rounds(method, rounds):
        theirs.run_round([np.setdiff1d(find_chosen(simulation, worker), theirs.core) for worker in range(3)])
        np.testing.assert_allclose(simulation.weights, theirs.server, atol=2e-6)
        for worker in range(3):
            np.testing.assert_allclose(flatten(simulation.locals[worker]), theirs.local[worker], atol=2e-6)
        np.testing.assert_array_equal(find_core(simulation), theirs.core)
    assert simulation.version == 1 + rounds // 4  # after rounds 0, 3, 7 and 11


# -- what the methods promise -------------------------------------------------------------------------------------


def test_plump_is_synchronous_sgd_on_the_joined_batch():
    # Least squares: mean over K batches of the mean gradient of each = mean gradient of the joined batch.
    rng = np.random.default_rng(5)
    x, target = rng.normal(size=(50, 4, 8, 6)), rng.normal(size=6)  # steps, workers, batch, features
    y = x @ target + 0.1 * rng.normal(size=(50, 4, 8))

    def descend(weights, inputs, outputs):
        return weights - 0.05 * 2 / len(outputs) * inputs.T @ (inputs @ weights - outputs)

    simulation = simulate(
        methods.plump(), np.zeros(6), lambda k, w, steps, t: descend(w, x[t, k], y[t, k]), 50, workers=4
    )
    large = np.zeros(6)
    for t in range(50):
        large = descend(large, x[t].reshape(32, 6), y[t].reshape(32))
    np.testing.assert_allclose(simulation.weights, large, atol=1e-5)
    assert np.abs(large - target).max() < 0.2  # and it has learnt


def test_slim_of_everything_is_plump_to_the_bit():
    for memory, rounds in (("forget", 20), ("carry", 5)):
        slims = run_rounds(methods.slim(1.0, 1.0, q=5, memory=memory), rounds, servers=1)
        pairs = zip(run_rounds(methods.plump(), rounds, servers=1), slims)
        for (plump, _), (slim, _) in pairs:
            if memory == "forget":
                np.testing.assert_array_equal(slim.weights, plump.weights)
                np.testing.assert_array_equal(flatten(slim.locals[2]), flatten(plump.locals[2]))
            else:  # what float32 rounds away of anchor - local is carried, too
                np.testing.assert_allclose(slim.weights, plump.weights, atol=1e-6)


def test_a_core_of_everything_is_plump():
    # Not by going dense, as `slim` does, but through the core's keys; the sum over workers is rounded otherwise.
    core = Method(
        "core", Channel((Core(),)), Channel((Pushed(),), carries="weights"), agreement=SignificantCore(1.0, 5)
    )
    for (plump, _), (ours, _) in zip(run_rounds(methods.plump(), 6), run_rounds(core, 6)):
        np.testing.assert_allclose(ours.weights, plump.weights, atol=1e-6)


@pytest.mark.parametrize("method", [methods.plump(2), methods.slim(1.0, 1.0, p=2)], ids=lambda m: m.name)
def test_one_worker_alone_is_plain_training(method):
    alone = START
    for number, (simulation, _) in enumerate(run_rounds(method, 6, workers=1)):
        alone = train(0, alone, 2, number)
        np.testing.assert_allclose(simulation.weights, alone, atol=1e-6)


def test_the_number_of_servers_changes_nothing_of_plump():
    one, many = (simulate(methods.plump(3), START, train, 4, 3, servers).weights for servers in (1, 7))
    np.testing.assert_array_equal(one, many)


def test_the_core_does_not_depend_on_the_number_of_servers():
    cores = []
    for servers in (1, 3):
        (simulation, _), *_ = run_rounds(methods.slim(0.4, 0.2, c=1.0), 1, servers=servers)
        cores.append(find_core(simulation).tolist())
    assert cores[0] == cores[1] and len(cores[0]) == 8


@pytest.mark.parametrize("memory", ["forget", "carry"])
def test_outside_the_communication_set_nothing_changes_inside_everything_is_the_servers(memory):
    method, core, explorers = methods.slim(0.3, 0.15, q=4, memory=memory), np.array([], int), set()
    for t, (simulation, trained) in enumerate(run_rounds(method, 5)):
        for worker in range(3):
            inside = find_chosen(simulation, worker)
            explorer = np.setdiff1d(inside, core)
            assert set(core) <= set(inside)
            assert len(inside) == len(set(inside)) == len(core) + len(explorer)
            assert len(explorer) == 6  # n_e = round(0.15 * 40)
            explorers.add(tuple(explorer))
            inside = inside if t else np.arange(N)  # round 0 pulls everything
            outside, local = np.setdiff1d(np.arange(N), inside), flatten(simulation.locals[worker])
            np.testing.assert_array_equal(local[outside], trained[worker][outside])
            np.testing.assert_array_equal(local[inside], simulation.weights[inside])
        core = find_core(simulation)
    assert len(explorers) == 5 * 3  # one of its own for each round and worker


@pytest.mark.parametrize(
    ("method", "first"),
    [
        (methods.slim(0.3, 0.15, q=4, memory="carry"), 0),
        (methods.slim_quant(0.2, 0.0, bucket=8), 0),
        # In round 0 every entry is pulled and the worker begins anew: what the codec rounded away then is lost.
        (methods.slim_quant(0.3, 0.15, q=4, bits=4, bucket=8), 1),
    ],
    ids=["raw", "qsgd, explorer only", "qsgd"],
)
def test_what_is_sent_and_what_is_carried_is_all_that_was_done(method, first):
    done, sent, start = np.zeros((2, N)), np.zeros((2, N)), [START, START]
    for t, (simulation, trained) in enumerate(run_rounds(method, 14, workers=2, servers=1)):
        for worker, (_, index, value) in enumerate(simulation.exchange.received):
            done[worker] += (start[worker].astype(np.float64) - trained[worker]) * (t >= first)
            sent[worker, np.arange(N) if index is None else index] += value * (t >= first)
            start[worker] = flatten(simulation.locals[worker])
            kept = flatten([state["anchor"] for state in simulation.state[worker]]) - start[worker]
            np.testing.assert_allclose(sent[worker] + kept, done[worker], atol=1e-5)


def test_what_is_not_sent_is_forgotten():
    method = methods.slim(0.3, 0.15, q=4)
    for simulation, _ in run_rounds(method, 2):
        for worker in range(3):
            for state, local in zip(simulation.state[worker], simulation.locals[worker]):
                np.testing.assert_array_equal(state["anchor"], local)


def test_a_quantised_pull_leaves_all_workers_alike_and_near_the_server():
    for simulation, _ in run_rounds(methods.quant(bucket=10, quantize_pull=True), 12):
        locals_ = [flatten(blocks) for blocks in simulation.locals]
        for other in locals_[1:]:
            np.testing.assert_array_equal(other, locals_[0])
        shadow = flatten([shadows[0]["anchor"] for shadows in simulation.shadows])
        np.testing.assert_array_equal(shadow, locals_[0])
        # The error is that of one answer, not of all: a level of what the server did in a round (0.5 at most here).
        assert np.abs(shadow - simulation.weights).max() < 0.6 / 127


def test_a_refresh_is_for_the_next_round():
    # What is pulled after the merge of a refresh is still the old core's (Algorithm 1: pull, merge, then selection).
    both = Method("core", Channel((Core(),)), Channel((Core(),), carries="weights"), agreement=SignificantCore(0.3, 2))
    core = np.arange(N)
    for simulation, trained in run_rounds(both, 4):
        for worker in range(3):
            local, outside = flatten(simulation.locals[worker]), np.setdiff1d(np.arange(N), core)
            np.testing.assert_array_equal(local[core], simulation.weights[core])
            np.testing.assert_array_equal(local[outside], trained[worker][outside])
        before, core = core, find_core(simulation)
    assert before.tolist() != core.tolist()  # the last round did choose another one


# -- bytes --------------------------------------------------------------------------------------------------------


def count_rounds(method, rounds, n=1000, workers=2, servers=1) -> list[tuple[int, int, int]]:
    """Bytes of each round: (push, pull, keys)."""
    simulation = Simulation(method, np.zeros(n), workers, servers)
    found, before = [], simulation.traffic
    for _ in range(rounds):
        simulation.run_round(lambda k, w, steps, t: w - 0.01 * (k + 1), 1)
        after = simulation.traffic
        found.append(
            (
                after.push_bytes - before.push_bytes,
                after.pull_bytes - before.pull_bytes,
                after.keys_bytes - before.keys_bytes,
            )
        )
        before = after
    assert sum(before.ps_bytes) == before.exchange_bytes
    return found


def test_bytes_of_plump():
    # n = 1000 words of 4 bytes up and down for each of 2 workers.
    assert count_rounds(methods.plump(), 2) == [(8000, 8000, 0)] * 2


def test_bytes_of_slim():
    # alpha = .3, beta = .1, n = 1000, K = 2, q = 3, one block; a signature has 24 bytes.
    # Ordinary: push beta n + (alpha - beta) n = 300 values, 200 keys: (2 alpha - beta) n = 500 words; pull alpha n.
    ordinary = (2 * 4 * 300, 2 * 4 * 300, 2 * (4 * 200 + 24))
    # Before a refresh: n values, the explorer's keys all the same; then the 100 keys of the new core to each worker.
    whole = (2 * 4 * 1000, 2 * 4 * 300, 2 * (4 * 200 + 24) + 2 * 4 * 100)
    # Round 0 pulls everything, and without a core the explorer is 200 of 1000.
    first = (2 * 4 * 1000, 2 * 4 * 1000, 2 * (4 * 200 + 24) + 2 * 4 * 100)
    assert count_rounds(methods.slim(0.3, 0.1, q=3), 6) == [first, ordinary, whole, ordinary, ordinary, whole]
    push, _, keys = ordinary
    assert push + keys == 2 * (4 * (2 * 0.3 - 0.1) * 1000 + 24)  # the paper's words and the signature


def test_bytes_of_slim_with_derived_keys():
    # alpha n words each way and the signature.
    rounds = count_rounds(methods.slim(0.3, 0.1, q=3, explorer_keys="derived"), 2)
    assert rounds[1] == (2 * 4 * 300, 2 * 4 * 300, 2 * 24)


def test_bytes_of_slim_without_a_core():
    # No agreement: no whole push, no signature. Sent keys: 200 of them.
    assert count_rounds(methods.slim(0.2, 0.0), 3) == [(1600, 1600, 1600)] * 3
    assert count_rounds(methods.slim(0.2, 0.0, explorer_keys="derived"), 3) == [(1600, 1600, 0)] * 3


def test_bytes_of_quant():
    # 1000 levels of a byte and ceil(1000 / 512) = 2 scales of 4 bytes per worker.
    assert count_rounds(methods.quant(), 2) == [(2 * 1008, 8000, 0)] * 2
    assert count_rounds(methods.quant(quantize_pull=True), 2) == [(2 * 1008, 2 * 1008, 0)] * 2
    # Two blocks of 500: a scale each.
    assert count_rounds(methods.quant(), 1, servers=2) == [(2 * 1008, 8000, 0)]


def test_bytes_of_slim_quant():
    # Core of 100: 100 levels, 1 scale; explorer of 200: 200 levels, 1 scale; keys derived. Pull: 300 words.
    assert count_rounds(methods.slim_quant(0.3, 0.1, q=5), 2)[1] == (2 * (300 + 8), 2 * 4 * 300, 2 * 24)


def test_bytes_do_not_depend_on_the_number_of_servers():
    # But for the signatures: 24 bytes per worker and block.
    method = methods.slim(0.3, 0.1, q=3)
    for (push, pull, keys), one in zip(count_rounds(method, 4, servers=7), count_rounds(method, 4)):
        assert (push, pull, keys - 2 * 24 * 6) == one


# -- reproducible -------------------------------------------------------------------------------------------------


def test_same_seed_same_weights_other_seed_other_weights():
    method = methods.slim_quant(0.3, 0.15, q=3, bucket=8)
    first, again, other = (simulate(method, START, train, 2, 2, 1, seed).weights for seed in (1, 1, 2))
    assert first.tobytes() == again.tobytes()
    assert (first != other).any()


def test_more_servers_than_entries():
    simulation = simulate(methods.slim(0.5, 0.3, q=2), [1.0, 2.0], lambda k, w, s, t: w * 0.9, 3, 2, servers=5)
    assert simulation.exchange.sizes == (1, 1)
    assert np.isfinite(simulation.weights).all()


def test_trains_p_steps_per_round_on_every_worker():
    calls = []
    simulate(methods.plump(5), [0.0], lambda k, w, steps, t: calls.append((t, k, steps)) or w, 2, workers=2)
    assert calls == [(0, 0, 5), (0, 1, 5), (1, 0, 5), (1, 1, 5)]


# -- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rounds", "workers", "servers"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "2", True, None])
def test_refuses_numbers(name, value):
    with pytest.raises(ValueError, match=rf"{name} must be an integer of at least 1\. Received: "):
        simulate(methods.plump(), [0.0], train, **{"rounds": 1, "workers": 1, "servers": 1, name: value})


def test_refuses_no_weights():
    with pytest.raises(ValueError, match=r"initial must hold at least one weight\. Received: none"):
        simulate(methods.plump(), [], train, 1, 1)
