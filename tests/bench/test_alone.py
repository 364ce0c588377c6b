"""Modules of the bench run where TensorFlow is not imported."""

import subprocess
import sys

from slimdp_tf.bench import alone


def test_runs_a_module_without_the_package(tmp_path):
    command = [sys.executable, "-X", "importtime", alone.__file__, "slimdp_tf.bench.probe", "send", "127.0.0.1:1", "0"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "ConnectionRefusedError" in done.stderr  # it ran with its arguments: nobody listens there
    assert "| tensorflow" not in done.stderr and "slimdp_tf.distribute" not in done.stderr


def test_knows_its_package():
    assert alone._PACKAGE.name == "slimdp_tf"
