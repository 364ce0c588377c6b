"""Versions that were not run are named in a warning, once."""

import os
import subprocess
import sys

import pytest

from slimdp_tf.training import versions
from tests import sources


@pytest.mark.parametrize("tensorflow", ["2.20.0", "2.21.0", "2.21.1-rc0"])
@pytest.mark.parametrize("keras_version", ["3.12.0", "3.15.2"])
def test_versions_that_were_run_are_not_spoken_of(tensorflow, keras_version):
    assert versions.find_others(tensorflow, keras_version) == ""


@pytest.mark.parametrize(
    ("tensorflow", "keras_version", "says"),
    [
        ("2.22.0", "3.15.0", "was not run with TensorFlow 2.22.0 (run with 2.20 and 2.21)."),
        ("2.21.0", "3.1.5", "was not run with Keras 3.1.5 (run with 3.12 and 3.15)."),
        ("2.2.1", "4.0.0", "TensorFlow 2.2.1 (run with 2.20 and 2.21), nor with Keras 4.0.0 (run with 3.12 and 3.15)."),
    ],
)
def test_others_are_named(tensorflow, keras_version, says):
    assert versions.find_others(tensorflow, keras_version).endswith(says)


@pytest.mark.slow
def test_an_import_warns_once():
    done = subprocess.run(
        [sys.executable, "-c", "import keras; keras.__version__ = '3.99.0'; import slimdp_tf.cli.train"],
        cwd=sources.ROOT,
        env={**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("was not run with Keras 3.99.0") == 1
