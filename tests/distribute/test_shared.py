"""Shared variables: what a worker adopts and pushes, the key cache, and what the chief sees."""

import dataclasses
import functools

import hypothesis
import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from slimdp_tf import methods
from slimdp_tf.channel import Channel
from slimdp_tf.distribute.roles import Role
from slimdp_tf.distribute.shared import Shared
from slimdp_tf.measure.record import RoundRecord
from slimdp_tf.rules.memories import Carry
from slimdp_tf.rules.selectors import Pushed
from tests.cluster import strategy
from tests.distribute.one_process import Drill, here, make_variable, make_workers, read_vector, write_vector
from tests.training.small_models import compile_linear, flatten, make_data

pytestmark = pytest.mark.slow

N, WORKERS, PS = 40, 2, 2
ALPHA, BETA = 0.5, 0.25
CORE, EXPLORER = round(BETA * N), round((ALPHA - BETA) * N)
SIGNATURES = 2 * PS * 24  # bytes of one worker in one round: with the push and with the pull


def make_drill(method=None, workers: int = WORKERS, ps: int = 1) -> Drill:
    rng = np.random.default_rng(0)
    moves = rng.standard_normal((workers, N)) / 8
    return Drill(method or slim(), [rng.standard_normal((4, 8)), rng.standard_normal(8)], workers, ps, moves)


def slim(**arguments):
    return methods.slim(ALPHA, BETA, q=6, **arguments)


def shared_of(drill: Drill) -> Shared:
    return drill.rounds.cache.shared[Role.WEIGHT]


def keys_of(drill: Drill) -> list[int]:
    return [record.traffic.keys_bytes for record in drill.rounds.records]


def misses_of(drill: Drill) -> list[int]:
    return [record.cache_misses for record in drill.rounds.records]


# -- the key cache ----------------------------------------------------------------------------------------------------


@functools.cache
def records_of(explorer_keys: str) -> list[RoundRecord]:
    """14 rounds; cores are chosen after rounds 0, 5 and 11."""
    drill = make_drill(slim(explorer_keys=explorer_keys), ps=PS)
    for _ in range(14):
        drill.run()
    return drill.rounds.records


@pytest.mark.parametrize("explorer_keys", ["sent", "derived"])
def test_the_core_travels_after_it_was_chosen_and_never_else(explorer_keys):
    records, is_new = records_of(explorer_keys)[1:], [t - 1 in (0, 5, 11) for t in range(1, 14)]
    assert [record.cache_misses for record in records] == [WORKERS * PS * new for new in is_new]
    assert [record.cache_mismatches for record in records] == [0] * 13
    assert [record.cache_hits for record in records] == [WORKERS * PS * (not new) for new in is_new]
    explored = 4 * EXPLORER if explorer_keys == "sent" else 0
    ordinary = WORKERS * (explored + SIGNATURES)
    listed = WORKERS * (4 * CORE + PS * 4 * 8)  # the keys, and the block's share of the explorer
    assert [record.traffic.keys_bytes for record in records] == [ordinary + listed * new for new in is_new]


@pytest.mark.parametrize("method", [methods.plump(), methods.quant(), methods.slim(1.0, 1.0)], ids=lambda m: m.name)
def test_a_method_without_a_core_sends_no_keys_and_no_signatures(method):
    drill = make_drill(method)
    for _ in range(4):
        drill.run()
    assert keys_of(drill) == [0] * 4
    assert [(r.cache_hits, r.cache_misses) for r in drill.rounds.records] == [(0, 0)] * 4


def test_a_bad_signature_is_answered_by_the_full_list():
    """A worker's cache goes bad, keys included: it is told everything, and the weights are those of an equal run."""
    good, bad = make_drill(), make_drill()
    for _ in range(2):
        good.run(), bad.run()
    shelf, rng = shared_of(bad)._shelves[0], np.random.default_rng(1)
    for part in range(3):  # version, length, hash
        signature, core = shelf["signature"].variables[0], shelf["core"].variables[0]
        signature.assign(signature + tf.one_hot(part, 3, dtype=tf.int64))
        length = len(read_vector(core))
        write_vector(core, np.sort(rng.permutation(N)[:length]))
        good.run(), bad.run()
        np.testing.assert_array_equal(bad.values(), good.values())
        assert keys_of(bad)[-1] - keys_of(good)[-1] == 4 * length + 4 * 8
    assert misses_of(bad)[2:] == [1, 1, 1]
    assert [record.cache_mismatches for record in bad.rounds.records] == [0, 0, 1, 1, 1]
    assert misses_of(good)[2:] == [0, 0, 0]
    assert [record.refused for record in bad.rounds.records] == [0] * 5


class Spoil(keras.callbacks.Callback):
    """Spoils the key cache of a worker after some rounds: {round: (worker, block, part of the signature)}."""

    def __init__(self, under, spoiled: dict):
        super().__init__()
        self.under, self.spoiled, self.lengths = under, spoiled, {}

    def on_train_batch_end(self, batch, logs=None):
        if self.under.rounds.round in self.spoiled:
            worker, block, part = self.spoiled[self.under.rounds.round]
            shelf = self.under.rounds.cache.shared[Role.WEIGHT]._shelves[block]
            signature, core = shelf["signature"].variables[worker], shelf["core"].variables[worker]
            signature.assign_add(tf.one_hot(part, 3, dtype=tf.int64))
            self.lengths[self.under.rounds.round] = length = len(read_vector(core))
            write_vector(core, np.arange(length))


@pytest.mark.cluster
@pytest.mark.flaky(reruns=0)
def test_a_key_cache_that_goes_bad_on_a_real_worker_is_renewed_and_counted():
    """Version and hash go bad, keys included: the weights are those of an undisturbed run, bit for bit."""
    x, y = make_data(2 * 4 * 8)
    ends, records = [], []
    for spoiled in ({}, {2: (1, 0, 0), 6: (0, 1, 2)}):  # cores are chosen after rounds 0, 3 and 7
        under = strategy(methods.slim(0.6, 0.3, q=4, memory="carry", average="contributors"))
        spoil, model = Spoil(under, spoiled), compile_linear(under)
        model.fit(x, y, batch_size=4, shuffle=False, callbacks=[spoil], verbose=0)
        ends.append(flatten(model))
        records.append(under.records)
    good, bad = records
    assert [record.cache_misses for record in good] == [4, 4, 0, 0, 4, 0, 0, 0]
    assert [record.cache_misses for record in bad] == [4, 4, 1, 0, 4, 0, 1, 0]
    assert [record.cache_mismatches for record in good] == [0] * 8
    assert [record.cache_mismatches for record in bad] == [0, 0, 1, 0, 0, 0, 1, 0]
    listed = [b.traffic.keys_bytes - g.traffic.keys_bytes for g, b in zip(good, bad)]
    assert listed == [4 * spoil.lengths[n] + 4 * 8 if n in spoil.lengths else 0 for n in range(8)]
    assert [record.refused for record in bad] == [0] * 8
    np.testing.assert_array_equal(ends[1], ends[0])


def test_a_push_under_a_bad_signature_is_refused_and_the_worker_takes_everything():
    """The server's keys change between pull and push: the push cannot be read, and nothing of it is."""
    drill = make_drill(workers=1)
    for _ in range(3):
        drill.run()
    before, block = drill.values(), shared_of(drill).blocks[0]

    def spoil(elements, arguments):
        block.signature.assign_add(tf.constant([0, 0, 1], tf.int64))
        return drill.train(elements, arguments)

    drill.use(spoil)
    drill.run()
    assert drill.rounds.records[-1].refused == 1
    np.testing.assert_array_equal(drill.values(), before)
    drill.use(drill.train)
    drill.run()
    record = drill.rounds.records[-1]
    assert (record.refused, record.cache_misses) == (0, 1)
    assert record.traffic.pull_bytes == 4 * N  # everything
    assert np.abs(drill.values() - before).max() > 0


class KeyCache:
    """Keys on the servers of two blocks, and what the one worker holds of them."""

    def __init__(self):
        self.shared = Shared(slim(), [make_variable(np.zeros(N, np.float32))], [here()] * 2, make_workers(1), 0)
        lists = [tf.TensorSpec([None], tf.int32)] * 2
        choose = tf.function(self.shared.set_keys, autograph=False)
        self.choose = choose.get_concrete_function(lists, tf.TensorSpec([], tf.int64))
        self.renew = tf.function(self.shared.renew_keys, autograph=False).get_concrete_function()

    def held(self) -> list[dict[str, list[int]]]:
        """What the worker holds of each block."""
        shelves = [{name: shelf[name].variables[0] for name in ("core", "free")} for shelf in self.shared._shelves]
        return [{name: read_vector(vector).tolist() for name, vector in shelf.items()} for shelf in shelves]


make_key_cache = functools.cache(KeyCache)
CHOICES = st.lists(st.sets(st.integers(0, N // 2 - 1)).map(sorted), min_size=2, max_size=2)
SPOILS = st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(1, 2**62))  # block, part of its signature, by


@hypothesis.settings(max_examples=40)
@hypothesis.given(events=st.lists(st.one_of(CHOICES, SPOILS, st.none()), min_size=1, max_size=6))
def test_after_every_look_a_worker_holds_the_servers_keys_and_pays_for_what_had_changed(events):
    cache = make_key_cache()
    cache.choose([tf.zeros([0], tf.int32)] * 2, tf.constant(0, tf.int64))
    cache.renew()
    keys = [[], []]
    for version, event in enumerate(events, start=1):
        changed = [False, False]
        if isinstance(event, list):
            keys, changed = event, [True, True]
            cache.choose([tf.constant(core, tf.int32) for core in keys], tf.constant(version, tf.int64))
        elif event is not None:
            block, part, by = event
            changed[block] = True
            shelf = cache.shared._shelves[block]
            shelf["signature"].variables[0].assign_add(by * tf.one_hot(part, 3, dtype=tf.int64))
            write_vector(shelf["core"].variables[0], [])
        counts, matches = cache.renew()
        assert matches.numpy().tolist() == [2 - sum(changed), sum(changed), isinstance(event, tuple)]
        costs = [24 + is_new * (4 * len(core) + 32) for core, is_new in zip(keys, changed)]
        assert counts.numpy().tolist() == [[0, cost] for cost in costs]
        free = [sorted(set(range(N // 2)) - set(core)) for core in keys]
        assert cache.held() == [{"core": core, "free": rest} for core, rest in zip(keys, free)]


# -- updates both ways ------------------------------------------------------------------------------------------------


def held_by(drill: Drill, worker: int) -> np.ndarray:
    """The weights of a worker."""
    return np.concatenate([v.copies[worker].numpy().ravel() for v in drill.weights])


def shadow_of(drill: Drill, worker: int) -> np.ndarray:
    shadows = [block.shadows for block in shared_of(drill).blocks]
    return np.concatenate([s[worker if len(s) > 1 else 0]["anchor"].numpy() for s in shadows])


ALL_ALIKE = methods.top_k(0.8)
EACH_ITS_OWN = dataclasses.replace(
    methods.random_k(0.2), down=Channel((Pushed(),), memory=Carry())
)  # the server's update of the entries that a worker has pushed


@pytest.mark.parametrize("method", [ALL_ALIKE, EACH_ITS_OWN], ids=["all alike", "each its own"])
def test_every_worker_holds_what_the_server_thinks_it_does(method):
    drill = make_drill(method, ps=PS)
    for number in range(4):
        before = [shadow_of(drill, worker) for worker in range(WORKERS)]
        drill.run()
        if number:  # a push returns the block: the worker holds what it adopted, without what it trained
            for worker in range(WORKERS):
                np.testing.assert_array_equal(held_by(drill, worker), before[worker])
    assert (shadow_of(drill, 0) != shadow_of(drill, 1)).any() == (method is EACH_ITS_OWN)


@pytest.mark.parametrize("method", [ALL_ALIKE, EACH_ITS_OWN], ids=["all alike", "each its own"])
def test_who_pulls_everything_takes_over_its_shadow(method):
    drill = make_drill(method, ps=PS)
    drill.run(), drill.run()
    shadow = shadow_of(drill, 1)
    assert (shadow != drill.values()).any()
    drill.rounds._needs_everything.add(1)
    drill.run()
    np.testing.assert_array_equal(held_by(drill, 1), shadow)


def test_what_the_chief_sets_is_everyone_s():
    drill = make_drill(methods.top_k(0.8), ps=PS)
    drill.run(), drill.run()
    for variable in drill.weights:
        variable.assign(tf.ones_like(variable))
    drill.run()
    for worker in range(WORKERS):
        np.testing.assert_array_equal(held_by(drill, worker), np.ones(N))
        moved = shadow_of(drill, worker) != 1.0
        assert 0 < moved.sum() <= PS * round(0.2 * N / PS)


# -- bytes ------------------------------------------------------------------------------------------------------------


def test_bytes_are_those_of_the_tensors():
    records = records_of("sent")
    ordinary, whole, everything = (records[t].traffic for t in (3, 5, 1))
    chosen = WORKERS * 4 * (CORE + EXPLORER)
    assert (ordinary.push_bytes, ordinary.pull_bytes) == (chosen, chosen)
    assert (whole.push_bytes, whole.pull_bytes) == (WORKERS * 4 * N, chosen)
    assert (everything.push_bytes, everything.pull_bytes) == (chosen, WORKERS * 4 * N)
    for record in records:
        assert sum(record.traffic.ps_bytes) == record.traffic.exchange_bytes
        assert (record.core_entries, record.explorer_entries) == (CORE, EXPLORER)


def test_a_quantised_push_is_a_byte_per_entry_and_a_scale_per_bucket():
    drill = make_drill(methods.quant(bucket=8), ps=PS)
    drill.run()
    buckets = PS * -(-(N // PS) // 8)
    assert drill.rounds.records[0].traffic.push_bytes == WORKERS * (N + 4 * buckets)


# -- for the chief ----------------------------------------------------------------------------------------------------


def test_stores_and_fetches_every_variable():
    workers = make_workers(1)
    variables = [make_variable(np.zeros((2, 3), np.float32)), make_variable(np.zeros(4, np.float32))]
    shared = Shared(methods.plump(), variables, [here()] * 3, workers, 0)
    assert shared.nbytes == 40
    values = [tf.reshape(tf.range(6.0), (2, 3)), tf.range(4.0)]
    shared.store(values)
    for value, fetched in zip(values, shared.fetch()):
        np.testing.assert_array_equal(fetched, value)
    assert [block.value.shape for block in shared.blocks] == [[4], [3], [3]]


def test_a_model_smaller_than_the_servers_uses_as_many_as_it_has_entries():
    shared = Shared(methods.plump(), [make_variable(np.zeros(2, np.float32))], [here()] * 5, make_workers(1), 0)
    assert len(shared.blocks) == len(shared.devices) == 2


def test_a_worker_that_comes_back_gets_variables_that_hold_nothing():
    drill = make_drill()
    drill.run(), drill.run()
    shared = shared_of(drill)
    before = [shelf["signature"].variables[1] for shelf in shared._shelves]
    drill.rounds.workers.call(shared._furnish, [1])
    for shelf, old in zip(shared._shelves, before):
        assert shelf["signature"].variables[1] is not old
        np.testing.assert_array_equal(shelf["signature"].variables[1], [-1, -1, -1])
        assert len(read_vector(shelf["core"].variables[1])) == 0


def test_is_no_longer_asked_for_variables_after_its_release():
    drill = make_drill()
    shared, workers = shared_of(drill), drill.rounds.workers
    before = len(workers._furnishings)
    shared.release()
    assert len(workers._furnishings) == before - 1
