"""Feeds: what a config's data becomes for `fit`. A feed's keyword parameters are the fields of `config.data`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from slimdp_tf.training.datasets import load_fashion_mnist
from slimdp_tf.training.images import find_images, make_images

Arrays = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Feed:
    """Data for `fit`.

    Attributes:
        train: arrays (x, y); or a function of a tf.distribute.InputContext that returns one worker's batches, repeated
            without end.
        validation: arrays; or a function that returns a dataset that ends. A function, because a dataset made before
            this process joins a cluster cannot be read afterwards.
        examples: how many examples `train` holds, over all workers.
    """

    train: Arrays | Callable[[tf.distribute.InputContext], tf.data.Dataset]
    validation: Arrays | Callable[[], tf.data.Dataset]
    examples: int

    def count_steps(self, workers: int, batch_size: int) -> int:
        """Returns the whole mini-batches per worker in one pass over the data.

        Raises:
            ValueError: not every worker gets a batch.
        """
        steps = self.examples // (workers * batch_size)
        if steps < 1:
            raise ValueError(
                f"Every worker needs at least one batch: {workers} workers x batch_size {batch_size} = "
                f"{workers * batch_size} examples. Received: {self.examples} training examples."
            )
        return steps


def fashion_mnist(
    data_dir: str, batch_size: int, seed: int, *, train_examples: int = 0, test_examples: int = 0
) -> Feed:
    """Returns Fashion-MNIST as arrays of bytes.

    Args:
        data_dir: see `load_fashion_mnist`.
        batch_size: not used: `fit` makes the batches.
        seed: not used: `fit` shuffles.
        train_examples: how many of the 60000 to train on; 0 for all.
        test_examples: how many of the 10000 to validate on; 0 for all.
    """
    del batch_size, seed
    train, test = load_fashion_mnist(data_dir or None)
    train, test = _take(train, train_examples, "train_examples"), _take(test, test_examples, "test_examples")
    return Feed(train, test, len(train[0]))


def image_files(
    data_dir: str, batch_size: int, seed: int, *, image_size: int = 224, first_label: int = 1, examples: int = 0
) -> Feed:
    """Returns ImageNet-like data from TFRecord files or folders of images (see `images`).

    Args:
        data_dir: the folder, under the same path on every host.
        batch_size: per worker.
        seed: of order and distortion.
        image_size: height and width given to the model, in pixels.
        first_label: the number that TFRecord files give to the first class, 1 or 0.
        examples: how many training examples there are; 0 to count them.
    """
    files = find_images(data_dir, "train", first_label)
    validation = find_images(data_dir, "validation", first_label)
    if files.classes != validation.classes:
        odd = sorted(set(files.classes) ^ set(validation.classes))[:5]
        raise ValueError(f"train and validation in {data_dir} must hold the same classes. Only one has {odd}.")

    def feed_worker(context: tf.distribute.InputContext) -> tf.data.Dataset:
        return make_images(
            files,
            image_size,
            batch_size,
            training=True,
            seed=seed,
            shard_index=context.input_pipeline_id,
            shard_count=context.num_input_pipelines,
        )

    def validate() -> tf.data.Dataset:
        batches = make_images(validation, image_size, batch_size, training=False)
        count = math.ceil(validation.count() / batch_size)  # told to Keras, which warns when it has to find out
        return batches.apply(tf.data.experimental.assert_cardinality(count))

    return Feed(feed_worker, validate, examples or files.count())


def _take(arrays: Arrays, count: int, name: str) -> Arrays:
    if not 0 <= count <= len(arrays[0]):
        raise ValueError(f"{name} must be 0 (all) to {len(arrays[0])}. Received: {count}.")
    return (arrays[0][:count], arrays[1][:count]) if count else arrays


FEEDS = {feed.__name__: feed for feed in (fashion_mnist, image_files)}
