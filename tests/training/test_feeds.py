"""Feeds: config fields -> data for fit."""

import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf.training import datasets, feeds
from tests.training.stand_ins import write_fashion_mnist, write_folders, write_records


@pytest.fixture
def fashion(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.setattr(datasets, "DEBIAN_FOLDER", tmp_path / "debian")
    write_fashion_mnist(tmp_path / "mine", train=16, test=8)
    return str(tmp_path / "mine")


def test_fashion_mnist_is_cut_to_the_first_examples(fashion):
    feed = feeds.fashion_mnist(fashion, 4, 0, train_examples=6, test_examples=3)
    assert feed.examples == len(feed.train[0]) == len(feed.train[1]) == 6
    assert len(feed.validation[0]) == 3
    whole = feeds.fashion_mnist(fashion, 4, 0)
    assert whole.examples == 16
    np.testing.assert_array_equal(feed.train[0], whole.train[0][:6])


def test_more_examples_than_there_are_is_refused(fashion):
    with pytest.raises(ValueError, match=r"train_examples must be 0 \(all\) to 16. Received: 17"):
        feeds.fashion_mnist(fashion, 4, 0, train_examples=17)


@pytest.mark.slow
def test_image_files_give_each_worker_its_files(tmp_path):
    write_records(tmp_path, "train", files=2, each=4)
    write_records(tmp_path, "validation", files=1, each=2)
    feed = feeds.image_files(str(tmp_path), 4, 0, image_size=32)
    assert feed.examples == 8
    seen = []
    for worker in range(2):
        context = tf.distribute.InputContext(num_input_pipelines=2, input_pipeline_id=worker)
        batches = list(feed.train(context).take(2))  # twice the worker's 4 examples
        labels = np.concatenate([label.numpy() for _, label in batches])
        assert sorted(labels) == [0, 0, 1, 1, 2, 2, 3, 3]
        seen.append(np.concatenate([picture.numpy() for picture, _ in batches]))
    assert not np.allclose(seen[0], seen[1])
    assert sum(len(label) for _, label in feed.validation()) == 2
    assert feeds.image_files(str(tmp_path), 4, 0, image_size=32, examples=5).examples == 5


def test_other_classes_in_validation_are_refused(tmp_path):
    write_folders(tmp_path, "train", classes=3, each=1)
    write_folders(tmp_path, "validation", classes=2, each=1)
    with pytest.raises(ValueError, match="same classes.*class_2"):
        feeds.image_files(str(tmp_path), 4, 0)


def test_steps_are_whole_batches_on_every_worker():
    feed = feeds.Feed((np.zeros(100), np.zeros(100)), None, 100)
    assert feed.count_steps(workers=3, batch_size=8) == 4
    with pytest.raises(ValueError, match="4 workers x batch_size 32 = 128 examples. Received: 100"):
        feed.count_steps(workers=4, batch_size=32)
