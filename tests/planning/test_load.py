"""Bytes against the formulas of the papers."""

import numpy as np
import pytest

from slimdp_tf import methods
from slimdp_tf.planning.load import count_load


@pytest.mark.parametrize("entries", [1000, 1 << 16, 1_000_000])
def test_plump_moves_every_entry_both_ways(entries):
    load = count_load(methods.plump(p=4), entries)
    assert (load.push_bytes, load.pull_bytes) == (4 * entries, 4 * entries)
    assert load.bytes == 8 * entries


def test_slim_moves_the_communication_set_and_a_qth_of_a_whole_push():
    """Pushed: alpha n values, (alpha - beta) n keys; once in q rounds the other values, and beta n keys."""
    n, alpha, beta, q = 1_000_000, 0.2, 0.1, 50
    load = count_load(methods.slim(alpha, beta, q=q), n)
    push = 4 * n * (alpha + (alpha - beta) + (1 - alpha + beta) / q)
    assert load.push_bytes == pytest.approx(push, rel=0.01)
    assert load.pull_bytes == pytest.approx(4 * n * alpha, rel=0.01)


def test_derived_keys_stay_at_home():
    sent = count_load(methods.slim(0.2, 0.1, q=10**6), 100_000)
    derived = count_load(methods.slim(0.2, 0.1, q=10**6, memory="carry", explorer_keys="derived"), 100_000)
    assert sent.push_bytes - derived.push_bytes == pytest.approx(4 * 0.1 * 100_000, rel=0.01)


def test_shapes_count_for_methods_that_go_by_columns():
    few, many = (count_load(methods.one_bit(), 4096, [shape]).push_bytes for shape in ((1024, 4), (4, 1024)))
    assert few < many  # two floats per column


@pytest.mark.parametrize("name", ["quant", "top_k", "easgd", "bmuf", "post_local_sgd", "sampled_rows"])
def test_any_method_is_counted(name):
    load = count_load(getattr(methods, name)(), 10_000)
    assert 0 < load.bytes <= 8.2 * 10_000 and np.isfinite(load.bytes)


def test_refuses_a_model_without_entries():
    with pytest.raises(ValueError, match="at least 1. Received: 0"):
        count_load(methods.plump(), 0)
