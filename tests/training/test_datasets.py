"""Fashion-MNIST: where it is looked for, what is refused."""

import gzip

import numpy as np
import pytest

from slimdp_tf.training import datasets
from tests.training.stand_ins import write_fashion_mnist, write_idx


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    """Keras's cache and Debian's folder, both empty."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.setattr(datasets, "DEBIAN_FOLDER", tmp_path / "debian")
    return {
        "cache": tmp_path / "keras" / "datasets" / "fashion-mnist",
        "debian": tmp_path / "debian",
        "data_dir": tmp_path / "mine",
    }


def test_looks_in_the_cache_then_debian_then_the_users_folder(places):
    assert datasets.find_fashion_mnist(str(places["data_dir"])) is None
    for name in ("data_dir", "debian", "cache"):
        write_fashion_mnist(places[name])
        assert datasets.find_fashion_mnist(str(places["data_dir"])) == places[name]


def test_passes_by_a_folder_that_lacks_a_file(places):
    write_fashion_mnist(places["cache"])
    (places["cache"] / datasets.FILES[3]).unlink()
    write_fashion_mnist(places["data_dir"] / "fashion-mnist")
    assert datasets.find_fashion_mnist(str(places["data_dir"])) == places["data_dir"] / "fashion-mnist"


def test_returns_bytes_or_numbers_to_1(places):
    write_fashion_mnist(places["debian"], train=12, test=5)
    (x_train, y_train), (x_test, y_test) = datasets.load_fashion_mnist()
    assert x_train.shape == (12, 28, 28) and x_train.dtype == np.uint8
    assert x_test.shape == (5, 28, 28) and y_test.tolist() == [0, 1, 2, 3, 4]
    assert y_train.dtype == np.int32
    (scaled, _), _ = datasets.load_fashion_mnist(dtype="float32")
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaled * 255, x_train, atol=1e-4)


def test_refuses_a_folder_that_is_not_there(places):
    write_fashion_mnist(places["debian"])
    for name in ("/nowhere", str(places["debian"] / datasets.FILES[0])):
        with pytest.raises(ValueError, match=f"data_dir must be a folder. Received: '{name}'"):
            datasets.load_fashion_mnist(name)


def test_nowhere_names_the_three_ways_out(places):
    places["data_dir"].mkdir()
    with pytest.raises(FileNotFoundError) as error:
        datasets.load_fashion_mnist(str(places["data_dir"]), download=False)
    for way in ("apt-get install dataset-fashion-mnist", "--data_dir", "access to the internet", str(places["cache"])):
        assert way in str(error.value)


def test_a_failed_download_is_one_error_in_words(monkeypatch):
    def fail():
        raise Exception("URL fetch failure: no route")

    monkeypatch.setattr(datasets.keras.datasets.fashion_mnist, "load_data", fail)
    with pytest.raises(FileNotFoundError, match="no route.*Three ways out"):
        datasets.load_fashion_mnist()


def test_a_damaged_file_is_named(places):
    write_fashion_mnist(places["debian"])
    path = places["debian"] / datasets.FILES[0]
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ValueError, match=f"{datasets.FILES[0]} is damaged"):
        datasets.load_fashion_mnist()
    path.write_bytes(b"<html>")
    with pytest.raises(ValueError, match=f"{datasets.FILES[0]} is damaged"):
        datasets.load_fashion_mnist()


def test_a_header_that_lies_is_refused(tmp_path):
    path = tmp_path / "x.gz"
    write_idx(path, np.arange(12).reshape(3, 4))
    assert datasets.read_idx(path).tolist() == np.arange(12).reshape(3, 4).tolist()
    content = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(content[:-1]))
    with pytest.raises(ValueError, match=r"header says \(3, 4\), after it come 11 bytes"):
        datasets.read_idx(path)
    path.write_bytes(gzip.compress(b"\0\0\x0d" + content[3:]))
    with pytest.raises(ValueError, match="IDX file of bytes"):
        datasets.read_idx(path)


def test_images_without_labels_are_refused(places):
    write_fashion_mnist(places["debian"])
    write_idx(places["debian"] / datasets.FILES[3], np.zeros(3))
    with pytest.raises(ValueError, match="8 test images and 3 labels"):
        datasets.load_fashion_mnist()


def test_an_unknown_dtype_is_refused():
    with pytest.raises(ValueError, match="uint8, float32. Received: 'float16'"):
        datasets.load_fashion_mnist(dtype="float16")
