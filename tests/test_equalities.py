"""What must be equal to what, on a real cluster: methods with each other, with one process, with the simulation."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import slimdp_tf
from slimdp_tf import methods
from tests.cluster import strategy

pytestmark = pytest.mark.cluster

_METHODS = {
    "plump": methods.plump(p=2),
    "quant": methods.quant(p=2, bucket=16),
    "quant_pull": methods.quant(p=2, bucket=16, quantize_pull=True),
    "slim": methods.slim(0.3, 0.15, p=2, q=4),
    "slim_carry": methods.slim(0.3, 0.15, p=2, q=4, memory="carry", average="contributors", explorer_keys="derived"),
    "slim_quant": methods.slim_quant(0.3, 0.15, p=2, q=4, bucket=16),
    "explore_only": methods.slim(0.2, 0.0, p=2, q=4, memory="carry", explorer_keys="derived"),
}


def _data(rows: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, 6)).astype(np.float32)
    return x, (x @ rng.standard_normal((6, 2)) + 0.1 * rng.standard_normal((rows, 2))).astype(np.float32)


def _model(learning_rate: float = 0.05) -> keras.Model:
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(9, "tanh"), keras.layers.Dense(2)])
    model.compile(keras.optimizers.SGD(learning_rate), "mse")
    return model


def _flat(model: keras.Model) -> np.ndarray:
    return np.concatenate([w.ravel() for w in model.get_weights()])


def _trained(method, workers: int, ps: int, rounds: int, seed: int = 3) -> np.ndarray:
    """The weights after `rounds` rounds of 4-row batches, unshuffled."""
    x, y = _data(rounds * method.p * 4 * workers)
    under = strategy(method, workers, ps, seed=seed)
    with under.scope():
        model = _model()
    model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
    return _flat(model)


class _Local:
    """Local training of every worker of the simulation: one plain Keras model, set to each worker's weights."""

    def __init__(self, method, workers: int, rounds: int):
        self.model, self.method, self.workers = _model(), method, workers
        self.x, self.y = _data(rounds * method.p * 4 * workers)

    def __call__(self, worker: int, weights: np.ndarray, steps: int, number: int) -> np.ndarray:
        shapes = [w.shape for w in self.model.get_weights()]
        cuts = np.cumsum([np.prod(s) for s in shapes])[:-1]
        self.model.set_weights([part.reshape(s) for part, s in zip(np.split(weights, cuts), shapes)])
        for step in range(steps):
            first = (number * self.method.p + step) * 4
            rows = slice(first * self.workers + worker, (first + 4) * self.workers, self.workers)
            self.model.train_on_batch(self.x[rows], self.y[rows])
        return _flat(self.model)


def test_slim_with_everything_is_plump_bit_for_bit():
    slim = _trained(methods.slim(alpha=1.0, beta=1.0), 2, 2, rounds=20)
    np.testing.assert_array_equal(slim, _trained(methods.plump(), 2, 2, rounds=20))


def test_plump_of_four_workers_is_one_process_on_the_joined_batch():
    x, y = _data(50 * 4 * 8)
    alone = _model()
    alone.fit(x, y, batch_size=4 * 8, shuffle=False, verbose=0)
    expected = _flat(alone)  # read before the process becomes a chief
    under = strategy(methods.plump(), workers=4, ps=2)
    with under.scope():
        model = _model()
    model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    assert len(under.records) == 50
    np.testing.assert_allclose(_flat(model), expected, atol=1e-5)


def test_one_worker_is_plain_fit():
    x, y = _data(50 * 8)
    alone = _model()
    alone.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    expected = _flat(alone)  # read before the process becomes a chief
    under = strategy(methods.plump(), workers=1, ps=1)
    with under.scope():
        model = _model()
    history = model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    np.testing.assert_allclose(_flat(model), expected, atol=1e-5)
    assert history.history["loss"][0] == pytest.approx(alone.history.history["loss"][0], rel=1e-4)


@pytest.mark.parametrize(("workers", "ps"), [(1, 1), (2, 3), (3, 2)])
@pytest.mark.parametrize("name", _METHODS)
def test_the_cluster_is_the_simulation(name, workers, ps):
    method, rounds = _METHODS[name], 10
    local = _Local(method, workers, rounds)
    expected = slimdp_tf.simulate(method, _flat(local.model), local, rounds, workers, ps, seed=3)
    np.testing.assert_allclose(_trained(method, workers, ps, rounds), expected.weights, atol=1e-6)


@pytest.mark.parametrize("name", ["slim_carry", "slim_quant"])
def test_one_seed_gives_the_same_bits(name):
    first, second = (_trained(_METHODS[name], 3, 2, rounds=10) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert np.abs(first - _trained(_METHODS[name], 3, 2, rounds=10, seed=4)).max() > 1e-6


def test_the_simulation_counts_the_bytes_of_the_cluster():
    method, rounds = _METHODS["slim"], 10
    local = _Local(method, 2, rounds)
    expected = slimdp_tf.simulate(method, _flat(local.model), local, rounds, 2, 2, seed=3).traffic
    x, y = _data(rounds * method.p * 4 * 2)
    under = strategy(method, 2, 2, seed=3)
    with under.scope():
        model = _model()
    model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
    assert under.traffic.push_bytes == expected.push_bytes
    # The cluster pulls before a round, not after it: the last pull is left out, a first one of everything comes on top.
    assert abs(under.traffic.pull_bytes - expected.pull_bytes) <= 2 * 4 * tf.size(_flat(model)).numpy()
