"""A contender's side: the same work for everyone, and the talk."""

import io
import json

import numpy as np
import pytest

from slimdp_tf.bench.task import Task, read_weights
from slimdp_tf.bench.work import Work
from tests.bench.small_bench import write_data


@pytest.fixture
def task(tmp_path):
    write_data(tmp_path)
    return Work(workers=2, batch=5, every=3).write(tmp_path / "run", tmp_path)


def test_travels_in_the_environment(task, monkeypatch):
    for name, value in task.write().items():
        monkeypatch.setenv(name, value)
    assert Task.from_environment() == task


def test_shards_are_disjoint_and_whole(task):
    shards = [task.shard(worker) for worker in range(2)]
    rows = [np.rint(images[:, 0] * 255).astype(int).tolist() for images, _ in shards]
    assert rows == [list(range(0, 24, 2)), list(range(1, 24, 2))]
    for numbers, (images, labels) in zip(rows, shards, strict=True):
        assert images.dtype == np.float32 and images.max() <= 1.0
        assert labels.tolist() == [number % 10 for number in numbers]


def test_batches_are_full_and_come_in_a_new_order(task):
    batches = task.batches(1)
    first, second, third = (next(batches)[0][:, 0] for _ in range(3))
    assert len(first) == len(second) == len(third) == 5
    assert len({*first.tolist(), *second.tolist()}) == 10  # of the 12 of the shard
    again = next(task.batches(1))[0][:, 0]
    assert again.tolist() == first.tolist()


def test_the_talk(task, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("go\ngo\nstop\n"))
    task.begin(version="x 1")
    weights = [np.ones(2, np.float32), np.zeros(3, np.float32)]
    assert task.pause(3, lambda: weights, compute_s=0.5)
    assert not task.pause(6, weights)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["event"] for line in lines] == ["ready", "quiet", "weights", "quiet", "weights"]
    assert lines[1] == {"event": "quiet", "steps": 3, "compute_s": 0.5}
    assert [array.tolist() for array in read_weights(task.weights)] == [[1, 1], [0, 0, 0]]


def test_ends_when_the_bench_is_gone(task, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with pytest.raises(SystemExit):
        task.begin()
    assert not task.pause(3, [np.ones(1)])
