"""A channel writes what it chose and reads what was written, with the keys or without."""

from __future__ import annotations

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from slimdp_tf import methods
from slimdp_tf.channel import Channel, joined, stream
from slimdp_tf.rules.codecs import Qsgd, Raw
from slimdp_tf.rules.columns import OneBit
from slimdp_tf.rules.largest import TopK
from slimdp_tf.rules.layers import Ternary
from slimdp_tf.rules.selectors import Core, Dense, Explore, Pushed
from slimdp_tf.testing.selectors import agree
from slimdp_tf.types import Entries, taken

SEED = tf.constant([1, 2], tf.int32)
SIZE, CORE = 20, [2, 3, 19]


@pytest.fixture
def agreed():
    return agree([CORE], [SIZE])[0]


def send(channel, value, agreed, whole=False, seed=SEED):
    """Payload, the parts chosen, and the entries that the receiver reads."""
    parts = channel.choose(value, agreed, seed)
    index = None if whole else joined(parts)
    payload = channel.write(parts, value if index is None else tf.gather(value, index), seed, whole)
    again = channel.parts_of(payload, agreed, seed)
    return payload, parts, channel.read(payload, again, SIZE, whole)


def shapes(payload) -> dict[str, int]:
    return {name: int(tf.size(tensor)) for name, tensor in payload.items()}


def test_dense_sends_one_stream_without_keys(agreed):
    value = tf.range(20.0)
    payload, parts, entries = send(Channel(), value, agreed)
    assert (parts, shapes(payload)) == ([None], {"0.value": 20})
    assert entries.index is None
    np.testing.assert_array_equal(entries.value, value)


def test_core_and_explorer_are_two_streams(agreed):
    # 20 entries: 3 of the core, whose keys are cached, and round(0.2 * 20) = 4 explored, whose keys travel.
    value = tf.range(20.0)
    payload, parts, entries = send(Channel((Core(), Explore(0.2))), value, agreed)
    assert shapes(payload) == {"1.keys": 4, "0.value": 3, "1.value": 4}
    assert payload["0.value"].numpy().tolist() == [2.0, 3.0, 19.0]
    np.testing.assert_array_equal(payload["1.keys"], parts[1])
    np.testing.assert_array_equal(entries.value, tf.cast(entries.index, tf.float32))


def test_derived_keys_do_not_travel_and_are_the_same(agreed):
    value = tf.range(20.0)
    sent, _, with_keys = send(Channel((Core(), Explore(0.2))), value, agreed)
    derived, _, without = send(Channel((Core(), Explore(0.2, keyed=False))), value, agreed)
    assert shapes(derived) == {"0.value": 3, "1.value": 4}
    np.testing.assert_array_equal(with_keys.index, without.index)


def test_whole_has_everything_and_the_keys_all_the_same(agreed):
    value = tf.range(20.0)
    payload, _, entries = send(Channel((Core(), Explore(0.2))), value, agreed, whole=True)
    assert shapes(payload) == {"1.keys": 4, "whole.value": 20}
    assert entries.index is None
    np.testing.assert_array_equal(entries.value, value)


def test_pushed_carries_values_only(agreed):
    payload, _, entries = send(Channel((Pushed(),), carries="weights"), tf.range(20.0), agreed)
    assert shapes(payload) == {"0.value": 10}
    np.testing.assert_array_equal(entries.value, tf.cast(agreed["pushed"], tf.float32))


def test_each_stream_has_its_own_scale(agreed):
    value = tf.constant([1000.0 if i in CORE else 1.0 for i in range(SIZE)])
    payload, _, entries = send(Channel((Core(), Explore(0.2)), Qsgd(8, 512)), value, agreed)
    assert (payload["0.scale"].numpy().tolist(), payload["1.scale"].numpy().tolist()) == ([1000.0], [1.0])
    np.testing.assert_allclose(entries.value, tf.gather(value, entries.index), rtol=1e-6)


def test_each_stream_has_its_own_dither():
    # Two selectors that choose alike: the same values, but not the same rounding.
    channel = Channel((Core(), Core()), Qsgd(4, 64))
    values = tf.random.stateless_normal([40], [5, 6])
    (agreed,) = agree([range(40)], [40])
    parts = channel.choose(None, agreed, SEED)
    payload = channel.write(parts, tf.concat([values, values], 0), SEED, whole=False)
    assert payload["0.scale"].numpy() == payload["1.scale"].numpy()
    assert (payload["0.level"].numpy() != payload["1.level"].numpy()).any()


@pytest.mark.parametrize("core", [[], range(SIZE)], ids=["no core", "all core"])
@pytest.mark.parametrize("codec", [Raw(), Qsgd(8, 4)], ids=["raw", "qsgd"])
def test_empty_choices_are_sent_too(core, codec):
    (agreed,) = agree([core], [SIZE])
    payload, parts, entries = send(Channel((Core(), Explore(0.2)), codec), tf.ones([SIZE]), agreed)
    assert [int(tf.size(part)) for part in parts] == ([0, 4] if len(core) == 0 else [20, 0])
    np.testing.assert_allclose(entries.value, np.ones(len(entries.index)), rtol=1e-6)
    assert shapes(payload)["1.keys"] == (4 if len(core) == 0 else 0)


def test_joined_is_none_as_soon_as_one_is():
    assert joined([None]) is None
    assert joined([tf.constant([1]), None]) is None
    assert joined([tf.constant([4, 1]), tf.constant([2])]).numpy().tolist() == [4, 1, 2]


def test_streams_of_randomness_differ():
    seeds = {tuple(stream(SEED, number).numpy().tolist()) for number in range(-1, 20)}
    assert len(seeds) == 21
    assert stream(SEED, 3).numpy().tolist() == stream(SEED, tf.constant(3)).numpy().tolist()


def test_says_whether_one_answer_is_for_all():
    assert Channel().is_shared and Channel((Core(), Explore(0.1))).is_shared
    assert not Channel((Pushed(),)).is_shared


def test_what_several_sent_is_read_together_where_the_codec_says_so():
    incoming = [Entries(None, tf.constant([2.0, 0.0])), Entries(None, tf.constant([0.0, 2.0]))]
    assert Channel(codec=Raw()).together(incoming, SEED) is incoming
    read = Channel(codec=Ternary()).together([*incoming, Entries(None, tf.constant([1.0, -1.0]))], SEED)
    assert [entries.index for entries in read] == [None] * 3
    np.testing.assert_array_equal(tf.stack([entries.value for entries in read[:2]]), [[2.0, 0.0], [0.0, 2.0]])
    assert set(np.abs(read[2].value)) <= {0.0, 2.0}


def test_is_fitted_to_the_pieces_of_a_block():
    channel, pieces = Channel((TopK(0.5, by="layer"),), Raw()), ((2, 2), (3, 1))
    assert channel.fitted(pieces) == Channel((TopK(0.5, by="layer", pieces=pieces),), Raw())
    assert Channel(codec=OneBit()).fitted(pieces).codec == OneBit(pieces)
    assert Channel((Core(),)).fitted(pieces) == Channel((Core(),))


def test_says_whether_it_is_dense_and_blind():
    assert Channel().is_dense and Channel().is_blind
    chosen = Channel((Core(), Explore(0.1)))
    assert not chosen.is_dense and chosen.is_blind


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"selectors": ()}, ValueError, "at least one selector. Received: none"),
        ({"selectors": [Core()]}, TypeError, r"selectors must be a tuple of selectors\. Received: \[Core"),
        ({"selectors": Dense()}, TypeError, r"selectors must be a tuple of selectors\. Received: Dense"),
        ({"selectors": (Dense(), Core())}, ValueError, r"Dense stands alone.*Received: \(Dense\(\), Core\(\)\)"),
        ({"carries": "gradients"}, ValueError, "carries 'update' or 'weights'. Received: 'gradients'"),
    ],
)
def test_refuses(arguments, error, message):
    with pytest.raises(error, match=message):
        Channel(**arguments)


UPS = {name: getattr(methods, name)().up for name in methods.names()} | {
    "top_k by layer": methods.top_k(0.7, sample=0.3, by="layer").up,
    "sampled_rows": methods.sampled_rows(1, 1, tall=4).up,
    "slim, derived": methods.slim(0.5, 0.2, explorer_keys="derived").up,
    "adaptive_quant": methods.adaptive_quant(3, sample=3).up,
    "half_16": methods.half(dtype="float16").up,
    "distribution_quant 3": methods.distribution_quant(3).up,
    "threshold": methods.threshold(0.5).up,
}
UPS = {name: UPS[name] for name in {up: name for name, up in reversed(UPS.items())}.values()}  # each once
PIECES = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 4)), min_size=1, max_size=4)
FLOATS = st.one_of(st.sampled_from([0.0, -0.0, 1.0, -1.0]), st.floats(-1e4, 1e4, width=32))


@pytest.mark.slow
@pytest.mark.parametrize("name", UPS)
@hypothesis.settings(max_examples=25)
@hypothesis.given(data=st.data(), number=st.integers(0, 1000))
def test_whatever_is_sent_the_receiver_knows_its_entries_and_reads_numbers_of_their_size(name, data, number):
    pieces = tuple(data.draw(PIECES))
    size = sum(rows * columns for rows, columns in pieces)
    value = tf.constant(data.draw(st.lists(FLOATS, min_size=size, max_size=size)), tf.float32)
    core = sorted(data.draw(st.sets(st.integers(0, size - 1))))
    channel, seed = UPS[name].fitted(pieces), tf.constant([number, 5], tf.int32)
    (agreed,) = agree([core], [size])
    parts = channel.choose(value, agreed, seed)
    index = joined(parts)
    payload = channel.write(parts, taken(value, index), seed, whole=False)
    assert channel.are_entries(payload, parts, size)
    for vector, length in channel.lengths(parts, size, whole=False).items():
        assert int(tf.size(payload[vector])) == int(length)
    assert channel.is_readable(payload, parts, size, whole=False)
    again = channel.parts_of(payload, agreed, seed)
    for one, other in zip(parts, again):
        assert (one is None) == (other is None)
        np.testing.assert_array_equal([] if one is None else one, [] if other is None else other)
    read = channel.read(payload, again, size, whole=False)
    chosen = np.arange(size) if read.index is None else read.index.numpy()
    assert len(set(chosen.tolist())) == len(chosen) == len(read.value)
    assert ((chosen >= 0) & (chosen < size)).all()
    allowed = max(np.abs(value).max(), getattr(channel.codec, "tau", 0.0)) * (8.0 if "distribution" in name else 1.01)
    assert (np.abs(read.value) <= allowed).all()
