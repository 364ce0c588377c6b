"""Runs: sums of rounds, and a file that gives back what was saved."""

import dataclasses
import json
import math

import pytest

from slimdp_tf.measure.record import RoundRecord, Traffic
from slimdp_tf.measure.runs import Point, Run, Totals, load_run, save_run, sum_rounds


def make_record(number, steps_in_round):
    traffic = Traffic(1_000_000, 500_000, 100_000, 9, (800_000, 800_009))
    return RoundRecord(number, 0, steps_in_round, 2, 1.0, 0.5, 0.25, 0.125, traffic)


def make_run():
    points = (Point(1, 3, 1.6, 2.0, 2.0, 0.5), Point(2, 6, 3.2, 4.0, 1.0, 0.7, 1.5, 0.6))
    return Run("mine", "slim", 2, 1, points, sum_rounds([make_record(0, 4), make_record(1, 2)]), 9.0, {"p": 4})


def test_totals_sum_the_rounds():
    totals = sum_rounds([make_record(0, 4), make_record(1, 2)])
    assert totals == Totals(
        2, 6, 2.0, 1.0, 0.5, 0.25, Traffic(2_000_000, 1_000_000, 200_000, 18, (1_600_000, 1_600_018))
    )
    assert totals.count_mb(workers=2) == pytest.approx(1.6)  # the chief's bytes are not training's
    assert sum_rounds([]) == Totals()


def test_staleness_is_the_mean_of_the_rounds():
    records = [dataclasses.replace(make_record(n, 1), staleness_mean=value) for n, value in enumerate((1.0, 2.0))]
    assert dataclasses.replace(make_run(), totals=sum_rounds(records)).staleness == 1.5
    assert make_run().staleness == Run("none", "slim", 1, 1, (), Totals()).staleness == 0.0


def test_accuracy_is_the_last_one_and_validation_s_where_there_is_one():
    run = make_run()
    assert run.accuracy == 0.6
    assert dataclasses.replace(run, points=run.points[:1]).accuracy == 0.5
    assert math.isnan(dataclasses.replace(run, points=()).accuracy)
    assert run.step_ms == pytest.approx(1000 * 2.0 / 6)


def test_a_saved_run_comes_back(tmp_path):
    run = make_run()
    save_run(run, tmp_path / "new" / "run.json")
    text = (tmp_path / "new" / "run.json").read_text()
    assert "NaN" not in text and json.loads(text)["points"][0]["val_accuracy"] is None
    loaded = load_run(tmp_path / "new" / "run.json")
    assert math.isnan(loaded.points[0].val_accuracy)
    assert loaded.points[1] == run.points[1]
    assert dataclasses.replace(loaded, points=()) == dataclasses.replace(run, points=())


@pytest.mark.parametrize("content", ["{", "[]", '{"label": "x"}'])
def test_another_file_is_refused(tmp_path, content):
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(ValueError, match="run.json must be a run as save_run writes it"):
        load_run(tmp_path / "run.json")
