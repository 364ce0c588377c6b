"""A strategy without a cluster, and small data: what tests of experiments, TensorBoard and programs train with."""

from __future__ import annotations

import contextlib
import gzip
import pathlib

import keras
import numpy as np
import tensorflow as tf

from slimdp_tf import methods
from slimdp_tf.measure.record import RoundRecord, Traffic
from slimdp_tf.training import config as configs
from slimdp_tf.training.datasets import FILES
from slimdp_tf.training.feeds import Feed

PUSH_BYTES, PULL_BYTES, KEYS_BYTES = 600_000, 400_000, 50_000


class LocalStrategy:
    """Trains in this process; `play` makes the record of a round of 2 steps, all workers together 1.05 MB."""

    def __init__(self, workers: int = 2, ps: int = 1, method: object = None):
        self.workers, self.ps = workers, ps
        self.method = method or methods.plump()
        self.records: list[RoundRecord] = []
        self._listeners = []

    def scope(self):
        return contextlib.nullcontext()

    def on_round(self, listener) -> None:
        self._listeners.append(listener)

    def distribute_datasets_from_function(self, function):
        return function(tf.distribute.InputContext(num_input_pipelines=self.workers, input_pipeline_id=0))

    def play(self) -> None:
        number = len(self.records)
        traffic = Traffic(PUSH_BYTES, PULL_BYTES, KEYS_BYTES, 7, (1_050_007,))
        times = {"round_s": 0.5, "compute_s": 0.3, "exchange_s": 0.15, "wait_s": 0.05}
        sizes = {"core_entries": 30, "explorer_entries": 20.5, "cache_hits": 2}
        record = RoundRecord(number, 2 * number + 2, 2, self.workers, traffic=traffic, **times, **sizes)
        self.records.append(record)
        for listener in self._listeners:
            listener(record)


class Play(keras.callbacks.Callback):
    """One round before every batch's end."""

    def __init__(self, strategy: LocalStrategy):
        super().__init__()
        self._strategy = strategy

    def on_train_batch_begin(self, batch, logs=None) -> None:
        self._strategy.play()


def make_config(method: str = "plump") -> configs.ConfigDict:
    """A small model on 2 workers, 2 epochs of batches of 4."""
    config = configs.new_config("try", model="fashion_mnist_mlp", data="fashion_mnist", method=method)
    config.model.hidden = (8,)
    config.batch_size, config.epochs, config.workers = 4, 2, 2
    return config


def make_feed(examples: int = 16) -> Feed:
    """Random images, the first 8 for validation; image i has the label i % 10."""
    random = np.random.default_rng(0)
    x, y = random.integers(0, 256, (examples, 28, 28)).astype("uint8"), np.arange(examples) % 10
    return Feed((x, y), (x[:8], y[:8]), examples)


def write_idx(path: pathlib.Path, array: np.ndarray) -> None:
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
    path.write_bytes(gzip.compress(header + array.astype("uint8").tobytes(), compresslevel=1))


def write_fashion_mnist(folder: pathlib.Path, train: int = 16, test: int = 8) -> None:
    """Writes the four files with random pixels; image i has the label i % 10."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    for images, labels, count in ((FILES[0], FILES[1], train), (FILES[2], FILES[3], test)):
        write_idx(folder / images, random.integers(0, 256, (count, 28, 28)))
        write_idx(folder / labels, np.arange(count) % 10)


def make_jpeg(number: int, size: tuple[int, int] = (40, 48)) -> bytes:
    """A picture of one grey level, 8 * number."""
    return tf.io.encode_jpeg(tf.fill([*size, 3], tf.constant(8 * number, tf.uint8)), quality=95).numpy()


def write_records(folder: pathlib.Path, name: str, files: int, each: int, first_label: int = 1) -> None:
    """Writes TFRecord files of examples numbered through; example i has grey level 8 i and class i % 4."""
    folder.mkdir(parents=True, exist_ok=True)
    for f in range(files):
        with tf.io.TFRecordWriter(str(folder / f"{name}-{f:05d}-of-{files:05d}")) as writer:
            for i in range(f * each, (f + 1) * each):
                feature = {
                    "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[make_jpeg(i)])),
                    "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[i % 4 + first_label])),
                }
                writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


def write_folders(folder: pathlib.Path, split: str, classes: int = 2, each: int = 4) -> None:
    """Writes folders of images; image j of class c has grey level 8 (c * each + j)."""
    for c in range(classes):
        path = folder / split / f"class_{c}"
        path.mkdir(parents=True, exist_ok=True)
        for j in range(each):
            (path / f"{j}.jpg").write_bytes(make_jpeg(c * each + j))
