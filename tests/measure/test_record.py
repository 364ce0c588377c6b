"""Traffic: sums, and what counts as training's own bytes."""

import dataclasses

import pytest

from slimdp_tf.measure.record import RoundRecord, Traffic


def test_traffic_adds_up_whatever_the_number_of_ps():
    total = Traffic(1, 2, 3, 4, (5,)) + Traffic(10, 20, 30, 40, (50, 60))
    assert total == Traffic(11, 22, 33, 44, (55, 60))
    assert total == Traffic(10, 20, 30, 40, (50, 60)) + Traffic(1, 2, 3, 4, (5,))
    assert Traffic() + total == total


def test_exchange_is_push_pull_and_keys():
    traffic = Traffic(1_000_000, 2_000_000, 500_000, 9_000_000)
    assert traffic.exchange_bytes == 3_500_000
    assert (traffic.push_mb, traffic.pull_mb, traffic.keys_mb, traffic.exchange_mb) == (1.0, 2.0, 0.5, 3.5)


def test_what_a_round_does_not_know_is_nothing():
    record = RoundRecord(0, 1, 1, 2, 1.0, 0.5, 0.3, 0.2, Traffic())
    assert (record.core_entries, record.cache_hits, record.refused) == (0, 0, 0)
    assert record.loss != record.loss


def test_a_sum_has_the_bytes_of_every_ps():
    rounds = [Traffic(push_bytes=3, keys_bytes=1, ps_bytes=(2, 2)), Traffic(pull_bytes=5, ps_bytes=(0, 5))]
    total = sum(rounds, Traffic())
    assert sum(total.ps_bytes) == total.exchange_bytes == 9


def test_records_do_not_change():
    traffic = Traffic(push_bytes=3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        traffic.push_bytes = 4
    with pytest.raises(dataclasses.FrozenInstanceError):
        RoundRecord(0, 1, 1, 2, 1.0, 0.5, 0.3, 0.2, traffic).round = 5
