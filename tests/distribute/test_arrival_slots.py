"""Blocks that fold each push by itself: once, one of K, with the keys that its worker was told."""

import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf import methods
from slimdp_tf.distribute.arrival_slots import ArrivingBlock
from slimdp_tf.distribute.local_variable import standing_on
from slimdp_tf.distribute.shared import templates_of
from slimdp_tf.exchange import Exchange
from slimdp_tf.inspection import ABSENT, MERGED, NOT_FINITE, WRONG_KEYS, WRONG_LENGTHS, WRONG_SIGNATURE
from tests.distribute.one_process import here, read_vector, write_vector

pytestmark = pytest.mark.slow

SIZE = 6
START = np.arange(SIZE, dtype=np.float32)
SLIM = methods.slim(0.6, 0.3, q=4, explorer_keys="derived", pacing="async")


class Bench:
    """One block under `method`, of two workers."""

    def __init__(self, method):
        self.exchange = Exchange(method, (SIZE,), seed=1)
        self.block = ArrivingBlock(self.exchange, 0, here(), 2, templates_of(self.exchange)[0])
        self.block.value.assign(START)
        self.choose([1, 4], 0)

    def call(self, function, worker: int = 0):
        def traced():
            result = function()
            return tf.zeros([]) if result is None or isinstance(result, list) else result

        with standing_on(worker):
            return tf.function(traced, autograph=False).get_concrete_function()()

    def choose(self, keys, version: int) -> None:
        agreed = self.exchange.agree([tf.constant(keys, tf.int32)], version)[0]
        self.call(lambda: self.block.adopt_keys(agreed))

    def push(self, worker: int, number: int, update, keys=(1, 4), version: int = 0) -> None:
        """Stores an update of a worker that holds `keys` of a version."""
        agreed = self.exchange.agree([tf.constant(keys, tf.int32)], version)[0]
        state, draw = self.exchange.init_worker(tf.constant(update, tf.float32)), self.exchange.draw(number, worker)

        def store():
            payload = self.exchange.push(0, state, tf.zeros([SIZE]), agreed, draw, False)[0]
            return self.block.store(payload, tf.constant(number, tf.int64), tf.constant([np.nan, 1.0]))

        self.call(store, worker)

    def merge(self, worker: int, number: int) -> int:
        """Merges the push of a worker; the verdict."""
        others = tf.constant([w != worker for w in range(2)])

        def fold():
            choice = self.block.choose_here(tf.constant(number, tf.int64), tf.constant(worker))
            verdict = self.block.inspect_here(tf.constant(number, tf.int64), False, choice)

            def merged():
                self.block.fold_here(tf.constant(number, tf.int64), tf.constant(worker), False, others, choice)
                return verdict

            return tf.cond(tf.equal(verdict, MERGED), merged, lambda: verdict)

        return int(self.call(fold, worker))

    def told(self, worker: int) -> tuple[int, list[int]]:
        """Version and keys that a worker is to hold."""
        version = int(self.call(self.block.read_signature, worker)[0])
        return version, self.call(self.block.read_keys, worker)["core"].numpy().tolist()


def test_a_push_is_folded_once_and_as_one_of_two():
    bench = Bench(methods.plump(pacing="async"))
    assert bench.merge(0, 0) == ABSENT
    bench.push(0, 0, np.full(SIZE, 2.0))
    assert [bench.merge(0, 0), bench.merge(0, 0), bench.merge(1, 0)] == [MERGED, ABSENT, ABSENT]
    np.testing.assert_allclose(bench.block.value, START - 1.0)
    np.testing.assert_allclose(bench.call(bench.block.read_answer, 0)["0.value"], START - 1.0)
    bench.push(1, 0, np.full(SIZE, 4.0))
    assert bench.merge(1, 0) == MERGED
    np.testing.assert_allclose(bench.block.value, START - 3.0)
    np.testing.assert_allclose(bench.call(bench.block.read_answer, 0)["0.value"], START - 1.0)  # made by its own merge


def test_what_is_not_finite_touches_nothing():
    bench = Bench(methods.plump(pacing="async"))
    bench.push(0, 0, np.full(SIZE, np.nan))
    assert bench.merge(0, 0) == NOT_FINITE
    np.testing.assert_array_equal(bench.block.value, START)


@pytest.mark.parametrize("method", [methods.plump, methods.slim, methods.top_k], ids=lambda factory: factory.__name__)
def test_what_is_of_a_wrong_length_or_beyond_the_block_touches_nothing(method):
    bench = Bench(method(pacing="async"))
    for number, (name, vector) in enumerate(sorted(bench.block.slots[0].items())):
        if name.startswith("whole.") or name == "signature.keys":
            continue
        bench.push(0, number, np.full(SIZE, 2.0))
        before, good = bench.block.value.numpy(), read_vector(vector)
        write_vector(vector, good[:-1])
        assert bench.merge(0, number) == WRONG_LENGTHS
        if name.endswith(".keys"):
            write_vector(vector, [*good[:-1], SIZE])
            assert bench.merge(0, number) == WRONG_KEYS
        np.testing.assert_array_equal(bench.block.value, before)
        write_vector(vector, good)
        assert bench.merge(0, number) == MERGED


def test_the_keys_before_the_last_are_kept_for_those_who_were_told_them():
    bench = Bench(SLIM)
    bench.push(0, 0, np.full(SIZE, 2.0))
    assert bench.merge(0, 0) == MERGED
    bench.choose([0, 5], 1)
    bench.push(0, 1, np.full(SIZE, 2.0))  # worker 0 was told before the choice
    before = bench.block.value.numpy()
    assert bench.told(0) == (0, [1, 4])
    assert bench.merge(0, 1) == MERGED
    moved = before - bench.block.value.numpy()
    np.testing.assert_allclose(moved[[1, 4]], 1.0)
    assert bench.told(0) == (1, [0, 5]) and bench.told(1) == (0, [1, 4])
    bench.push(0, 2, np.full(SIZE, 2.0))
    assert bench.merge(0, 2) == WRONG_SIGNATURE
    bench.push(0, 3, np.full(SIZE, 2.0), [0, 5], 1)
    assert bench.merge(0, 3) == MERGED
