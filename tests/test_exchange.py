"""The four verbs: both ends know the same entries, nothing else changes, and bytes are those of the payloads."""

from __future__ import annotations

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from slimdp_tf import methods
from slimdp_tf.channel import joined
from slimdp_tf.exchange import Exchange, block_sizes, is_nothing, payload_bytes
from slimdp_tf.inspection import is_finite
from slimdp_tf.types import Entries, Note, anywhere, edited, reduced

SIZES = (50, 49)
METHODS = {
    "plump": methods.plump(),
    "quant": methods.quant(bucket=16),
    "quant, pull too": methods.quant(bucket=16, quantize_pull=True),
    "slim": methods.slim(0.3, 0.1, q=3),
    "slim, derived": methods.slim(0.3, 0.1, q=3, memory="carry", explorer_keys="derived"),
    "slim, explorer only": methods.slim(0.3, 0.0),
    "slim, core only": methods.slim(0.3, 0.3, q=3),
    "slim_quant": methods.slim_quant(0.3, 0.1, q=3, bucket=16),
}
for_every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


def draw_normal(size: int, number: int = 0) -> tf.Tensor:
    return tf.random.stateless_normal([size], [size, number])


def agree(exchange: Exchange, version: int = 1) -> list:
    """The first entries as the core, as many as beta asks for."""
    beta = getattr(exchange.method.agreement, "beta", 0.0)
    keys = [tf.range(int(round(beta * size)), dtype=tf.int32) for size in exchange.sizes]
    return exchange.agree(keys, version)


def cut_payload(payload) -> dict[str, int]:
    return {name: int(tf.size(tensor)) for name, tensor in payload.items()}


def count_bytes(payload) -> tuple[int, int]:
    values, keys = payload_bytes(payload)
    return int(values), int(keys)


# -- blocks -------------------------------------------------------------------------------------------------------


def test_block_sizes_by_hand():
    assert block_sizes(10, 3) == [4, 3, 3]
    assert block_sizes(9, 3) == [3, 3, 3]
    assert block_sizes(2, 3) == [1, 1, 0]
    assert block_sizes(1, 1) == [1]


@hypothesis.given(servers=st.integers(1, 8), data=st.data())
def test_blocks_own_every_entry_once_and_are_equal(servers, data):
    corners = [1, 2, max(1, servers - 1), servers, servers + 1, 7, 13, 97, 7919]
    entries = data.draw(st.one_of(st.sampled_from(corners), st.integers(1, 10**9)))
    sizes = block_sizes(entries, servers)
    assert len(sizes) == servers
    assert sum(sizes) == entries
    if entries < 16 * 1024 * servers:
        assert max(sizes) - min(sizes) <= 1
        assert sizes == sorted(sizes, reverse=True)
    else:  # each but the last ends on 64 bytes
        assert max(sizes) - min(sizes) < 32
        assert all(size % 16 == 0 for size in sizes[:-1])


# -- push ---------------------------------------------------------------------------------------------------------


@for_every_method
@pytest.mark.parametrize("whole", [False, True], ids=["chosen", "whole"])
def test_both_ends_know_the_same_entries(method, whole):
    exchange = Exchange(method, SIZES, 5)
    for block, agreed in enumerate(agree(exchange)):
        size, draw = SIZES[block], exchange.draw(4, 2)
        anchor, local = draw_normal(size, 1), draw_normal(size, 2)
        payload, chosen, edits = exchange.push(block, exchange.init_worker(anchor), local, agreed, draw, whole)
        parts = exchange.parts_of(block, payload, agreed, draw)
        known = joined(parts)
        assert (chosen is None) == (known is None)
        if chosen is not None:
            np.testing.assert_array_equal(chosen, known)
        entries = exchange.receive(block, payload, parts, whole)
        assert (entries.index is None) == (whole or chosen is None)
        index = np.arange(size) if entries.index is None else entries.index.numpy()
        # anchor - local, within a level of the codec where there is one
        allowed = 2 * 4.5 / 127 if "quant" in method.name else 0.0
        np.testing.assert_allclose(entries.value, (anchor - local).numpy()[index], atol=allowed, rtol=1e-6)
        if "anchor" in edits:  # the worker keeps what the server did not get: to the bit
            kept = edited(exchange.init_worker(anchor), edits)["anchor"].numpy()[index]
            np.testing.assert_array_equal(kept, anchor.numpy()[index] - entries.value.numpy())


def test_payloads_of_slim():
    # Block of 50: 5 in the core. Of 99 entries, 20 are explored (round(0.2 * 99)); outside: 45 and 44 of 89:
    # floor(20 * 45 / 89) = 10 in the first block, 10 in the second.
    exchange = Exchange(METHODS["slim"], SIZES)
    agreed = agree(exchange)
    state, local = exchange.init_worker(tf.zeros([50])), tf.ones([50])
    payload, chosen, _ = exchange.push(0, state, local, agreed[0], exchange.draw(1, 0), False)
    assert cut_payload(payload) == {"1.keys": 10, "0.value": 5, "1.value": 10, "signature.keys": 3}
    assert count_bytes(payload) == (4 * 15, 4 * 10 + 24)
    assert chosen.numpy()[:5].tolist() == [0, 1, 2, 3, 4]
    assert not set(chosen.numpy()[5:].tolist()) & set(range(5))
    whole, again, _ = exchange.push(0, state, local, agreed[0], exchange.draw(1, 0), True)
    assert cut_payload(whole) == {"1.keys": 10, "whole.value": 50, "signature.keys": 3}
    np.testing.assert_array_equal(chosen, again)


def test_a_second_push_sends_the_signature_instead_of_the_core():
    exchange = Exchange(METHODS["slim"], SIZES)
    first, other = agree(exchange, 1), agree(exchange, 2)
    state = exchange.init_worker(tf.zeros([50]))
    signatures = [
        exchange.push(0, state, state["anchor"], agreed, exchange.draw(number, 0), False)[0]["signature.keys"].numpy()
        for number, agreed in enumerate((first[0], first[0], other[0]))
    ]
    np.testing.assert_array_equal(signatures[0], signatures[1])
    assert (signatures[0] != signatures[2]).any()
    np.testing.assert_array_equal(signatures[0], first[0]["signature"])


@pytest.mark.slow
@for_every_method
def test_draws_differ_by_round_worker_and_block(method):
    exchange = Exchange(method, (49, 49), 5)
    agreed, state, local = agree(exchange)[0], exchange.init_worker(draw_normal(49, 1)), draw_normal(49, 2)

    def push(block, number, worker, seed=5):
        other = Exchange(method, (49, 49), seed)
        payload = other.push(block, state, local, agreed, other.draw(number, worker), False)[0]
        return {name: tensor.numpy().tobytes() for name, tensor in payload.items()}

    first = push(0, 0, 0)
    assert first == push(0, 0, 0)
    is_random = method.name != "plump" and method != METHODS["slim, core only"]
    # Blocks of one size: where the share of each is the same, only the seed differs.
    for other in (push(1, 0, 0), push(0, 1, 0), push(0, 0, 1), push(0, 0, 0, seed=6)):
        assert (other != first) == is_random


def test_seeds_of_all_sizes_are_told_apart():
    draws = {tuple(Exchange(methods.plump(), (1,), seed).draw(0, 0).numpy().tolist()) for seed in (0, 1, 2**31, 2**40)}
    assert len(draws) == 4


@pytest.mark.slow
def test_traced_and_eager_agree():
    exchange = Exchange(METHODS["slim_quant"], SIZES, 1)
    agreed, state, local = agree(exchange)[1], exchange.init_worker(draw_normal(49, 1)), draw_normal(49, 2)

    def run(state, local, agreed, number):
        draw = exchange.draw(number, 1)
        payload, chosen, edits = exchange.push(1, state, local, agreed, draw, False)
        state = edited(state, edits)
        entries = exchange.receive(1, payload, exchange.parts_of(1, payload, agreed, draw), False)
        answer, _ = exchange.answer(1, {}, draw_normal(49, 3), dict(agreed, pushed=chosen), draw)
        local, edits = exchange.adopt(1, state, local, answer, dict(agreed, pushed=chosen), draw)
        return payload, entries.index, entries.value, local, edited(state, edits)

    eager, traced = (f(state, local, agreed, tf.constant(7)) for f in (run, tf.function(run)))
    for one, other in zip(tf.nest.flatten(eager), tf.nest.flatten(traced)):
        assert one.numpy().tobytes() == other.numpy().tobytes()


# -- pull ---------------------------------------------------------------------------------------------------------


@for_every_method
def test_a_pull_changes_what_was_pushed_and_nothing_else(method):
    exchange = Exchange(method, SIZES, 5)
    agreed, draw, start = agree(exchange)[0], exchange.draw(4, 2), draw_normal(50, 0)
    local, value = start + 0.1 * draw_normal(50, 1), start + 0.1 * draw_normal(50, 2)
    state, shadow = exchange.init_worker(start), exchange.init_shadow(start)
    _, chosen, edits = exchange.push(0, state, local, agreed, draw, False)
    held = agreed if chosen is None else dict(agreed, pushed=chosen)
    answer, shadow_edits = exchange.answer(0, shadow, value, held, draw)
    adopted, _ = exchange.adopt(0, edited(state, edits), local, answer, held, draw)
    inside = np.arange(50) if chosen is None else chosen.numpy()
    outside = np.setdiff1d(np.arange(50), inside)
    np.testing.assert_array_equal(adopted.numpy()[outside], local.numpy()[outside])
    theirs = exchange.held_by_worker(edited(shadow, shadow_edits), value)
    np.testing.assert_array_equal(adopted.numpy()[inside], theirs.numpy()[inside])
    np.testing.assert_allclose(theirs, value, atol=0.005)


def test_the_server_s_picture_of_its_workers_is_theirs_to_the_bit():
    exchange = Exchange(METHODS["quant, pull too"], (50,), 3)
    (agreed,), value = agree(exchange), draw_normal(50, 0)
    state, shadow, local = exchange.init_worker(value), exchange.init_shadow(value), value
    for number in range(5):
        value = value - 0.1 * draw_normal(50, number + 1)
        draw = exchange.draw(number, -1)
        answer, edits = exchange.answer(0, shadow, value, agreed, draw)
        shadow = edited(shadow, edits)
        local, edits = exchange.adopt(0, state, local, answer, agreed, draw)
        state = edited(state, edits)
        np.testing.assert_array_equal(local, exchange.held_by_worker(shadow, value))
        np.testing.assert_array_equal(local, state["mirror"])
        # What the last rounding left out is at most a level, and goes with the next answer.
        assert np.abs(local - value).max() <= answer["0.scale"].numpy().max() / 127 * 1.001


# -- merge and refresh --------------------------------------------------------------------------------------------


def test_merge_is_the_method_s():
    exchange = Exchange(methods.slim(0.4, 0.0, average="contributors"), (4,))
    (agreed,), value = agree(exchange), tf.zeros([4])
    notes = [Note(tf.constant(True), tf.constant(0.0), tf.constant(1))] * 2
    incoming, moved = [], np.zeros(4)
    for worker in range(2):
        draw = exchange.draw(0, worker)
        payload, chosen, _ = exchange.push(0, {"anchor": value}, value - 1.0, agreed, draw, False)
        incoming.append(exchange.receive(0, payload, exchange.parts_of(0, payload, agreed, draw), False))
        moved[chosen.numpy()] = -1.0
    increments, _ = exchange.merge(exchange.init_server(value), value, incoming, notes)
    for increment in increments:
        value = reduced(value, increment)
    np.testing.assert_array_equal(value, moved)  # -1 by whoever sent it, one or both


def test_what_workers_sent_is_read_together_by_the_round_s_own_draw():
    exchange = Exchange(methods.terngrad(), (200,))
    incoming = [Entries(None, tf.ones([200])), Entries(None, 2.0 * tf.ones([200]))]
    first, again, later = (exchange.together(0, incoming, exchange.draw(t, -1)) for t in (0, 0, 1))
    np.testing.assert_array_equal(first[1].value, incoming[1].value)
    np.testing.assert_array_equal(first[0].value, again[0].value)
    assert 40 < np.sum(first[0].value != later[0].value) < 160
    raw = Exchange(methods.plump(), (200,))
    assert raw.together(0, incoming, raw.draw(0, -1)) is incoming


def test_refresh_spans_the_blocks():
    exchange = Exchange(methods.slim(0.5, 0.4, c=1.0), (3, 2))
    values, updates = [tf.constant([1.0, 0.0, 5.0]), tf.constant([4.0, 0.0])], [tf.zeros([3]), tf.zeros([2])]
    keys = exchange.refresh(values, updates, anywhere)
    assert [key.numpy().tolist() for key in keys] == [[2], [0]]  # round(0.4 * 5) = 2 greatest: 5 and 4
    agreed = exchange.agree(keys, 3)
    assert [a["share"].numpy().tolist() for a in agreed] == [[0, 2, 3, 5], [2, 1, 3, 5]]
    assert [a["signature"].numpy()[:2].tolist() for a in agreed] == [[3, 1], [3, 1]]


# -- payloads -----------------------------------------------------------------------------------------------------


def test_bytes_are_those_of_the_tensors():
    payload = {
        "0.keys": tf.zeros([3], tf.int32),
        "signature.keys": tf.zeros([3], tf.int64),
        "0.level": tf.zeros([10], tf.int8),
        "0.scale": tf.zeros([2], tf.float32),
        "1.value": tf.zeros([5], tf.float16),
    }
    assert count_bytes(payload) == (10 + 2 * 4 + 5 * 2, 3 * 4 + 3 * 8)
    assert count_bytes({}) == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["plump", "quant", "slim", "slim_quant"])
def test_an_update_that_is_no_number_is_seen(name, bad):
    exchange = Exchange(METHODS[name], SIZES)
    agreed, local = agree(exchange)[0], np.zeros(50, np.float32)
    for whole in (False, True):
        local[:] = 0.0
        payload = exchange.push(
            0, exchange.init_worker(tf.zeros([50])), tf.constant(local), agreed, exchange.draw(0, 0), whole
        )[0]
        assert is_finite(payload)
        local[2] = bad  # of the core, so that slim sends it
        payload = exchange.push(
            0, exchange.init_worker(tf.zeros([50])), tf.constant(local), agreed, exchange.draw(0, 0), whole
        )[0]
        assert not is_finite(payload)


@for_every_method
def test_an_update_of_zeros_is_nothing_and_any_other_is_something(method):
    exchange, local = Exchange(method, SIZES), draw_normal(SIZES[0])
    agreed = dict(agree(exchange)[0], round=tf.constant(0))
    state, draw = exchange.init_worker(local), exchange.draw(0, 0)
    assert is_nothing(exchange.push(0, state, local, agreed, draw, False)[0])
    assert not is_nothing(exchange.push(0, state, local + 1.0, agreed, draw, False)[0])


def test_a_payload_without_floats_may_be_something():
    assert not is_nothing({"codes": tf.zeros([3], tf.uint8)})
