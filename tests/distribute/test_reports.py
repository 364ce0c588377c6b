"""What workers report, and the record that is made of it."""

import time

import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf.distribute.reports import (
    Report,
    Stillness,
    Unfinished,
    make_record,
    mean_loss,
    parse_report,
    sum_traffic,
)
from slimdp_tf.measure.record import Traffic


def make_report(**changes) -> Report:
    numbers = {
        "seconds": np.array([0.1, 0.2, 0.3]),
        "steps": 2,
        "loss": 0.5,
        "bytes": np.array([[8.0, 4.0, 16.0, 2.0], [80.0, 40.0, 160.0, 20.0]]),
        "matches": np.array([5.0, 3.0, 1.0]),
        "explored": 6.0,
        "is_still": False,
        "sums": np.array([1.0]),
        "outputs": [],
    }
    return Report(**{**numbers, **changes})


def test_a_report_is_read_back_from_what_the_function_returned():
    numbers = [0.1, 0.2, 0.3, 2.0, 0.5, *range(8), 5.0, 3.0, 1.0, 6.0, 1.0, 11.0, 12.0]
    report = parse_report([tf.constant(numbers, tf.float64), tf.constant([5.0]), tf.constant(7)], blocks=2)
    np.testing.assert_array_equal(report.seconds, [0.1, 0.2, 0.3])
    assert (report.steps, report.loss) == (2, 0.5)
    np.testing.assert_array_equal(report.bytes, [[0, 1, 2, 3], [4, 5, 6, 7]])
    np.testing.assert_array_equal(report.matches, [5, 3, 1])
    assert (report.explored, report.is_still) == (6, True)
    np.testing.assert_array_equal(report.sums, [11, 12])
    assert [output.tolist() for output in report.outputs] == [[5.0], 7]


def test_bytes_of_all_workers_are_summed_by_kind_and_by_server():
    traffic = sum_traffic([make_report(), make_report()], [2], servers=3, chief_bytes=9)
    assert traffic == Traffic(2 * 88, 2 * 176, 2 * (44 + 22), 9, (2 * 30, 2 * 300, 0))


def test_all_that_is_shared_begins_at_the_first_server():
    traffic = sum_traffic([make_report()], [1, 1], servers=2, chief_bytes=0)
    assert traffic.ps_bytes == (330, 0)
    assert sum(traffic.ps_bytes) == traffic.exchange_bytes


def test_a_record_of_a_round():
    now = time.perf_counter()
    reports = [make_report(), make_report(steps=0, seconds=np.array([0.3, 0.0, 0.1]), explored=2.0)]
    record = make_record(reports, now - 2.0, now - 0.5, round=4, steps=9, traffic=Traffic(), core_entries=5, refused=1)
    assert (record.round, record.steps, record.core_entries, record.refused) == (4, 9, 5, 1)
    assert (record.steps_in_round, record.workers) == (2, 1)  # who has done no step took no part
    assert (record.cache_hits, record.cache_misses, record.cache_mismatches) == (10, 6, 2)
    assert record.explorer_entries == 4.0
    assert record.compute_s == pytest.approx(0.1)
    assert record.exchange_s == pytest.approx(0.2 + 0.2 + 0.5, abs=0.1)
    assert record.wait_s == pytest.approx(1.5 - 0.5)
    assert record.round_s == pytest.approx(2.0, abs=0.1)


def test_the_mean_loss_is_of_those_who_trained():
    reports = [make_report(loss=1.0), make_report(loss=2.0), make_report(loss=9.0, steps=0)]
    assert mean_loss(reports) == 1.5
    assert np.isnan(mean_loss([make_report(steps=0)])) and np.isnan(mean_loss([make_report(loss=float("nan"))]))


def test_calls_of_one_round_add_up():
    unfinished = Unfinished()
    first, started = unfinished.add({1: make_report(), 0: make_report(steps=0, loss=np.nan)}, 5.0)
    assert (list(first), started) == ([0, 1], 5.0)
    done, started = unfinished.add({1: make_report(loss=2.0, steps=1, outputs=[7]), 0: make_report(steps=0)}, 9.0)
    assert started == 5.0
    assert (done[1].steps, done[1].loss, done[1].outputs, done[1].explored) == (3, pytest.approx(1.0), [7], 12.0)
    np.testing.assert_allclose(done[1].seconds, [0.2, 0.4, 0.6])
    np.testing.assert_array_equal(done[1].bytes[0], [16, 8, 32, 4])
    np.testing.assert_array_equal(done[1].sums, [1.0])
    assert done[0].steps == 0 and np.isnan(done[0].loss)


def test_a_worker_that_did_not_answer_the_last_call_keeps_its_share():
    unfinished = Unfinished()
    unfinished.add({0: make_report(), 1: make_report()}, 1.0)
    done, _ = unfinished.add({0: make_report()}, 2.0)
    assert (done[0].steps, done[1].steps) == (4, 2)


def test_a_worker_that_pushes_nothing_for_long_is_named_once(caplog):
    stillness = Stillness(["worker 0 at a:1", "worker 1 at b:1"], rounds=3)
    still, moving, resting = make_report(is_still=True), make_report(), make_report(steps=0, is_still=False)
    for report in (still, still, moving, still, resting, still, still, still):
        stillness.note({0: moving, 1: report})
    assert caplog.text.count("worker 1 at b:1 has pushed nothing but zeros for 3 rounds") == 1
    assert "worker 0" not in caplog.text


def test_what_is_done_between_two_rounds_counts_with_the_next_but_takes_none_of_its_time():
    unfinished = Unfinished()
    unfinished.hold({1: make_report(steps=0)})
    done, started = unfinished.add({0: make_report(), 1: make_report()}, 7.0)
    assert started == 7.0
    assert (done[1].steps, done[1].bytes[0, 2], done[0].bytes[0, 2]) == (2, 32, 16)
