"""A contender's side of the bench: the work it is given, and its talk with the referee. Needs NumPy alone.

The reporting program prints lines of JSON and reads answers of one word:

    {"event": "ready", ...}                 built and warmed up            -> "go": the clock runs
    {"event": "quiet", "steps": 48}         no worker computes or sends    the clock stands from this line on
    {"event": "weights"}                    they are in $SLIMDP_BENCH's "weights" file -> "go" or "stop"

`steps` is per worker. "compute_s", "exchange_s" and "wait_s" beside it say what the average worker did since the start.
Everything else it prints is kept as its log. In Python:

    task = Task.from_environment()
    task.begin(version="...")
    while is_going:
        ...                                 # task.every steps
        is_going = task.pause(steps, weights)
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import pathlib
import sys
from collections.abc import Iterator, Sequence

import numpy as np

VARIABLE = "SLIMDP_BENCH"
IMAGES = ("train-images-idx3-ubyte.gz", 16)  # file, bytes of its header
LABELS = ("train-labels-idx1-ubyte.gz", 8)
PIXELS = 784


@dataclasses.dataclass(frozen=True)
class Task:
    """The work, and where its files are.

    Attributes:
        workers: K.
        batch: examples per worker and step.
        learning_rate: of plain SGD.
        every: steps between two evaluations.
        seed: of the order of examples and of whatever a method draws.
        data: folder with Fashion-MNIST.
        initial: .npz file with the initial weights.
        weights: .npz file to write weights into.
    """

    workers: int
    batch: int
    learning_rate: float
    every: int
    seed: int
    data: str
    initial: str
    weights: str

    @classmethod
    def from_environment(cls) -> Task:
        """Returns the task that the bench put into the environment."""
        return cls(**json.loads(os.environ[VARIABLE]))

    def write(self) -> dict[str, str]:
        """Returns the variable that `from_environment` reads."""
        return {VARIABLE: json.dumps(dataclasses.asdict(self))}

    # -- the work -------------------------------------------------------------------------------------------------

    def find(self, name: str) -> str:
        """Returns the path of a file of the data."""
        return str(pathlib.Path(self.data) / name)

    def initial_weights(self) -> list[np.ndarray]:
        """Returns [W1 f32[784, 256], b1 f32[256], W2, b2, W3 f32[256, 10], b3]: the same for everyone."""
        return read_weights(self.initial)

    def shard(self, worker: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns images f32[n, 784] in 0..1 and labels i64[n] of a worker: rows worker, worker + K, ..."""
        images, labels = (_read(self.find(name), header) for name, header in (IMAGES, LABELS))
        rows = slice(worker, None, self.workers)
        return images.reshape(-1, PIXELS)[rows].astype("float32") / 255.0, labels[rows].astype("int64")

    def batches(self, worker: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields a worker's batches without end, in a new order every time round; a last short one is left out."""
        images, labels = self.shard(worker)
        generator = np.random.default_rng([self.seed, worker])
        while True:
            order = generator.permutation(len(labels))
            for start in range(0, len(order) - self.batch + 1, self.batch):
                chosen = order[start : start + self.batch]
                yield images[chosen], labels[chosen]

    # -- the talk -------------------------------------------------------------------------------------------------

    def begin(self, **about: object) -> None:
        """Says that everything is built and warm, and waits until the clock runs."""
        _say(event="ready", **about)
        if not _listen():
            sys.exit(0)

    def pause(self, steps: float, weights: Sequence[np.ndarray] | object, **seconds: float) -> bool:
        """Says that all workers are quiet, hands the weights in, and returns whether to go on.

        Args:
            steps: per worker, since the beginning.
            weights: as `initial_weights` has them; a function without arguments that returns them is called when
                the clock stands.
            seconds: compute_s, exchange_s, wait_s since the beginning, mean over workers, if known.
        """
        _say(event="quiet", steps=steps, **seconds)
        np.savez(self.weights, *(weights() if callable(weights) else weights))
        _say(event="weights")
        return _listen()


def read_weights(path: str | pathlib.Path) -> list[np.ndarray]:
    """Returns the arrays of an .npz file that `np.savez(path, *arrays)` wrote, in their order."""
    with np.load(path) as file:
        return [file[f"arr_{i}"] for i in range(len(file.files))]


def _read(path: str, header: int) -> np.ndarray:
    with gzip.open(path) as file:
        return np.frombuffer(file.read(), np.uint8, offset=header)


def _say(**line: object) -> None:
    print(json.dumps(line), flush=True)


def _listen() -> bool:
    """Whether the answer is "go"; no answer means that the bench has ended."""
    return sys.stdin.readline().strip() == "go"
