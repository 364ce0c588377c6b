"""The models of the experiments, as plain Keras models with softmax outputs.

Models for Fashion-MNIST take pixels 0..255 and scale them themselves, so that data can travel as bytes; models for
ImageNet take normalised images (see `images`). `width` scales every layer's number of channels, for quick tests.
"""

from __future__ import annotations

import keras
from keras import layers

_VGG16_BLOCKS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))

# Szegedy et al. 2015, table 1: 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, projection after the pool. "pool": 3x3, stride 2.
_INCEPTIONS = (
    ("3a", (64, 96, 128, 16, 32, 32)),
    ("3b", (128, 128, 192, 32, 96, 64)),
    ("pool3", None),
    ("4a", (192, 96, 208, 16, 48, 64)),
    ("4b", (160, 112, 224, 24, 64, 64)),
    ("4c", (128, 128, 256, 24, 64, 64)),
    ("4d", (112, 144, 288, 32, 64, 64)),
    ("4e", (256, 160, 320, 32, 128, 128)),
    ("pool4", None),
    ("5a", (256, 160, 320, 32, 128, 128)),
    ("5b", (384, 192, 384, 48, 128, 128)),
)


def fashion_mnist_mlp(hidden: tuple[int, ...] = (256, 256), classes: int = 10) -> keras.Model:
    """Returns a multilayer perceptron for images [28, 28] with pixels 0..255.

    Args:
        hidden: units of each hidden layer (relu).
        classes: number of classes.
    """
    _check_counts(classes=classes, **{f"hidden[{i}]": units for i, units in enumerate(hidden)})
    stack = [keras.Input((28, 28), dtype="uint8"), layers.Rescaling(1 / 255), layers.Flatten()]
    stack += [layers.Dense(units, activation="relu") for units in hidden]
    return keras.Sequential([*stack, _classify(classes)], name="fashion_mnist_mlp")


def fashion_mnist_cnn(
    filters: tuple[int, ...] = (32, 64), units: int = 128, dropout: float = 0.25, classes: int = 10
) -> keras.Model:
    """Returns a convolutional network with BatchNormalization for images [28, 28] with pixels 0..255.

    Args:
        filters: of the blocks convolution 3x3, BatchNormalization, relu, pool 2x2.
        units: of the dense layer before the last.
        dropout: share of its outputs that is dropped in training.
        classes: number of classes.
    """
    _check_counts(units=units, classes=classes, **{f"filters[{i}]": count for i, count in enumerate(filters)})
    stack = [keras.Input((28, 28), dtype="uint8"), layers.Rescaling(1 / 255), layers.Reshape((28, 28, 1))]
    for count in filters:
        stack += [
            layers.Conv2D(count, 3, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.MaxPooling2D(),
        ]
    stack += [layers.Flatten(), layers.Dense(units, activation="relu"), layers.Dropout(dropout), _classify(classes)]
    return keras.Sequential(stack, name="fashion_mnist_cnn")


def vgg16(image_size: int = 224, classes: int = 1000, width: float = 1.0) -> keras.Model:
    """Returns VGG-16 (138.4M parameters at its defaults) without pretrained weights.

    At width 1 it is `keras.applications.VGG16`, which has no dropout; else the same layers with fewer channels.

    Args:
        image_size: height and width of the images, in pixels, at least 32.
        classes: number of classes.
        width: factor of all channel counts, above 0.
    """
    _check_images(image_size, classes, width)
    if width == 1:
        return keras.applications.VGG16(weights=None, input_shape=(image_size, image_size, 3), classes=classes)
    stack = [keras.Input((image_size, image_size, 3))]
    for block in _VGG16_BLOCKS:
        stack += [_convolve(_scale(count, width), 3) for count in block] + [layers.MaxPooling2D()]
    stack += [layers.Flatten(), *(layers.Dense(_scale(4096, width), activation="relu") for _ in range(2))]
    return keras.Sequential([*stack, _classify(classes)], name="vgg16_narrow")


def googlenet(image_size: int = 224, classes: int = 1000, width: float = 1.0, dropout: float = 0.4) -> keras.Model:
    """Returns GoogLeNet (Inception v1; 7.0M parameters at its defaults), the network of Szegedy et al. 2015, table 1.

    Without the two auxiliary classifiers, and without local response normalisation, for which Keras has no layer
    (neither has a weight that the trained network keeps).

    Args:
        image_size: height and width of the images, in pixels, at least 32.
        classes: number of classes.
        width: factor of all channel counts, above 0.
        dropout: share of the last features that is dropped in training.
    """
    _check_images(image_size, classes, width)
    images = keras.Input((image_size, image_size, 3))
    x = _convolve(_scale(64, width), 7, strides=2)(images)
    x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
    x = _convolve(_scale(64, width), 1)(x)
    x = _convolve(_scale(192, width), 3)(x)
    x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
    for name, counts in _INCEPTIONS:
        if counts is None:
            x = layers.MaxPooling2D(3, strides=2, padding="same", name=name)(x)
        else:
            x = _inception(x, tuple(_scale(count, width) for count in counts), name)
    x = layers.Dropout(dropout)(layers.GlobalAveragePooling2D()(x))
    return keras.Model(images, _classify(classes)(x), name="googlenet")


def _inception(x: keras.KerasTensor, counts: tuple[int, ...], name: str) -> keras.KerasTensor:
    one, reduce_three, three, reduce_five, five, projection = counts
    pooled = layers.MaxPooling2D(3, strides=1, padding="same")(x)
    branches = [
        _convolve(one, 1)(x),
        _convolve(three, 3)(_convolve(reduce_three, 1)(x)),
        _convolve(five, 5)(_convolve(reduce_five, 1)(x)),
        _convolve(projection, 1)(pooled),
    ]
    return layers.Concatenate(name=f"inception_{name}")(branches)


def _convolve(filters: int, size: int, strides: int = 1) -> layers.Layer:
    return layers.Conv2D(filters, size, strides=strides, padding="same", activation="relu")


def _classify(classes: int) -> layers.Layer:
    return layers.Dense(classes, activation="softmax", dtype="float32")


def _scale(count: int, width: float) -> int:
    return max(1, round(count * width))


def _check_images(image_size: int, classes: int, width: float) -> None:
    if image_size < 32:
        raise ValueError(f"image_size must be at least 32 pixels. Received: {image_size}.")
    if width <= 0:
        raise ValueError(f"width must be above 0. Received: {width}.")
    _check_counts(classes=classes)


def _check_counts(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name} must be at least 1. Received: {count}.")


BUILDERS = {builder.__name__: builder for builder in (fashion_mnist_mlp, fashion_mnist_cnn, vgg16, googlenet)}
