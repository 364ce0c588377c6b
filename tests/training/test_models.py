"""The models: their parameter counts, shapes and refusals."""

import keras
import numpy as np
import pytest

from slimdp_tf.training import models


@pytest.fixture(autouse=True)
def forget():
    yield
    keras.utils.clear_session()


def test_mlp_scales_pixels_itself():
    model = models.fashion_mnist_mlp(hidden=(16, 8))
    assert model.count_params() == 784 * 16 + 16 + 16 * 8 + 8 + 8 * 10 + 10
    pixels = np.random.default_rng(0).integers(0, 256, (4, 28, 28)).astype("uint8")
    hidden = pixels.reshape(4, 784) / 255
    for layer in model.layers[2:4]:
        kernel, bias = layer.get_weights()
        hidden = np.maximum(hidden @ kernel + bias, 0)
    kernel, bias = model.layers[4].get_weights()
    logits = np.exp(hidden @ kernel + bias)
    expected = logits / logits.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model(pixels), expected, rtol=1e-4)


def test_mlp_has_the_readme_s_size_at_its_defaults():
    assert models.fashion_mnist_mlp().count_params() == 269_322


def test_cnn_normalises_batches():
    model = models.fashion_mnist_cnn(filters=(4, 8), units=16)
    assert sum(isinstance(layer, keras.layers.BatchNormalization) for layer in model.layers) == 2
    assert len(model.non_trainable_variables) >= 4  # moving means and variances
    assert model(np.zeros((2, 28, 28), "uint8")).shape == (2, 10)


def test_googlenet_has_the_paper_s_parameters():
    model = models.googlenet()
    assert model.count_params() == 6_998_552
    channels = {layer.name: layer.output.shape[-1] for layer in model.layers if layer.name.startswith("inception_")}
    assert list(channels.values()) == [256, 480, 512, 512, 512, 528, 832, 832, 1024]
    sizes = [layer.output.shape[1] for layer in model.layers if layer.name.startswith("inception_")]
    assert sizes == [28, 28, 14, 14, 14, 14, 14, 7, 7]


@pytest.mark.slow
def test_narrow_vgg16_is_vgg16_with_fewer_channels():
    whole = [w.shape for w in models.vgg16(image_size=32, classes=3).weights]
    half = [w.shape for w in models.vgg16(image_size=32, classes=3, width=0.5).weights]
    assert len(whole) == len(half) == 32  # 13 convolutions, 3 dense layers
    for i, (a, b) in enumerate(zip(whole, half, strict=True)):
        first, last = i < 2, i >= 30
        expected = [n // 2 for n in a]
        if len(a) == 4:
            expected = [3, 3, 3 if first else a[2] // 2, a[3] // 2]
        if last:
            expected = [*expected[:-1], 3]
        assert list(b) == expected


@pytest.mark.slow
@pytest.mark.parametrize("build", [models.vgg16, models.googlenet])
def test_narrow_models_for_images_run(build):
    model = build(image_size=32, classes=5, width=1 / 32)
    assert model.count_params() < 60_000
    np.testing.assert_allclose(np.sum(model(np.zeros((2, 32, 32, 3), "float32")), axis=1), 1, rtol=1e-5)


def test_refusals():
    with pytest.raises(ValueError, match="image_size must be at least 32 pixels. Received: 16"):
        models.googlenet(image_size=16)
    with pytest.raises(ValueError, match="width must be above 0. Received: 0"):
        models.vgg16(width=0)
    with pytest.raises(ValueError, match="classes must be at least 1. Received: 0"):
        models.fashion_mnist_mlp(classes=0)
    with pytest.raises(ValueError, match=r"hidden\[1\] must be at least 1. Received: -3"):
        models.fashion_mnist_mlp(hidden=(4, -3))
