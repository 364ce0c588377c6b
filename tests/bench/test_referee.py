"""The referee with a contender that needs nothing: clock, meter, logs, and mistakes in words."""

import math

import pytest

from slimdp_tf.bench.loopback import Loopback
from slimdp_tf.bench.rates import read_rate
from slimdp_tf.bench.referee import Referee, RunFailed, _count, parse_line
from slimdp_tf.bench.setting import Program, Setting
from slimdp_tf.bench.work import Work
from tests.bench import own_contender
from tests.bench.small_bench import make_examiner


@pytest.fixture
def referee(tmp_path):
    work = Work(workers=2, ps=1, every=10, epochs=0.02)
    with Loopback(["worker0", "ps0"], read_rate("unshaped")) as network:
        yield Referee(network, work, make_examiner(), tmp_path / "logs", setup_limit_s=30.0)


@pytest.fixture
def task(tmp_path):
    return Work(workers=2, every=10).write(tmp_path, tmp_path)


def test_conducts_a_run(referee, task, tmp_path):
    assert referee.conduct(own_contender.launch(Setting(2, 1)), task) == "epochs"
    assert [mark.steps for mark in referee.marks] == [10, 20]  # 0.02 epochs are 1,200 examples, 64 a step
    first, last = referee.marks
    assert 0 < first.seconds < last.seconds < 30
    assert first.accuracy == last.accuracy > 0
    assert (last.compute_s, math.isnan(last.wait_s)) == (10.0, True)
    assert last.sent_bytes == last.worker_bytes == last.busiest_bytes >= 0
    assert referee.about == {"version": "own 1"} and referee.setup_s > 0
    log = (tmp_path / "logs" / "worker0-1.log").read_text()
    assert "a line that is no event" in log and "on linux" in log


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("ends", "(?s)worker0-1.*no such device"),
        ("early", "ended before the line 'quiet'"),
        ("shapes", "must have the shapes"),
    ],
)
def test_mistakes_are_told_with_the_log(referee, task, mistake, message):
    with pytest.raises(RunFailed, match=message):
        referee.conduct(own_contender.launch(Setting(2, 1), mistake=mistake), task)


def test_another_program_that_dies_is_named(referee, task):
    programs = [
        Program("ps0", ["sh", "-c", "echo out of memory; exit 3"]),
        Program("worker0", ["cat"], is_reporting=True),
    ]
    with pytest.raises(RunFailed, match="(?s)ps0-0 ended with code 3.*out of memory"):
        referee.conduct(programs, task)


def test_waits_end(referee, task):
    referee._setup_limit_s = 0.1
    with pytest.raises(RunFailed, match="no line 'ready' within 0.1 s"):
        referee.conduct([Program("worker0", ["cat"], is_reporting=True)], task)


def test_only_events_are_lines():
    assert parse_line('{"event": "quiet", "steps": 4}\n') == {"event": "quiet", "steps": 4}
    assert [parse_line(text) for text in ("loss 0.3\n", "3\n", '{"steps": 4}\n', '{"event": 3}\n')] == [None] * 4


def test_the_busiest_link_is_found():
    before, after = {"ps0": (5, 5), "worker0": (0, 0)}, {"ps0": (25, 15), "worker0": (10, 20)}
    assert _count(before, after) == {"ps0": 30, "worker0": 30}
    assert _count({"loopback": (1, 1)}, {"loopback": (8, 8)}) == {"loopback": 7}
