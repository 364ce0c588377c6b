"""Blocks on their servers: a push stores and counts once, a merge folds once, what is wrong touches nothing."""

import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf import methods
from slimdp_tf.distribute.local_variable import standing_on
from slimdp_tf.distribute.shared import templates_of
from slimdp_tf.distribute.slots import Block
from slimdp_tf.exchange import Exchange
from slimdp_tf.inspection import ABSENT, MERGED, NOT_FINITE, WRONG_KEYS, WRONG_LENGTHS, WRONG_SIGNATURE
from tests.distribute.one_process import here, read_vector, write_vector

pytestmark = pytest.mark.slow

SIZE, WORKERS = 6, 2
START = np.arange(SIZE, dtype=np.float32)


class Bench:
    """One block under `method`, and the functions of two workers and of the merge."""

    def __init__(self, method=None, workers: int = WORKERS):
        self.exchange = Exchange(method or methods.plump(), (SIZE,), seed=1)
        self.agreed = self.exchange.agree([tf.constant([1, 4], tf.int32)], 1)[0]
        self.block = Block(self.exchange, 0, here(), workers, templates_of(self.exchange)[0])
        self.workers = workers
        self.block.value.assign(START)
        self._call(lambda: self.block.adopt_keys(self.agreed))

    def _call(self, function):
        def traced():
            result = function()
            return tf.zeros([]) if result is None or isinstance(result, list) else result

        return tf.function(traced, autograph=False).get_concrete_function()()

    def push(self, worker: int, round_number: int, update, whole: bool = False, signature=None) -> None:
        """Stores an update, f32[6], of `worker` for a round."""
        agreed = dict(self.agreed, signature=self.agreed["signature"] if signature is None else signature)
        state, draw = (
            self.exchange.init_worker(tf.constant(update, tf.float32)),
            self.exchange.draw(round_number, worker),
        )

        def store():
            payload = self.exchange.push(0, state, tf.zeros([SIZE]), agreed, draw, whole)[0]
            return self.block.store(payload, tf.constant(round_number, tf.int64), tf.constant([np.nan, 1.0]))

        with standing_on(worker):
            self._call(store)

    def merge(self, round_number: int, whole: bool = False) -> list[int]:
        """Folds a round and makes the answers ready; the verdicts."""
        number = tf.constant(round_number, tf.int64)

        def fold():
            choices = self.block.choices()
            verdicts, chosen = self.block.inspect(number, whole, choices), [parts for parts, _ in choices]
            self.block.fold(number, verdicts, whole, chosen, True)
            self.block.prepare_answers(chosen)
            return verdicts

        return self._call(fold).numpy().tolist()

    def answer(self, worker: int) -> dict[str, np.ndarray]:
        with standing_on(worker):
            return {name: t.numpy() for name, t in self._call(self.block.read_answer).items()}

    @property
    def value(self) -> np.ndarray:
        return self.block.value.numpy()


SLIM = methods.slim(0.6, 0.3, q=4)


def test_a_merge_takes_the_mean_of_the_pushes():
    bench = Bench()
    bench.push(0, 0, np.full(SIZE, 2.0))
    bench.push(1, 0, np.full(SIZE, 4.0))
    assert bench.merge(0) == [MERGED, MERGED]
    np.testing.assert_array_equal(bench.value, START - 3.0)


def test_a_push_that_is_repeated_counts_once():
    bench = Bench()
    for _ in range(3):
        bench.push(0, 0, np.full(SIZE, 2.0))
    bench.push(1, 0, np.full(SIZE, 4.0))
    bench.merge(0)
    np.testing.assert_array_equal(bench.value, START - 3.0)


def test_a_push_that_is_repeated_after_the_merge_counts_once():
    bench = Bench()
    bench.push(0, 0, np.full(SIZE, 2.0))
    bench.push(1, 0, np.full(SIZE, 4.0))
    bench.merge(0)
    bench.push(0, 0, np.full(SIZE, 2.0))
    assert bench.merge(1) == [ABSENT, ABSENT]
    np.testing.assert_array_equal(bench.value, START - 3.0)


@pytest.mark.parametrize("method", [methods.plump(), SLIM, methods.quant()], ids=lambda m: m.name)
def test_a_merge_that_is_called_twice_folds_once(method):
    bench = Bench(method)
    bench.push(0, 0, np.arange(SIZE))
    bench.push(1, 0, np.ones(SIZE))
    bench.merge(0)
    once, answer = bench.value, bench.answer(0)
    assert np.abs(once - START).max() > 0.1
    bench.merge(0)
    np.testing.assert_array_equal(bench.value, once)
    for name, tensor in bench.answer(0).items():
        np.testing.assert_array_equal(tensor, answer[name])


def test_a_worker_that_did_not_push_is_absent_and_not_counted():
    bench = Bench()
    bench.push(1, 0, np.full(SIZE, 4.0))
    assert bench.merge(0) == [ABSENT, MERGED]
    np.testing.assert_array_equal(bench.value, START - 4.0)


def test_an_old_push_is_not_folded_into_a_later_round():
    bench = Bench()
    bench.push(0, 0, np.full(SIZE, 2.0))
    bench.push(1, 1, np.full(SIZE, 4.0))
    assert bench.merge(1) == [ABSENT, MERGED]
    np.testing.assert_array_equal(bench.value, START - 4.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("method", [methods.plump(), methods.quant(), methods.slim(1.0, 1.0)], ids=lambda m: m.name)
def test_an_update_that_is_not_finite_touches_nothing(method, bad):
    bench = Bench(method)
    bench.push(0, 0, [1.0, 1.0, bad, 1.0, 1.0, 1.0])
    bench.push(1, 0, np.full(SIZE, 4.0))
    assert bench.merge(0) == [NOT_FINITE, MERGED]
    np.testing.assert_allclose(bench.value, START - 4.0, rtol=1e-5)
    bench.push(0, 1, np.full(SIZE, bad))
    bench.push(1, 1, np.full(SIZE, bad))
    before = bench.value
    assert bench.merge(1) == [NOT_FINITE, NOT_FINITE]
    np.testing.assert_array_equal(bench.value, before)


@pytest.mark.parametrize("whole", [False, True])
def test_a_push_with_another_signature_touches_nothing(whole):
    bench = Bench(SLIM)
    for part in range(3):  # version, length, hash
        signature = bench.agreed["signature"] + tf.one_hot(part, 3, dtype=tf.int64)
        bench.push(0, part, np.ones(SIZE), whole, signature)
        assert bench.merge(part, whole) == [WRONG_SIGNATURE, ABSENT]
        np.testing.assert_array_equal(bench.value, START)


def shorten(block: Block, worker: int, name: str) -> None:
    vector = block.slots[worker][name]
    write_vector(vector, read_vector(vector)[:-1])


@pytest.mark.parametrize("method", [methods.plump(), methods.quant(), SLIM, methods.top_k(0.5)], ids=lambda m: m.name)
def test_a_push_of_a_wrong_length_touches_nothing(method):
    bench = Bench(method)
    for number, name in enumerate(sorted(set(bench.block.slots[0]) - {"signature.keys"})):
        is_whole = name.startswith("whole.")
        bench.push(0, number, np.ones(SIZE), is_whole)
        shorten(bench.block, 0, name)
        assert bench.merge(number, is_whole) == [WRONG_LENGTHS, ABSENT]
        np.testing.assert_array_equal(bench.value, START)
    bench.push(1, 9, np.ones(SIZE))  # what lies in the other slot does not matter
    assert bench.merge(9) == [ABSENT, MERGED]


@pytest.mark.parametrize("key", [-1, SIZE, 2**31 - 1])
@pytest.mark.parametrize("method", [SLIM, methods.top_k(0.5), methods.random_k(0.5, keys="sent")], ids=lambda m: m.name)
def test_keys_beyond_the_block_touch_nothing_then_or_later(method, key):
    bench = Bench(method)
    (name,) = [n for n in bench.block.slots[0] if n.endswith(".keys") and n != "signature.keys"]
    bench.push(0, 0, np.ones(SIZE))
    keys = bench.block.slots[0][name]
    write_vector(keys, [key, *read_vector(keys)[1:]])
    assert bench.merge(0) == [WRONG_KEYS, ABSENT]
    np.testing.assert_array_equal(bench.value, START)
    bench.push(1, 1, np.ones(SIZE))
    assert bench.merge(1) == [ABSENT, MERGED]  # an answer is made for worker 0, too
    assert np.abs(bench.value - START).max() > 0
    for worker in range(WORKERS):
        assert all(np.isfinite(values).all() for values in bench.answer(worker).values())


def test_a_whole_push_is_told_from_a_chosen_one():
    bench = Bench(SLIM)
    bench.push(0, 0, np.full(SIZE, 2.0))  # leaves an ordinary payload in the slot
    bench.merge(0)
    bench.push(0, 1, np.full(SIZE, 10.0), whole=True)
    before = bench.value
    bench.merge(1, whole=True)
    np.testing.assert_array_equal(bench.value, before - 10.0)


def test_an_answer_holds_what_the_worker_chose():
    bench = Bench(SLIM)
    bench.push(0, 0, np.arange(SIZE) + 1.0)
    bench.push(1, 0, np.ones(SIZE))
    bench.merge(0)
    for worker in range(WORKERS):
        draw = bench.exchange.draw(0, worker)
        chosen = bench.exchange.push(
            0, bench.exchange.init_worker(tf.zeros([SIZE])), tf.zeros([SIZE]), bench.agreed, draw, False
        )[1]
        (values,) = bench.answer(worker).values()
        np.testing.assert_array_equal(values, bench.value[chosen])
        assert len(values) == 4


def test_a_dense_answer_is_one_for_all():
    bench = Bench()
    bench.push(0, 0, np.ones(SIZE))
    bench.merge(0)
    assert len(bench.block.answers) == 1
    for worker in range(WORKERS):
        (values,) = bench.answer(worker).values()
        np.testing.assert_array_equal(values, bench.value)


def test_a_reset_voids_what_lies_in_the_slots():
    bench = Bench()
    bench.push(0, 5, np.ones(SIZE))
    bench.block.reset(tf.fill([SIZE], 9.0))
    assert bench.merge(5) == [ABSENT, ABSENT]
    np.testing.assert_array_equal(bench.value, np.full(SIZE, 9.0))


def test_everything_is_the_block():
    bench = Bench()
    with standing_on(0):
        np.testing.assert_array_equal(bench._call(bench.block.read_everything), START)
