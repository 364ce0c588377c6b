"""The table: numbers worked by hand, in four formats."""

import csv
import dataclasses
import io
import json
import math

import pytest

from slimdp_tf.measure.record import Traffic
from slimdp_tf.measure.report import compare_runs, format_csv, format_json, format_markdown, format_text, write_report
from slimdp_tf.measure.runs import Point, Run, Totals


def make_run(label, method, push, accuracy=0.875, workers=2):
    totals = Totals(10, 20, 4.0, 2.5, 1.0, 0.5, Traffic(push, 0, 0))
    return Run(label, method, workers, 1, (Point(1, 20, 1.0, 4.0, val_accuracy=accuracy),), totals, 9.0, {"p": 1})


@pytest.fixture
def runs():
    return [make_run("slim, carry", "slim", 2_000_000, 0.85), make_run("plump", "plump", 17_000_000)]


def test_ratio_is_to_the_baseline_wherever_it_stands(runs):
    slim, plump = compare_runs(runs)
    assert (slim.method, slim.accuracy, slim.mb_per_worker, slim.ratio) == ("slim, carry", 0.85, 1.0, 8.5)
    assert (plump.ratio, plump.seconds, plump.wait_s, plump.step_ms) == (1.0, 4.0, 0.5, 200.0)
    assert compare_runs(runs, baseline="slim")[1].ratio == pytest.approx(1 / 8.5)


def test_without_a_baseline_or_bytes_the_ratio_is_unknown(runs):
    assert math.isnan(compare_runs(runs[:1])[0].ratio)
    assert math.isnan(compare_runs([make_run("idle", "slim", 0), runs[1]])[0].ratio)
    assert " - " in format_text(compare_runs(runs[:1]))


def test_text_is_in_columns(runs):
    lines = format_text(compare_runs(runs)).splitlines()
    assert lines[0].split("  ")[0] == "method" and "ratio to plump" in lines[0]
    assert lines[2].split() == ["slim,", "carry", "0.8500", "1.00", "8.50x", "4.0", "0.5", "200.0"]
    assert len({line.rindex(".") for line in lines[2:]}) == 1


def test_markdown_is_a_table(runs):
    runs.append(make_run("a|b", "slim", 5))
    lines = format_markdown(compare_runs(runs)).splitlines()
    assert lines[0].startswith("| method | accuracy | MB per worker | ratio to plump |")
    assert {line.replace("\\|", "").count("|") for line in lines} == {8}


def test_staleness_is_shown_where_a_run_was_not_in_step(runs):
    assert "staleness" not in format_text(compare_runs(runs))
    late = dataclasses.replace(runs[0], label="late", totals=dataclasses.replace(runs[0].totals, staleness=25.0))
    lines = format_text(compare_runs([*runs, late])).splitlines()
    assert lines[0].endswith("staleness")
    assert [line.split()[-1] for line in lines[2:]] == ["0.0", "0.0", "2.5"]  # 25 over 10 rounds
    assert format_markdown(compare_runs([late])).splitlines()[0].endswith("| staleness |")
    assert list(csv.DictReader(io.StringIO(format_csv(compare_runs(runs)))))[0]["staleness"] == "0.0"


def test_csv_holds_the_numbers_in_full(runs):
    rows = list(csv.DictReader(io.StringIO(format_csv(compare_runs(runs)))))
    assert rows[0]["method"] == "slim, carry" and float(rows[0]["ratio"]) == 8.5
    assert list(csv.DictReader(io.StringIO(format_csv(compare_runs(runs[:1])))))[0]["ratio"] == ""


def test_json_has_curves_and_configs(runs):
    content = json.loads(format_json(compare_runs(runs), runs))
    assert content[1]["mb_per_worker"] == 8.5 and content[0]["config"] == {"p": 1}
    assert content[0]["points"][0]["val_accuracy"] == 0.85 and content[0]["points"][0]["loss"] is None


def test_writes_all_formats(tmp_path, runs):
    paths = write_report(runs, tmp_path / "new")
    assert [path.name for path in paths] == ["table.txt", "table.md", "table.csv", "table.json"]
    assert paths[0].read_text() == format_text(compare_runs(runs)) + "\n"
