"""What a reader pastes from README.md trains."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests import sources

_DATA = """
import keras, numpy as np
generator = np.random.default_rng(0)
x, y = generator.integers(0, 256, (640, 28, 28), np.uint8), generator.integers(0, 10, 640, np.uint8)
keras.datasets.fashion_mnist.load_data = lambda: ((x, y), (x[:64], y[:64]))
"""
_COUNTS = """
print("iterations", int(model.optimizer.iterations), "rounds", strategy.rounds.round)
"""


@pytest.mark.cluster
def test_the_first_program_trains_as_written():
    program = re.search(r"```python\n(.*?)```", sources.read("README.md"), re.DOTALL).group(1)
    done = subprocess.run(
        [sys.executable, "-c", _DATA + program + _COUNTS],
        cwd=sources.ROOT,
        env={**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "val_accuracy" in done.stdout
    assert "iterations 25 rounds 10" in done.stdout
