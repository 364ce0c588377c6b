"""Snapshots on a disk: the last whole one is found, in the background's time and whatever happens to it."""

import threading

import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf.distribute import snapshot_file
from slimdp_tf.distribute.snapshot_file import SnapshotFile

ARRAYS = {
    "servers/weight/value": np.arange(3, dtype=np.float32),
    "servers/weight/core": np.zeros(0, np.int64),
    "workers/0/variables/000_seed": np.array([1, 2], np.uint32),
    "chief/001_rate": np.array(0.5, np.float32),
}


def write(file: SnapshotFile, number: int) -> None:
    file.write({"round": number}, ARRAYS)
    file.finish()


def test_what_is_written_is_read(tmp_path):
    file = SnapshotFile(tmp_path / "new", 3)
    assert file.read_last() is None
    write(file, 7)
    about, arrays = SnapshotFile(tmp_path / "new", 3).read_last()
    assert about == {"round": 7}
    assert sorted(arrays) == sorted(ARRAYS)
    for name, array in arrays.items():
        assert (array.dtype, array.tolist()) == (ARRAYS[name].dtype, ARRAYS[name].tolist())


def test_as_many_are_kept_as_were_asked_for_by_whoever_writes(tmp_path):
    for number in range(4):
        write(SnapshotFile(tmp_path, 2), number)
    assert sorted(path.name for path in tmp_path.glob("*.index")) == ["snapshot-3.index", "snapshot-4.index"]
    assert SnapshotFile(tmp_path, 2).read_last()[0] == {"round": 3}


def test_what_was_being_written_does_not_count(tmp_path):
    write(SnapshotFile(tmp_path, 2), 1)
    (tmp_path / "snapshot-2.data-00000-of-00001").write_bytes(b"half of it")
    (tmp_path / "snapshot-3_temp").mkdir()
    file = SnapshotFile(tmp_path, 2)
    assert file.read_last()[0] == {"round": 1}
    write(file, 2)
    assert file.read_last()[0] == {"round": 2}


def test_writing_is_in_the_background_and_one_at_a_time(tmp_path, monkeypatch):
    gate, saved = threading.Event(), []
    file = SnapshotFile(tmp_path, 2)
    monkeypatch.setattr(file, "_save", lambda about, arrays: saved.append(about) if gate.wait(20) else None)
    file.write({"round": 1}, {})
    assert saved == []
    with pytest.raises(TimeoutError, match="was not written to .* within 0.1 s"):
        file.finish(0.1)
    gate.set()
    file.write({"round": 2}, {})
    file.finish()
    assert saved == [{"round": 1}, {"round": 2}]


def test_what_went_wrong_is_raised_by_the_next_call(tmp_path):
    (tmp_path / "taken").write_text("a file, not a folder")
    file = SnapshotFile(tmp_path / "taken", 2)
    file.write({}, ARRAYS)
    with pytest.raises(tf.errors.OpError):
        file.write({}, ARRAYS)


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    tf.train.CheckpointManager(tf.train.Checkpoint(x=tf.Variable(1.0)), str(tmp_path), 1).save()
    with pytest.raises(ValueError, match="must be a snapshot of slimdp_tf. Received: a checkpoint without 'about'"):
        SnapshotFile(tmp_path, 2).read_last()
    assert snapshot_file._NAME == "snapshot"
