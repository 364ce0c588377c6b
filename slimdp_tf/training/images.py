"""Pipelines for ImageNet-like data: TFRecord files or folders of images, each worker reading its own part.

TFRecord files hold `tf.train.Example`s with the standard ImageNet features
    image/encoded      bytes, one JPEG, PNG, GIF (first frame) or BMP
    image/class/label  int64, counted from 1 (ImageNet's files) or from 0: `first_label` says which
and are named train-* and validation-* (as train-00000-of-01024), directly in `data_dir` or in folders train/ and
validation/. Folders of images hold one folder per class, train/<class>/<image>; classes are numbered in the order of
their names.
"""

from __future__ import annotations

import dataclasses
import pathlib
import struct

import tensorflow as tf

SPLITS = {"train": ("train",), "validation": ("validation", "val", "test")}
_IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".gif", ".bmp")
_MEAN = (0.485, 0.456, 0.406)  # of ImageNet's pixels, channel by channel, on a scale of 0..1
_DEVIATION = (0.229, 0.224, 0.225)
_SHUFFLE_EXAMPLES = 2048
_FILES_AT_ONCE = 8
_RESIZE_MARGIN = 256 / 224


@dataclasses.dataclass(frozen=True)
class ImageFiles:
    """What one split consists of.

    Attributes:
        paths: the files, sorted; TFRecord files, or one image each.
        labels: the class of each image, counted from 0; empty for TFRecord files.
        classes: names of the classes; empty for TFRecord files.
        first_label: the number that TFRecord files give to the first class.
    """

    paths: tuple[str, ...]
    labels: tuple[int, ...] = ()
    classes: tuple[str, ...] = ()
    first_label: int = 1

    def count(self) -> int:
        """Returns how many examples there are. Walks over the headers of TFRecord files, without reading the data."""
        return len(self.paths) if self.labels else sum(count_records(path) for path in self.paths)


def find_images(data_dir: str, split: str, first_label: int = 1) -> ImageFiles:
    """Returns the files of a split.

    Args:
        data_dir: the folder that holds the data.
        split: "train" or "validation".
        first_label: the number that TFRecord files give to the first class: 1 or 0.

    Raises:
        ValueError: an unknown split or first label.
        FileNotFoundError: no such folder, or nothing in it that can be read.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}. Received: {split!r}.")
    if first_label not in (0, 1):
        raise ValueError(f"first_label must be 0 or 1. Received: {first_label!r}.")
    root = pathlib.Path(data_dir or "").expanduser()
    if not data_dir or not root.is_dir():
        raise FileNotFoundError(
            f"data_dir must be a folder with the images: --data_dir=FOLDER. Received: {data_dir!r}."
        )
    for name in SPLITS[split]:
        records = [p for p in root.glob(f"{name}-*") if p.is_file()] or sorted((root / name).glob(f"{name}-*"))
        records = [str(path) for path in sorted(records) if path.is_file()]
        if records:
            return ImageFiles(tuple(records), first_label=first_label)
        if (root / name).is_dir():
            return _list_folders(root / name)
    allowed = " or ".join(f"{name}-* and {name}/<class>/" for name in SPLITS[split])
    raise FileNotFoundError(
        f"{root} must hold TFRecord files or folders of images for the split {split!r}: {allowed}. "
        f"Received: {', '.join(sorted(p.name for p in root.iterdir())[:8]) or 'an empty folder'}."
    )


def make_images(
    files: ImageFiles,
    image_size: int,
    batch_size: int,
    training: bool,
    seed: int = 0,
    shard_index: int | tf.Tensor = 0,
    shard_count: int = 1,
) -> tf.data.Dataset:
    """Returns batches (images f32[b, size, size, 3], labels i32[b]); pixels are normalised by ImageNet's mean.

    For training the data is shuffled, distorted (random crop of 8 to 100 % of the area, random flip) and repeated
    without end, each batch full; otherwise it is read once, in order, cut out at the centre.

    Args:
        files: what to read.
        image_size: height and width of the result, in pixels.
        batch_size: images per batch.
        training: whether to shuffle, distort and repeat.
        seed: of order and distortion; every shard draws its own.
        shard_index: which of the shards this is; may be a tensor.
        shard_count: among how many the data is divided: by files, or by examples where files are too few.
    """
    for name, value in (("image_size", image_size), ("batch_size", batch_size), ("shard_count", shard_count)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1. Received: {value}.")
    examples = _read_examples(files, training, seed, shard_index, shard_count)
    if training:
        examples = examples.repeat()
        shard_seed = tf.cast(seed, tf.int64) * shard_count + tf.cast(shard_index, tf.int64)
        examples = examples.enumerate().map(
            lambda number, example: (_distort(example[0], image_size, tf.stack([shard_seed, number])), example[1]),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
    else:
        examples = examples.map(
            lambda encoded, label: (_centre(encoded, image_size), label), num_parallel_calls=tf.data.AUTOTUNE
        )
    return examples.batch(batch_size, drop_remainder=training).prefetch(2)


def count_records(path: str) -> int:
    """Returns the number of records of an uncompressed TFRecord file, by walking over their headers.

    Raises:
        ValueError: the file ends within a record or is no such file.
    """
    size = pathlib.Path(path).stat().st_size
    records, position = 0, 0
    with open(path, "rb") as file:
        while position < size:
            file.seek(position)
            header = file.read(8)
            position += 16 + (struct.unpack("<Q", header)[0] if len(header) == 8 else size)  # length, 2 checksums
            records += 1
    if position != size:
        raise ValueError(f"{path} must be an uncompressed TFRecord file. Received: a file damaged at record {records}.")
    return records


def _list_folders(folder: pathlib.Path) -> ImageFiles:
    classes = sorted(p.name for p in folder.iterdir() if p.is_dir())
    images = [
        (str(path), label)
        for label, name in enumerate(classes)
        for path in sorted((folder / name).rglob("*"))
        if path.suffix.lower() in _IMAGE_ENDINGS
    ]
    if not images:
        raise FileNotFoundError(
            f"{folder} must hold one folder per class with images ({', '.join(_IMAGE_ENDINGS)}). "
            f"Received: {len(classes)} folders without images."
        )
    return ImageFiles(tuple(path for path, _ in images), tuple(label for _, label in images), tuple(classes))


def _read_examples(
    files: ImageFiles, training: bool, seed: int, shard_index: int | tf.Tensor, shard_count: int
) -> tf.data.Dataset:
    by_files = len(files.paths) >= shard_count
    if files.labels:
        paths = tf.data.Dataset.from_tensor_slices((list(files.paths), list(files.labels)))
    else:
        paths = tf.data.Dataset.from_tensor_slices(list(files.paths))
    if by_files and shard_count > 1:
        paths = paths.shard(shard_count, tf.cast(shard_index, tf.int64))
    if training:
        paths = paths.shuffle(len(files.paths), seed=seed)
    if files.labels:
        examples = paths.map(lambda path, label: (tf.io.read_file(path), tf.cast(label, tf.int32)))
    else:
        records = paths.interleave(tf.data.TFRecordDataset, cycle_length=_FILES_AT_ONCE if training else 1)
        examples = records.map(lambda record: _parse_example(record, files.first_label))
        if training:  # a path is shuffled among all others; records are, among those near them
            examples = examples.shuffle(_SHUFFLE_EXAMPLES, seed=seed)
    return examples if by_files else examples.shard(shard_count, tf.cast(shard_index, tf.int64))


def _parse_example(record: tf.Tensor, first_label: int) -> tuple[tf.Tensor, tf.Tensor]:
    features = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    }
    example = tf.io.parse_single_example(record, features)
    return example["image/encoded"], tf.cast(example["image/class/label"], tf.int32) - first_label


def _decode(encoded: tf.Tensor) -> tf.Tensor:
    return tf.io.decode_image(encoded, channels=3, expand_animations=False)


def _distort(encoded: tf.Tensor, image_size: int, seed: tf.Tensor) -> tf.Tensor:
    image = _decode(encoded)
    whole = tf.constant([[[0.0, 0.0, 1.0, 1.0]]])
    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.shape(image), whole, seed=seed, area_range=(0.08, 1.0), aspect_ratio_range=(3 / 4, 4 / 3)
    )
    image = tf.image.resize(tf.slice(image, begin, size), [image_size, image_size])
    return _normalise(tf.image.stateless_random_flip_left_right(image, seed), image_size)


def _centre(encoded: tf.Tensor, image_size: int) -> tf.Tensor:
    image = _decode(encoded)
    shape = tf.cast(tf.shape(image)[:2], tf.float32)
    scale = image_size * _RESIZE_MARGIN / tf.reduce_min(shape)
    target = tf.maximum(tf.cast(tf.math.ceil(shape * scale), tf.int32), image_size)
    image = tf.image.resize(image, target)
    return _normalise(tf.image.resize_with_crop_or_pad(image, image_size, image_size), image_size)


def _normalise(image: tf.Tensor, image_size: int) -> tf.Tensor:
    image = (image / 255.0 - _MEAN) / _DEVIATION
    return tf.ensure_shape(image, [image_size, image_size, 3])
