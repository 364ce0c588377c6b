"""What a process holds is read from the system, and growth is told from noise and warming up."""

import os
import subprocess
import threading

import pytest

from slimdp_tf.bench.soak.vitals import Sample, measure_growth, read_vitals


def make_samples(memory, task="chief", life=0, threads=lambda age: 20, files=lambda age: 30, seconds=100):
    return [
        Sample(float(age), task, life, float(age), float(memory(age)), threads(age), files(age))
        for age in range(0, seconds, 2)
    ]


def test_reads_this_process():
    before, event = read_vitals(os.getpid()), threading.Event()
    thread = threading.Thread(target=event.wait)
    thread.start()
    with open(os.devnull):
        ballast = b"x" * 50_000_000
        after = read_vitals(os.getpid())
    event.set()
    thread.join()
    assert after[0] - before[0] == pytest.approx(len(ballast) / 2**20, abs=5)
    assert (after[1] - before[1], after[2] - before[2]) == (1, 1)


def test_a_process_that_has_ended_is_named():
    child = subprocess.Popen(["true"])
    while True:
        try:
            read_vitals(child.pid)
        except ProcessLookupError as error:
            assert f"no process {child.pid} any more" in str(error)
            break
    child.wait()


def test_what_grows_while_it_warms_up_is_flat_afterwards():
    (growth,) = measure_growth(make_samples(lambda age: 500 + min(age, 30) * 10), 30.0)
    assert growth.is_known and growth.is_flat and growth.memory == 0.0
    (growth,) = measure_growth(make_samples(lambda age: 500 + min(age, 30) * 10), 0.0)
    assert not growth.is_flat


@pytest.mark.parametrize(("rate", "is_flat"), [(0.0, True), (0.2, True), (1.0, False), (-1.0, True)])
def test_memory_may_grow_by_5_percent(rate, is_flat):
    (growth,) = measure_growth(make_samples(lambda age: 500 + rate * age + age % 3), 20.0)
    assert growth.is_known and growth.is_flat is is_flat


def test_threads_and_files_may_not_grow():
    for name in ("threads", "files"):
        (growth,) = measure_growth(make_samples(lambda age: 500, **{name: lambda age: 20 + age // 10}), 20.0)
        assert not growth.is_flat and growth.memory == 0.0
    (growth,) = measure_growth(make_samples(lambda age: 500, threads=lambda age: 20 + (40 < age < 60)), 20.0)
    assert growth.is_flat  # one more for a while


def test_threads_that_tensorflow_leaves_behind_are_allowed_for_each_kill():
    def grow(more, kills):
        samples = make_samples(lambda age: 500, threads=lambda age: 20 + more * (age > 50))
        (growth,) = measure_growth(samples, 20.0, kills)
        return growth.kills, growth.is_flat

    assert grow(16, [40.0, 60.0]) == (2, True)
    assert grow(24, [40.0, 60.0]) == (2, False)
    assert grow(16, [10.0, 60.0]) == (1, False)  # the first was before this time


def test_every_process_counts_anew_and_needs_time():
    samples = make_samples(lambda age: 500, "ps1") + make_samples(lambda age: 900, "ps1", life=1, seconds=30)
    first, second = measure_growth(samples, 20.0)
    assert (first.task, first.life, first.is_known, first.rss_mb) == ("ps1", 0, True, (500.0, 500.0))
    assert (second.life, second.is_known, second.is_flat) == (1, False, True)
