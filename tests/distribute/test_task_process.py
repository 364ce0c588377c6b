"""A process of a local cluster imports what serving needs; all else of it is tested with real clusters."""

import json
import subprocess
import sys

import pytest
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.framework import errors
from tensorflow.python.training import server_lib

from slimdp_tf.distribute import task_process

LOOK = """
import sys, runpy
program = runpy.run_path({path!r})
program["open_tensorflow"]()
program["open_package"]("slimdp_tf")
from slimdp_tf.distribute import serve
import json, tensorflow as tf
print(json.dumps([tf.__path__, [name for name in sys.modules if name.split(".")[0] == "keras"], serve.__file__]))
"""


def test_what_serves_opens_neither_keras_nor_the_front_page_of_this_package():
    program = LOOK.format(path=task_process.__file__)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    path, keras, serve = json.loads(done.stdout)
    assert path[0].endswith("tensorflow") and keras == []
    assert serve.endswith("serve.py")


def test_the_names_are_those_of_tensorflows_front_page():
    assert server_lib.Server is tf.distribute.Server and server_lib.ClusterSpec is tf.train.ClusterSpec
    assert config_pb2.ConfigProto is tf.compat.v1.ConfigProto
    assert all(getattr(errors, name) is getattr(tf.errors, name) for name in dir(tf.errors) if name.endswith("Error"))


@pytest.mark.parametrize("found", [True, False])
def test_with_an_accelerator_all_of_tensorflow_is_imported(found, tmp_path, monkeypatch):
    monkeypatch.setattr(task_process, "PLUGINS", "no-such-folder")
    monkeypatch.setattr(task_process, "ACCELERATORS", (str(tmp_path / "device*"),))
    if found:
        (tmp_path / "device0").touch()
    assert task_process.has_accelerator() is found


def test_plugged_devices_are_accelerators(monkeypatch):
    monkeypatch.setattr(task_process, "PLUGINS", "tensorflow")
    monkeypatch.setattr(task_process, "ACCELERATORS", ())
    assert task_process.has_accelerator()
