"""Seconds, megabytes and steps of a run."""

import math

import pytest

from tests.bench.small_bench import make_result


def test_what_a_run_came_to():
    result = make_result(accuracies=(0.8, 0.86, 0.855))
    assert (result.seconds, result.best_accuracy) == (30.0, 0.86)
    assert result.step_ms == pytest.approx(1000 * 10 / 48)
    assert result.step_bytes == pytest.approx(1e6 / 48 / 4)


def test_the_first_evaluation_at_a_mark_counts():
    result = make_result(accuracies=(0.8, 0.86, 0.855))
    assert (result.seconds_to(0.85), result.mb_to(0.85)) == (20.0, 2.0)
    assert math.isnan(result.seconds_to(0.87)) and math.isnan(result.mb_to(0.87))


def test_a_run_without_evaluations():
    result = make_result(accuracies=(), outcome="failed: x")
    assert result.has_failed
    assert all(math.isnan(n) for n in (result.seconds, result.step_ms, result.step_bytes, result.best_accuracy))
