"""The work that every contender does, and the referee's side of it: initial weights, test accuracy, when to stop."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Sequence

import numpy as np

from slimdp_tf.bench.task import PIXELS, Task, read_weights
from slimdp_tf.training.datasets import find_fashion_mnist, load_fashion_mnist

SIZES = (PIXELS, 256, 256, 10)
PARAMETERS = sum((units + 1) * outputs for units, outputs in zip(SIZES, SIZES[1:]))  # 269,322
EXAMPLES = 60_000
_WEIGHTS_STREAM = 7  # apart from the streams of batches


@dataclasses.dataclass(frozen=True)
class Work:
    """Fashion-MNIST with an MLP 784-256-256-10 and plain SGD.

    Attributes:
        workers, ps: size of the cluster.
        batch: examples per worker and step.
        learning_rate: of SGD.
        every: steps per worker between two evaluations.
        target: test accuracy at which a run ends, 0..1.
        epochs: after which it ends at the latest.
        time_limit_s: seconds of the clock after which it ends at the latest.
        seed: of initial weights, order of examples, and whatever a method draws.
    """

    workers: int = 4
    ps: int = 2
    batch: int = 32
    learning_rate: float = 0.1
    every: int = 48
    target: float = 0.86
    epochs: float = 6.0
    time_limit_s: float = 150.0
    seed: int = 0

    def __post_init__(self):
        for name, most in (("workers", 64), ("ps", 64), ("batch", 1024), ("every", 10_000)):
            value = getattr(self, name)
            if not isinstance(value, int) or not 1 <= value <= most:
                raise ValueError(f"{name} must be an integer from 1 to {most}. Received: {value!r}.")
        if not 0.1 <= self.target <= 1.0:
            raise ValueError(f"target must be an accuracy from 0.1 to 1, as 0.86. Received: {self.target!r}.")
        for name in ("learning_rate", "epochs", "time_limit_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be above 0. Received: {value!r}.")
        if self.seed < 0:
            raise ValueError(f"seed must be at least 0. Received: {self.seed!r}.")

    @property
    def marks(self) -> tuple[float, ...]:
        """The accuracies whose seconds and megabytes are shown: the target, and one and two points below it."""
        return tuple(round(self.target - below, 6) for below in (0.02, 0.01, 0.0))

    def write(self, folder: pathlib.Path, data: pathlib.Path) -> Task:
        """Writes the initial weights into a folder, and returns what a contender is told."""
        folder.mkdir(parents=True, exist_ok=True)
        initial = folder / "initial.npz"
        np.savez(initial, *draw_weights(self.seed))
        shared = {name: getattr(self, name) for name in ("workers", "batch", "learning_rate", "every", "seed")}
        return Task(**shared, data=str(data), initial=str(initial), weights=str(folder / "weights.npz"))

    def judge(self, steps: float, seconds: float, accuracy: float) -> str | None:
        """Returns why a run ends: target, diverged, epochs or time; None when it goes on."""
        if accuracy >= self.target:
            return "target"
        if not math.isfinite(accuracy):
            return "diverged"
        examples = steps * self.batch * self.workers
        if examples > self.epochs * EXAMPLES - self.batch * self.workers:
            return "epochs"
        return "time" if seconds >= self.time_limit_s else None


class Examiner:
    """Measures accuracy on the 10,000 test images.

    Args:
        images: u8[n, 28, 28].
        labels: i32[n].
    """

    def __init__(self, images: np.ndarray, labels: np.ndarray):
        self._images = images.reshape(len(images), -1).astype("float32") / 255.0
        self._labels = labels

    def examine(self, path: str | pathlib.Path) -> float:
        """Returns the accuracy 0..1 of the weights in a file, nan where they are not finite.

        Raises:
            ValueError: they have not the shapes of the model.
        """
        weights = read_weights(path)
        shapes = [array.shape for array in weights]
        if shapes != list_shapes():
            raise ValueError(f"Weights must have the shapes {list_shapes()}. Received: {shapes}.")
        if not all(np.isfinite(array).all() for array in weights):
            return math.nan
        return float(np.mean(self._infer(weights) == self._labels))

    def _infer(self, weights: Sequence[np.ndarray]) -> np.ndarray:
        values = self._images
        for kernel, bias in zip(weights[:-2:2], weights[1:-2:2]):
            values = np.maximum(values @ kernel + bias, 0.0)
        return np.argmax(values @ weights[-2] + weights[-1], axis=1)


def list_shapes() -> list[tuple[int, ...]]:
    """Returns the shapes of [W1, b1, W2, b2, W3, b3]."""
    return [shape for pair in zip(SIZES, SIZES[1:]) for shape in (pair, pair[1:])]


def draw_weights(seed: int) -> list[np.ndarray]:
    """Returns He's normal initialisation, f32, W ~ N(0, 2 / inputs), and zero biases."""
    generator = np.random.default_rng([seed, _WEIGHTS_STREAM])
    draws = [generator.normal(0.0, math.sqrt(2.0 / s[0]), s) if len(s) == 2 else np.zeros(s) for s in list_shapes()]
    return [array.astype("float32") for array in draws]


def load_examiner(data_dir: str | None) -> tuple[pathlib.Path, Examiner]:
    """Returns the folder that holds Fashion-MNIST, and the examiner.

    Raises:
        FileNotFoundError: the data is nowhere as the files contenders read.
    """
    _, (images, labels) = load_fashion_mnist(data_dir)
    folder = find_fashion_mnist(data_dir)
    if folder is None:
        raise FileNotFoundError("Fashion-MNIST must be there as its four files: apt-get install dataset-fashion-mnist")
    return folder.resolve(), Examiner(images, labels)
