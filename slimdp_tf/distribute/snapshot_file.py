"""Snapshots in a folder: TensorFlow checkpoints, of which `tf.train.list_variables` lists what is in them.

What is saved is arrays by name and one JSON string, "about"; reading executes nothing.
"""

from __future__ import annotations

import json
import pathlib
import re

import numpy as np
import tensorflow as tf

from slimdp_tf.distribute.calls import Call, CallThread
from slimdp_tf.distribute.joining import Arrays

_NAME = "snapshot"
_ENDING = "/.ATTRIBUTES/VARIABLE_VALUE"  # TensorFlow's, after the name of what a checkpoint holds


class SnapshotFile:
    """The snapshots of one run, the latest of which are kept.

    Args:
        directory: where they are; made by the first write.
        max_to_keep: how many stay.
    """

    def __init__(self, directory: str | pathlib.Path, max_to_keep: int):
        self.directory, self.max_to_keep = pathlib.Path(directory).expanduser(), max_to_keep
        self._thread: CallThread | None = None
        self._write: Call | None = None

    def write(self, about: dict, arrays: Arrays) -> None:
        """Begins to write a snapshot in the background, once the one before is written.

        Raises:
            Whatever went wrong with the one before.
        """
        self.finish()
        self._thread = self._thread or CallThread("slimdp writes a snapshot")
        self._write = self._thread.submit(lambda: self._save(about, arrays))

    def finish(self, seconds: float = 600.0) -> None:
        """Waits until nothing is being written.

        Raises:
            TimeoutError: the disk did not take it in time.
            Whatever went wrong with the writing.
        """
        call = self._write
        if call is None:
            return
        if not call.ends_within(seconds):
            raise TimeoutError(f"A snapshot was not written to {self.directory} within {seconds:g} s.")
        self._write = None
        if call.error is not None:
            raise call.error

    def read_last(self) -> tuple[dict, Arrays] | None:
        """The last snapshot that was written whole, None if there is none."""
        path = tf.train.latest_checkpoint(self.directory)
        if path is None:
            return None
        reader, arrays = tf.train.load_checkpoint(path), {}
        for name in reader.get_variable_to_shape_map():
            if name.endswith(_ENDING):
                arrays[name.removesuffix(_ENDING)] = np.asarray(reader.get_tensor(name))
        if "about" not in arrays:
            raise ValueError(f"{path} must be a snapshot of slimdp_tf. Received: a checkpoint without 'about'.")
        arrays.pop("save_counter", None)  # TensorFlow's own
        return json.loads(arrays.pop("about").item()), arrays

    def _save(self, about: dict, arrays: Arrays) -> None:
        with tf.device("/device:CPU:0"):
            tree = {"about": tf.Variable(json.dumps(about), trainable=False)}
            for name, array in arrays.items():
                _place(tree, name.split("/"), tf.Variable(array, trainable=False))
            checkpoint = _as_checkpoint(tree)
            manager = tf.train.CheckpointManager(
                checkpoint, str(self.directory), self.max_to_keep, checkpoint_name=_NAME
            )
            last = re.search(r"-(\d+)$", manager.latest_checkpoint or "")
            manager.save(checkpoint_number=int(last[1]) + 1 if last else 1)


def _place(tree: dict, path: list[str], value: tf.Variable) -> None:
    for folder in path[:-1]:
        tree = tree.setdefault(folder, {})
    tree[path[-1]] = value


def _as_checkpoint(tree: dict) -> tf.train.Checkpoint:
    return tf.train.Checkpoint(
        **{name: _as_checkpoint(value) if isinstance(value, dict) else value for name, value in tree.items()}
    )
