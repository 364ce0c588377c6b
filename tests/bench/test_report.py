"""Tables and pictures of the bench: what was measured, what was not reached, and against whom."""

import csv
import io
import json
import math

import pytest

from slimdp_tf.bench import report
from slimdp_tf.bench.work import Work
from tests.bench.small_bench import make_result

WORK = Work()


@pytest.fixture
def results():
    return [
        make_result("plump", (0.8, 0.85, 0.86), seconds=100.0),
        make_result("slim", (0.84, 0.86), seconds=4.0),
        make_result("slow", (0.7, 0.71), seconds=75.0, is_outside=True, outcome="time"),
        make_result("fast", (0.85, 0.87), seconds=10.0, is_outside=True),
        make_result("gone", (), outcome="failed: ps0 ended\n    log", is_outside=True),
    ]


def test_rows(results):
    rows = {row["contender"]: row for row in report.make_rows(results, WORK, "plump")}
    slim = rows["slim"]
    assert (slim["s to 84 %"], slim["s to 86 %"], slim["MB to 86 %"]) == (4.0, 8.0, 2.0)
    assert slim["bytes/step/worker"] == pytest.approx(1e6 / 48 / 4)
    assert (slim["compute ms"], slim["exchange ms"], slim["wait ms"]) == pytest.approx((500 / 48, 250 / 48, 125 / 48))
    assert slim["link ms"] == pytest.approx(1.0)  # 600,000 / 48 bytes at 100 Mbit/s
    assert str(slim["x plump"]) == "37.50x" and str(slim["x best outside"]) == "2.50x"
    assert str(rows["plump"]["x plump"]) == "1.00x" and str(rows["fast"]["x best outside"]) == "1.00x"
    assert rows["slow"]["outcome"] == "86 % NOT REACHED in 150 s: time was up"
    assert rows["gone"]["outcome"] == "failed: ps0 ended"
    assert str(rows["slow"]["x plump"]) == "-"


def test_a_link_that_is_not_shaped_needs_no_time():
    (row,) = report.make_rows([make_result(rate="unshaped")], WORK, "plump")
    assert math.isnan(row["link ms"])


def test_a_reference_that_did_not_get_there_gives_a_lower_bound(results):
    slim, slow = results[1], results[2]
    ratio = report.compare(slim, [slow], 0.86)
    assert (ratio.value, ratio.is_at_least, str(ratio)) == (150 / 8, True, ">18.75x")


def test_references_are_of_the_same_rate_and_have_not_failed(results):
    other = make_result("plump", rate="1gbit")
    assert str(report.compare(results[1], [other, results[4]], 0.86)) == "-"


def test_text_and_markdown(results):
    rows = report.make_rows(results, WORK, "plump")
    lines = report.format_text(rows).splitlines()
    assert len(lines) == 2 + len(results) and lines[0].split()[:2] == ["rate", "contender"]
    assert "37.50x" in lines[3] and "nan" not in "".join(lines)
    markdown = report.format_markdown(rows).splitlines()
    assert {line.count("|") for line in markdown} == {len(rows[0]) + 1}


def test_csv_and_json_hold_numbers(results):
    rows = report.make_rows(results, WORK, "plump")
    table = list(csv.DictReader(io.StringIO(report.format_csv(rows))))
    assert float(table[1]["x plump"]) == 37.5 and table[1]["x plump is at least"] == "False"
    assert table[2]["s to 86 %"] == ""
    content = json.loads(report.format_json(rows, results, {"seed": 3}))
    assert content["seed"] == 3 and content["table"][2]["s to 86 %"] is None
    assert content["runs"][0]["marks"][0]["sent_bytes"] == 10**6


def test_what_is_said_about_the_network(results):
    (line,) = report.describe_network(results, {"100mbit": 100.0, "1gbit": 1000.0})
    assert line.startswith("100mbit: raw TCP carried 95.0 to 96.0 Mbit/s") and "10%" in line
    (slow,) = report.describe_network(results, {"100mbit": 200.0})
    assert "THE RATE WAS NOT REACHED" in slow


def test_a_run_for_pictures():
    run = report.make_run(make_result())
    assert [point.mb for point in run.points] == [0.5, 1.0, 1.5]  # 2 MB at the links of 4 workers
    assert [point.val_accuracy for point in run.points] == [0.8, 0.85, 0.86]
    assert run.totals.compute_s == 1.5


@pytest.mark.slow
def test_pictures_of_every_rate(results, tmp_path):
    no_split = make_result("tf_ps", rate="1gbit")
    marks = [report.dataclasses.replace(mark, compute_s=math.nan) for mark in no_split.marks]
    no_split = report.dataclasses.replace(no_split, marks=tuple(marks))
    names = [path.name for path in report.write_pictures([*results, no_split], tmp_path)]
    assert len(names) == 6 + 4 and "100mbit-time_split.png" in names and "1gbit-time_split.png" not in names
    assert all((tmp_path / name).stat().st_size > 1000 for name in names)
