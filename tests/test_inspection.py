"""What a server refuses: whatever is wrong with a payload is told in words, and what it takes it can read."""

from __future__ import annotations

import functools

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from slimdp_tf import methods
from slimdp_tf.exchange import Exchange
from slimdp_tf.inspection import (
    MERGED,
    NOT_FINITE,
    SIGNATURE,
    WRONG_KEYS,
    WRONG_LENGTHS,
    WRONG_SIGNATURE,
    explain,
    gather_facts,
    inspect,
    is_finite,
    read_choice,
)

SHAPES = (((8, 5), (5, 1)), ((6, 7), (7, 1)))  # what the two blocks hold
SIZES = (45, 49)
METHODS = {name: getattr(methods, name)() for name in methods.names()} | {
    "sampled_rows": methods.sampled_rows(1, 1, tall=6),
    "slim, derived": methods.slim(0.3, 0.1, q=3, explorer_keys="derived"),
    "slim_quant": methods.slim_quant(0.3, 0.1, q=3, bucket=16),
    "quant": methods.quant(bucket=16),
    "adaptive_quant": methods.adaptive_quant(4, sample=4),
    "random_k, keys": methods.random_k(0.3, keys="sent"),
    "threshold": methods.threshold(0.5),
}
FORMS = {(method.up, method.agreement): name for name, method in reversed(METHODS.items())}  # of payloads: each once
METHODS = {name: METHODS[name] for name in FORMS.values()}


class Server:
    """One block of a method, with what its server holds of it."""

    def __init__(self, method, block: int = 0):
        self.exchange, self.block, self.size = Exchange(method, SIZES, 3, SHAPES), block, SIZES[block]
        keys = [tf.range(int(0.1 * size)) if method.agreement.period else tf.zeros([0], tf.int32) for size in SIZES]
        self.agreed = dict(self.exchange.agree(keys, 4)[block], round=tf.constant(2))
        self.draw = self.exchange.draw(2, 1)

    def push(self, whole: bool) -> dict[str, np.ndarray]:
        """What a worker sends whose every weight has moved."""
        anchor, moved = (tf.random.stateless_normal([self.size], [number, 1]) for number in range(2))
        state = self.exchange.init_worker(anchor)
        payload = self.exchange.push(self.block, state, moved, self.agreed, self.draw, whole)[0]
        return {name: tensor.numpy() for name, tensor in payload.items()}

    def judge(self, sent: dict[str, np.ndarray], whole: bool) -> tuple[int, str]:
        """The verdict and its words; what is taken must be readable, and lie within the block."""
        payload = {name: tf.constant(array) for name, array in sent.items()}
        choice = read_choice(self.exchange, self.block, payload, self.agreed, self.draw)
        given = (self.exchange, self.block, payload, choice, self.agreed["signature"], whole)
        verdict = int(inspect(*given))
        words = explain(self.exchange, self.block, gather_facts(*given), verdict)
        if verdict == MERGED:
            entries = self.exchange.receive(self.block, payload, choice[0], whole)
            index = np.arange(self.size) if entries.index is None else entries.index.numpy()
            assert len(index) == len(entries.value) <= self.size
            assert np.isin(index, np.arange(self.size)).all()
        return verdict, words


@functools.cache
def server_of(name: str) -> Server:
    return Server(METHODS[name])


def is_whole_of(name: str) -> list[bool]:
    return [False, True] if METHODS[name].agreement.whole else [False]


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_what_a_worker_sends_is_taken(name):
    for block in range(2):
        server = Server(METHODS[name], block)
        for whole in is_whole_of(name):
            assert server.judge(server.push(whole), whole) == (MERGED, "")


def change(payload: dict[str, np.ndarray], name: str, array: np.ndarray) -> dict[str, np.ndarray]:
    return {**payload, name: array.astype(payload[name].dtype)}


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
@hypothesis.settings(max_examples=25)
@hypothesis.given(data=st.data())
def test_a_vector_of_another_length_is_refused(name, data):
    server, whole = server_of(name), data.draw(st.sampled_from(is_whole_of(name)))
    payload = server.push(whole)
    vector = data.draw(st.sampled_from(sorted(payload)))
    length = data.draw(st.integers(0, 3 * server.size).filter(lambda length: length != len(payload[vector])))
    verdict, words = server.judge(change(payload, vector, np.resize(payload[vector], length)), whole)
    if vector == SIGNATURE:
        assert verdict == WRONG_SIGNATURE
    elif vector.endswith(".keys") and (whole or name == "threshold"):  # only the pull is of these; 8 signs are one byte
        assert verdict in (MERGED, WRONG_KEYS, WRONG_LENGTHS)
    elif vector in ("0.unary", "whole.unary"):  # as long as there are entries: fewer of them can be read, too
        assert verdict in (MERGED, WRONG_LENGTHS)
    else:
        assert verdict in (WRONG_LENGTHS, WRONG_KEYS)
    assert bool(words) == (verdict != MERGED)


KEYED = [name for name in METHODS if any(selector.keyed for selector in METHODS[name].up.selectors)]


@pytest.mark.slow
@pytest.mark.parametrize("name", KEYED)
@hypothesis.settings(max_examples=25)
@hypothesis.given(data=st.data())
def test_a_key_beyond_the_block_is_refused(name, data):
    server, whole = server_of(name), data.draw(st.sampled_from(is_whole_of(name)))
    payload = server.push(whole)
    vector = data.draw(st.sampled_from([n for n in sorted(payload) if n.endswith(".keys") and n != SIGNATURE]))
    keys = payload[vector].copy()
    place = data.draw(st.integers(0, len(keys) - 1))
    keys[place] = data.draw(st.one_of(st.integers(-(2**31), -1), st.integers(server.size, 2**31 - 1)))
    verdict, words = server.judge(change(payload, vector, keys), whole)
    assert verdict == WRONG_KEYS
    assert f"which has {server.size}" in words and str(keys[place]) in words


SIGNED = [name for name in METHODS if METHODS[name].agreement.period]


@pytest.mark.slow
@pytest.mark.parametrize("name", SIGNED)
@hypothesis.settings(max_examples=25)
@hypothesis.given(data=st.data())
def test_another_version_length_or_hash_is_refused(name, data):
    server, whole = server_of(name), data.draw(st.sampled_from(is_whole_of(name)))
    payload = server.push(whole)
    signature, part = payload[SIGNATURE].copy(), data.draw(st.integers(0, 2))
    signature[part] = data.draw(st.integers(-(2**63), 2**63 - 1).filter(lambda number: number != signature[part]))
    verdict, words = server.judge(change(payload, SIGNATURE, signature), whole)
    assert verdict == WRONG_SIGNATURE
    assert ", ".join(map(str, server.agreed["signature"].numpy())) in words
    assert ", ".join(map(str, signature)) in words


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
@hypothesis.settings(max_examples=25)
@hypothesis.given(data=st.data())
def test_bytes_at_random_are_refused_in_words_or_readable(name, data):
    server, whole = server_of(name), data.draw(st.sampled_from(is_whole_of(name)))
    payload = server.push(whole)
    for vector in data.draw(st.sets(st.sampled_from(sorted(payload)), min_size=1)):
        length = data.draw(st.one_of(st.just(len(payload[vector])), st.integers(0, 2 * server.size)))
        width = payload[vector].dtype.itemsize
        drawn = data.draw(st.binary(min_size=width * length, max_size=width * length))
        payload[vector] = np.frombuffer(drawn, payload[vector].dtype)
    verdict, words = server.judge(payload, whole)
    assert bool(words) == (verdict != MERGED)


@pytest.mark.slow
def test_an_update_that_is_no_number_is_told_from_one_of_a_wrong_length():
    server = server_of("plump")
    payload = server.push(False)
    payload["0.value"][7] = np.nan
    assert server.judge(payload, False) == (NOT_FINITE, "its values must be finite. Received: a nan or an infinity.")
    assert server.judge(change(payload, "0.value", payload["0.value"][:-1]), False) == (
        WRONG_LENGTHS,
        "its vectors must be as Raw() makes them: 0.value of 45. Received: 0.value of 44.",
    )


def test_what_has_no_floats_is_finite():
    assert is_finite({"0.level": tf.zeros([3], tf.int8), "0.keys": tf.zeros([3], tf.int32)})
    assert is_finite({})
