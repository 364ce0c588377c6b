"""Pipelines for ImageNet-like data: every example once, each worker its own part, the same seed the same batches."""

import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf.training import images
from tests.training.stand_ins import make_jpeg, write_folders, write_records


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """4 training files of 6 examples, 1 validation file of 5."""
    folder = tmp_path_factory.mktemp("records")
    write_records(folder, "train", files=4, each=6)
    write_records(folder, "validation", files=1, each=5)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """2 classes of 4 training images, 2 classes of 3 in val/."""
    folder = tmp_path_factory.mktemp("folders")
    write_folders(folder, "train", classes=2, each=4)
    write_folders(folder, "val", classes=2, each=3)
    return folder


def read_numbers(batches) -> list[int]:
    """The numbers of the generated pictures: grey level / 8."""
    found = []
    for pictures, _ in batches:
        grey = (pictures.numpy() * images._DEVIATION + images._MEAN).mean(axis=(1, 2, 3)) * 255
        found += np.rint(grey / 8).astype(int).tolist()
    return found


@pytest.mark.slow
def test_validation_gives_every_example_once_in_order(records):
    files = images.find_images(str(records), "validation")
    batches = images.make_images(files, image_size=32, batch_size=2, training=False)
    assert read_numbers(batches) == [0, 1, 2, 3, 4]
    labels = [label for _, batch in batches for label in batch.numpy().tolist()]
    assert labels == [0, 1, 2, 3, 0]  # counted from 0, though the files count from 1
    assert next(iter(batches))[0].shape == (2, 32, 32, 3)


def test_labels_counted_from_0_stay(tmp_path):
    write_records(tmp_path / "train", "train", files=1, each=3, first_label=0)
    files = images.find_images(str(tmp_path), "train", first_label=0)
    _, labels = next(iter(images.make_images(files, 32, 3, training=False)))
    assert labels.numpy().tolist() == [0, 1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3, 6])  # 6 workers: fewer files than workers, so examples are divided
def test_shards_are_disjoint_and_complete(records, count):
    files = images.find_images(str(records), "train")
    shards = [
        read_numbers(images.make_images(files, 32, 1, training=False, shard_index=i, shard_count=count))
        for i in range(count)
    ]
    assert all(shards)
    assert sorted(sum(shards, [])) == list(range(24))


def test_shard_index_may_be_a_tensor(records):
    files = images.find_images(str(records), "train")
    by_tensor = images.make_images(files, 32, 1, False, shard_index=tf.constant(1), shard_count=2)
    assert read_numbers(by_tensor) == read_numbers(
        images.make_images(files, 32, 1, False, shard_index=1, shard_count=2)
    )


@pytest.mark.slow
@pytest.mark.parametrize("source", ["records", "folders"])
def test_training_is_shuffled_repeated_and_repeatable(source, request):
    files = images.find_images(str(request.getfixturevalue(source)), "train")
    count = files.count()

    def read(seed):
        return [b.numpy() for b, _ in images.make_images(files, 32, 4, training=True, seed=seed).take(count // 2)]

    first, again, other = read(1), read(1), read(2)
    assert first[0].shape == (4, 32, 32, 3)
    np.testing.assert_array_equal(np.stack(first), np.stack(again))
    assert not np.array_equal(np.stack(first), np.stack(other))
    numbers = read_numbers([(tf.constant(batch), None) for batch in first])  # two passes
    assert sorted(numbers[:count]) == sorted(numbers[count:]) == list(range(count))
    assert numbers[:count] != numbers[count:]


def test_distortion_differs_between_shards_and_passes():
    noise = tf.io.encode_png(tf.cast(tf.random.stateless_uniform([64, 64, 3], [1, 2], 0, 256, tf.int32), tf.uint8))

    def cut(seed):
        return images._distort(noise, 32, tf.constant(seed, tf.int64)).numpy()

    np.testing.assert_array_equal(cut([0, 5]), cut([0, 5]))
    assert not np.allclose(cut([0, 5]), cut([1, 5]))
    assert not np.allclose(cut([0, 5]), cut([0, 6]))


def test_centre_keeps_the_middle_of_long_images():
    left, right = np.zeros((50, 60, 3), np.uint8), np.full((50, 60, 3), 255, np.uint8)
    picture = tf.io.encode_png(np.concatenate([left, right], axis=1))
    shown = images._centre(picture, 32).numpy() * images._DEVIATION + images._MEAN
    assert shown.shape == (32, 32, 3)
    np.testing.assert_allclose(shown[:, :12], 0, atol=0.02)
    np.testing.assert_allclose(shown[:, -12:], 1, atol=0.02)


def test_classes_are_numbered_by_their_names(folders):
    files = images.find_images(str(folders), "validation")
    assert files.classes == ("class_0", "class_1") and files.count() == 6
    labels = [label for _, batch in images.make_images(files, 32, 4, training=False) for label in batch.numpy()]
    assert labels == [0, 0, 0, 1, 1, 1]


def test_counts_records_without_reading_them(records):
    assert images.find_images(str(records), "train").count() == 24


def test_a_damaged_file_is_named(tmp_path, records):
    path = tmp_path / "train-cut"
    path.write_bytes((records / "train-00000-of-00004").read_bytes()[:-3])
    with pytest.raises(ValueError, match="train-cut must be an uncompressed TFRecord file"):
        images.count_records(str(path))


def test_grey_and_png_images_are_read(tmp_path):
    folder = tmp_path / "train" / "only"
    folder.mkdir(parents=True)
    (folder / "a.png").write_bytes(tf.io.encode_png(np.full((40, 40, 1), 80, np.uint8)).numpy())
    (folder / "b.JPEG").write_bytes(make_jpeg(3))
    (folder / "notes.txt").write_text("no image")
    files = images.find_images(str(tmp_path), "train")
    assert read_numbers(images.make_images(files, 32, 2, training=False)) == [10, 3]


def test_refusals(tmp_path, records):
    with pytest.raises(ValueError, match="train, validation. Received: 'eval'"):
        images.find_images(str(records), "eval")
    with pytest.raises(ValueError, match="first_label must be 0 or 1. Received: 2"):
        images.find_images(str(records), "train", first_label=2)
    with pytest.raises(FileNotFoundError, match="Received: ''"):
        images.find_images("", "train")
    with pytest.raises(FileNotFoundError, match="/nowhere"):
        images.find_images("/nowhere", "train")
    (tmp_path / "other").mkdir()
    with pytest.raises(FileNotFoundError, match=r"train-\* and train/<class>/.*Received: other"):
        images.find_images(str(tmp_path), "train")
    (tmp_path / "train" / "empty").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match="one folder per class with images.*1 folders without"):
        images.find_images(str(tmp_path), "train")
    files = images.find_images(str(records), "train")
    with pytest.raises(ValueError, match="batch_size must be at least 1. Received: 0"):
        images.make_images(files, 32, 0, training=True)
