"""What must be equal to what, on a real cluster: methods with each other, with one process, with the simulation."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import slimdp_tf
from slimdp_tf import methods
from tests.cluster import begin_together, strategy

pytestmark = [pytest.mark.cluster, pytest.mark.flaky(reruns=0)]

_METHODS = {
    "plump": methods.plump(p=2),
    "quant": methods.quant(p=2, bucket=16),
    "quant_pull": methods.quant(p=2, bucket=16, quantize_pull=True),
    "slim": methods.slim(0.3, 0.15, p=2, q=4),
    "slim_carry": methods.slim(0.3, 0.15, p=2, q=4, memory="carry", average="contributors", explorer_keys="derived"),
    "slim_quant": methods.slim_quant(0.3, 0.15, p=2, q=4, bucket=16),
    "explore_only": methods.slim(0.2, 0.0, p=2, q=4, memory="carry", explorer_keys="derived"),
}
_VARIANTS = {
    "slim_carry_sent": methods.slim(0.3, 0.15, p=2, q=4, memory="carry", average="contributors", explorer_keys="sent"),
    "slim_contributors": methods.slim(0.3, 0.15, p=2, q=4, memory="forget", average="contributors"),
}
_OTHERS = {
    "half": methods.half(),
    "half_16": methods.half(dtype="float16", quantize_pull=False),
    "one_bit": methods.one_bit(),
    "one_bit_adagrad": methods.one_bit(quantize_pull=False, adagrad=True),
    "terngrad": methods.terngrad(p=2),
    "adaptive_quant": methods.adaptive_quant(4, sample=4),
    "distribution_quant": methods.distribution_quant(3),
    "top_k": methods.top_k(0.9),
    "top_k_sample": methods.top_k(0.8, p=2, sample=0.3, by="layer", drop_pull=False),
    "combine_sum": methods.local_combine("sum", 0.9, average=4),
    "combine_replace": methods.local_combine("replace", 0.9),
    "combine_error": methods.local_combine("error", 0.9, share=0.5, average=3),
    "random_k": methods.random_k(0.1),
    "random_k_keys": methods.random_k(0.1, keys="sent"),
    "dgc": methods.dgc(0.05, warmup=8, clip=1.0),
    "dgc_nesterov": methods.dgc(0.1, nesterov=True, sample=0.0, warmup=0),
    "threshold": methods.threshold(0.01),
    "relevance": methods.relevance(0.3),
    "predictive": methods.predictive(0.1),
    "sampled_rows": methods.sampled_rows(1, 1, tall=6),
    "local_sgd": methods.local_sgd(4),
    "post_local_sgd": methods.post_local_sgd(3, 3),
    "adaptive_period": methods.adaptive_period(4, 3),
    "fed_avg": methods.fed_avg(2),
    "easgd": methods.easgd(0.6, 2, 3),
    "eamsgd": methods.eamsgd(0.6, 2, 3),
    "bmuf": methods.bmuf(tau=2),
    "bmuf_plain": methods.bmuf(tau=2, nesterov=False),
    "diloco": methods.diloco(2),
    "loss_weighted": methods.loss_weighted(),
}


def _data(rows: int, seed: int = 0):
    rng, noise = np.random.default_rng(seed), np.random.default_rng([seed, 1])
    wanted, x = rng.standard_normal((6, 2)), rng.standard_normal((rows, 6)).astype(np.float32)
    return x, (x @ wanted + 0.1 * noise.standard_normal((rows, 2))).astype(np.float32)


def _model(learning_rate: float = 0.05) -> keras.Model:
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(9, "tanh"), keras.layers.Dense(2)])
    model.compile(keras.optimizers.SGD(learning_rate), "mse")
    return model


def _flat(model: keras.Model) -> np.ndarray:
    return np.concatenate([w.ravel() for w in model.get_weights()])


def _trained(method, workers: int, ps: int, rounds: int, seed: int = 3, steps: int | None = None) -> np.ndarray:
    """The weights after `rounds` rounds of 4-row batches, unshuffled; in all `steps` where these differ."""
    x, y = _data((steps or rounds * method.p) * 4 * workers)
    under = strategy(method, workers, ps, seed=seed)
    with under.scope():
        model = _model()
    model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
    return _flat(model)


_trained_once = functools.cache(_trained)  # for what several tests compare with


class _Local:
    """Local training of every worker of the simulation: one plain Keras model, set to each worker's weights."""

    def __init__(self, workers: int):
        self.model, self.workers, self.done = _model(), workers, [0] * workers
        self.shapes = [w.shape for w in self.model.get_weights()]
        self.x, self.y = _data(100 * 4 * workers)

    def __call__(self, worker: int, weights: np.ndarray, steps: int, number: int) -> tuple[np.ndarray, float]:
        cuts = np.cumsum([np.prod(s) for s in self.shapes])[:-1]
        self.model.set_weights([part.reshape(s) for part, s in zip(np.split(weights, cuts), self.shapes)])
        losses = []
        for _ in range(steps):
            first = self.done[worker] * 4
            rows = slice(first * self.workers + worker, (first + 4) * self.workers, self.workers)
            self.model.reset_metrics()
            losses.append(float(self.model.train_on_batch(self.x[rows], self.y[rows])))
            self.done[worker] += 1
        return _flat(self.model), float(np.mean(losses))


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


_PAIRS = [(workers, ps) for workers in (1, 2, 3) for ps in (1, 2, 3)]
_FEW_PAIRS = [(1, 1), (2, 3), (3, 2)]  # for variants of methods that are run with all
_LIKE_OTHERS = ("quant_pull", "explore_only")


@pytest.mark.parametrize(
    ("name", "workers", "ps"),
    [(name, *pair) for name in _METHODS for pair in (_FEW_PAIRS if name in _LIKE_OTHERS else _PAIRS)],
)
def test_the_cluster_is_the_simulation(name, workers, ps):
    _check_is_the_simulation(_METHODS[name], workers, ps)


@pytest.mark.parametrize(("workers", "ps"), _FEW_PAIRS)
@pytest.mark.parametrize("name", _VARIANTS)
def test_the_cluster_is_the_simulation_of_variants(name, workers, ps):
    _check_is_the_simulation(_VARIANTS[name], workers, ps)


@pytest.mark.parametrize("name", _OTHERS)
def test_the_cluster_is_the_simulation_of_other_methods(name):
    _check_is_the_simulation(_OTHERS[name], 2, 2)


def _check_is_the_simulation(method, workers: int, ps: int):
    rounds, local = 10, _Local(workers)
    expected = slimdp_tf.simulate(method, _flat(local.model), local, rounds, workers, ps, seed=3, shapes=local.shapes)
    trained = _trained_once(method, workers, ps, rounds, steps=expected.steps)
    np.testing.assert_allclose(trained, expected.weights, atol=1e-6)


_ALONE = {"pacing": "async", "staleness": 2}
_ASYNC = {
    "plump": methods.plump(p=2, **_ALONE),
    "slim": methods.slim(0.3, 0.15, p=2, q=4, **_ALONE),
    "slim_carry": methods.slim(0.3, 0.15, 2, 4, "auto", "carry", "contributors", "derived", **_ALONE),
    "top_k": methods.top_k(0.8, **_ALONE),
    "loss_weighted": methods.loss_weighted(**_ALONE),
}


@pytest.mark.parametrize("name", _ASYNC)
def test_without_a_barrier_the_cluster_is_the_simulation_in_the_order_observed(name):
    method, rounds = _ASYNC[name], 10
    x, y = _data(rounds * method.p * 4 * 2)
    under = strategy(method, 2, 2, seed=3)
    begin_together(under.rounds)
    local = _Local(2)  # after the process has become a chief
    with under.scope():
        model = _model()
    initial = _flat(model)
    model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
    order = under.rounds.merging.order
    assert sorted(order) == [0] * rounds + [1] * rounds
    expected = slimdp_tf.simulate(method, initial, local, 1, 2, 2, seed=3, shapes=local.shapes, arrivals=order)
    np.testing.assert_allclose(_flat(model), expected.weights, atol=1e-6)


@pytest.mark.parametrize("name", ["plump", "slim"])
def test_one_worker_without_a_barrier_is_in_step(name):
    alone = _trained(_ASYNC[name], 1, 2, rounds=10)
    np.testing.assert_allclose(alone, _trained(_METHODS[name], 1, 2, rounds=10), atol=1e-6)


def _first_run(name: str) -> np.ndarray:
    """What the comparison with the simulation has trained, too."""
    method = _METHODS[name]
    return _trained_once(method, 2, 2, 10, steps=10 * method.p)


@pytest.mark.parametrize("name", _METHODS)
def test_one_seed_gives_the_same_bits(name):
    first, second = _first_run(name), _trained(_METHODS[name], 2, 2, rounds=10)
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("name", ["slim_carry", "slim_quant"])
def test_another_seed_gives_other_bits(name):
    assert np.abs(_first_run(name) - _trained(_METHODS[name], 2, 2, rounds=10, seed=4)).max() > 1e-6


def _random_model() -> keras.Model:
    """With all that is random in a worker, and all that it has of its own."""
    keras.utils.set_random_seed(7)
    layers = [keras.layers.Dense(9, "tanh"), keras.layers.BatchNormalization(), keras.layers.Dropout(0.3)]
    model = keras.Sequential([keras.Input((6,)), *layers, keras.layers.Dense(2)])
    model.compile(keras.optimizers.Adam(0.05), "mse", metrics=["mae"])
    return model


def test_one_seed_gives_the_same_bits_with_all_that_is_random():
    x, y = _data(12 * 4 * 2)
    ends, told = [], []
    for _ in range(2):
        under = strategy(_METHODS["slim_carry"], 2, 2, seed=3)
        with under.scope():
            model = _random_model()
        told.append(model.fit(x, y, batch_size=4, shuffle=True, epochs=2, verbose=0).history)
        ends.append([v.numpy() for v in (*model.variables, *model.optimizer.variables)])
    for first, second in zip(*ends, strict=True):
        np.testing.assert_array_equal(first, second)
    assert told[0] == told[1] and len(told[0]["mae"]) == 2


def test_the_simulation_counts_the_bytes_of_the_cluster():
    method, rounds = _METHODS["slim"], 10
    local = _Local(2)
    expected = slimdp_tf.simulate(method, _flat(local.model), local, rounds, 2, 2, seed=3).traffic
    x, y = _data(rounds * method.p * 4 * 2)
    under = strategy(method, 2, 2, seed=3)
    with under.scope():
        model = _model()
    model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
    assert under.traffic.push_bytes == expected.push_bytes
    # The cluster pulls before a round, not after it: the last pull is left out, a first one of everything comes on top.
    assert abs(under.traffic.pull_bytes - expected.pull_bytes) <= 2 * 4 * tf.size(_flat(model)).numpy()
