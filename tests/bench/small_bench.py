"""A bench whose work is done at once, on the loopback device."""

import gzip

import numpy as np

from slimdp_tf.bench.lineup import read_contenders
from slimdp_tf.bench.loopback import Loopback
from slimdp_tf.bench.rates import read_rates
from slimdp_tf.bench.result import Mark, Result
from slimdp_tf.bench.run import Bench
from slimdp_tf.bench.task import IMAGES, LABELS
from slimdp_tf.bench.work import Examiner, Work

OWN = "tests.bench.own_contender:launch"


def make_examiner() -> Examiner:
    generator = np.random.default_rng(0)
    return Examiner(generator.integers(0, 256, (50, 28, 28), np.uint8), generator.integers(0, 10, 50))


def make_bench(folder, text="", own=(OWN,), **work) -> Bench:
    """A bench that ends after two evaluations."""
    small = Work(**{"workers": 2, "ps": 1, "every": 10, "epochs": 0.02, **work})
    contenders = read_contenders(text, own)
    rates = read_rates(["unshaped"])
    return Bench(small, contenders, rates, Loopback, folder, make_examiner(), folder, "python-without-torch")


def write_data(folder, examples=24) -> None:
    """Fashion-MNIST's training files with few images: image i is all i, its label is i % 10."""
    images = np.repeat(np.arange(examples, dtype=np.uint8), 784)
    labels = (np.arange(examples) % 10).astype(np.uint8)
    for (name, header), content in ((IMAGES, images), (LABELS, labels)):
        (folder / name).write_bytes(gzip.compress(bytes(header) + content.tobytes()))


def make_result(label="slim", accuracies=(0.8, 0.85, 0.86), seconds=10.0, **fields) -> Result:
    """A result with an evaluation every `seconds`, 1 MB sent, 0.6 MB of it at one link, and 48 steps each."""
    marks = tuple(
        Mark(48 * i, seconds * i, 10**6 * i, 2 * 10**6 * i, 600_000 * i, accuracy, 0.5 * i, 0.25 * i, 0.125 * i)
        for i, accuracy in enumerate(accuracies, start=1)
    )
    network = {"mbit_s": [95.0, 96.0], "busy": 0.1, "load": 0.5, "notes": []}
    standard = {"contender": f"{label}()", "is_outside": False, "rate": "100mbit", "workers": 4, "outcome": "target"}
    return Result(label=label, marks=marks, network=network, **{**standard, **fields})
