"""Fashion-MNIST as NumPy arrays, from whichever place has it.

Looked for in this order: Keras's cache, the files of the Debian package dataset-fashion-mnist, a folder of the
user's, and Keras's download. A file that is there but damaged is an error, not a reason to look further.
"""

from __future__ import annotations

import gzip
import os
import pathlib
import zlib

import keras
import numpy as np

FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
DEBIAN_FOLDER = pathlib.Path("/usr/share/datasets/fashion-mnist")
_IDX_UINT8 = 0x08
_DTYPES = ("uint8", "float32")

Arrays = tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def load_fashion_mnist(data_dir: str | None = None, dtype: str = "uint8", download: bool = True) -> Arrays:
    """Returns (images, labels) for training and for testing.

    Args:
        data_dir: a folder that holds the four files `FILES`, or has them in a subfolder fashion-mnist.
        dtype: "uint8" for pixels 0..255 (a quarter of the bytes), "float32" for pixels 0..1.
        download: whether Keras may download the files when no folder has them.

    Returns:
        (x_train [60000, 28, 28], y_train i32[60000]), (x_test [10000, 28, 28], y_test i32[10000]).

    Raises:
        ValueError: an unknown dtype, a data_dir that is no folder, or a damaged file (named).
        FileNotFoundError: the data is nowhere; the message lists the three ways out.
    """
    if dtype not in _DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(_DTYPES)}. Received: {dtype!r}.")
    if data_dir and not pathlib.Path(data_dir).expanduser().is_dir():
        raise ValueError(f"data_dir must be a folder. Received: {data_dir!r}, which is none.")
    folder = find_fashion_mnist(data_dir)
    if folder is None:
        (x_train, y_train), (x_test, y_test) = _download(data_dir, download)
    else:
        x_train, y_train, x_test, y_test = (read_idx(folder / name) for name in FILES)
    for images, labels, part in ((x_train, y_train, "training"), (x_test, y_test, "test")):
        if len(images) != len(labels):
            raise ValueError(
                f"Fashion-MNIST in {folder} needs one label per image. Received: {len(images)} {part} images "
                f"and {len(labels)} labels."
            )
    return (_scale(x_train, dtype), y_train.astype("int32")), (_scale(x_test, dtype), y_test.astype("int32"))


def find_fashion_mnist(data_dir: str | None = None) -> pathlib.Path | None:
    """Returns the first folder that holds all four files, None when there is none."""
    folders = [_cache_folder(), DEBIAN_FOLDER]
    if data_dir:
        folders += [pathlib.Path(data_dir).expanduser(), pathlib.Path(data_dir).expanduser() / "fashion-mnist"]
    for folder in folders:
        if all((folder / name).is_file() for name in FILES):
            return folder
    return None


def read_idx(path: pathlib.Path) -> np.ndarray:
    """Returns the u8 array of a gzipped IDX file.

    Args:
        path: the file; the format is two zero bytes, the type (8: u8), the rank, the sizes (big-endian i32), the data.

    Raises:
        ValueError: the file is damaged or not such a file.
    """
    try:
        content = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is damaged ({error}). Delete it or replace it by a whole copy.") from error
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != _IDX_UINT8:
        raise ValueError(f"{path} must be a gzipped IDX file of bytes. Received: a file that begins {content[:4]!r}.")
    rank = content[3]
    offset = 4 + 4 * rank
    shape = tuple(int(size) for size in np.frombuffer(content[4:offset], ">i4"))
    if len(shape) != rank or len(content) - offset != int(np.prod(shape)):
        raise ValueError(
            f"{path} is damaged: its header says {shape}, after it come {len(content) - offset} bytes. "
            "Delete it or replace it by a whole copy."
        )
    return np.frombuffer(content, np.uint8, offset=offset).reshape(shape)


def _cache_folder() -> pathlib.Path:
    home = os.environ.get("KERAS_HOME") or pathlib.Path.home() / ".keras"
    return pathlib.Path(home) / "datasets" / "fashion-mnist"


def _download(data_dir: str | None, allowed: bool) -> Arrays:
    reason = "downloading was switched off"
    if allowed:
        try:
            return keras.datasets.fashion_mnist.load_data()
        except Exception as error:  # Keras raises a bare Exception when a URL cannot be fetched
            reason = f"the download failed: {error}"
    names = ", ".join(FILES)
    raise FileNotFoundError(
        f"Fashion-MNIST was not found in {_cache_folder()}, in {DEBIAN_FOLDER}"
        f"{f', in {data_dir}' if data_dir else ''}, and {reason}. Three ways out:\n"
        "  1. apt-get install dataset-fashion-mnist\n"
        f"  2. put {names} into a folder and name it: --data_dir=FOLDER\n"
        "  3. run once with access to the internet, so that Keras can download it"
    )


def _scale(images: np.ndarray, dtype: str) -> np.ndarray:
    return images if dtype == "uint8" else images.astype("float32") / 255.0
