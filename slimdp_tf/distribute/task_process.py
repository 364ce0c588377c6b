"""The program of a process of a local cluster. It is run by its path, not as a module.

What serves is TensorFlow's runtime, in C++. Importing TensorFlow's Python front, Keras included, takes much longer than
starting a server, and a process that serves needs five names of it. So the front pages of `tensorflow` and of
this package stay closed here; the modules behind them are imported as they are. With an accelerator the whole of
TensorFlow is imported, because its front page finds the libraries of devices.
"""

from __future__ import annotations

import glob
import importlib.util
import json
import logging
import pathlib
import sys
import types

ACCELERATORS = ("/dev/nvidia[0-9]*", "/dev/kfd")
PLUGINS = "tensorflow-plugins"  # a folder beside TensorFlow's


def open_package(name: str) -> types.ModuleType:
    """Makes the modules of a package importable without its front page, and returns what stands for it."""
    package = types.ModuleType(name)
    package.__path__ = list(importlib.util.find_spec(name).submodule_search_locations)
    sys.modules[name] = package
    return package


def has_accelerator() -> bool:
    """Whether this machine may have a device that TensorFlow's front page would find."""
    folder = pathlib.Path(importlib.util.find_spec("tensorflow").submodule_search_locations[0])
    return (folder.parent / PLUGINS).exists() or any(glob.glob(pattern) for pattern in ACCELERATORS)


def open_tensorflow() -> None:
    """`import tensorflow` gives what serving needs, and no more."""
    tensorflow = open_package("tensorflow")
    from tensorflow.core.protobuf import config_pb2
    from tensorflow.python import tf2
    from tensorflow.python.framework import errors
    from tensorflow.python.training import server_lib

    tf2.enable()  # kernels ask for it
    tensorflow.errors = errors
    tensorflow.compat = types.SimpleNamespace(v1=types.SimpleNamespace(ConfigProto=config_pb2.ConfigProto))
    tensorflow.distribute = types.SimpleNamespace(Server=server_lib.Server)
    tensorflow.train = types.SimpleNamespace(ClusterSpec=server_lib.ClusterSpec)
    tensorflow.get_logger = lambda: logging.getLogger("tensorflow")


def main(task: dict) -> None:
    """Serves `task`; see `serve.serve_for_parent`."""
    if not has_accelerator():
        open_tensorflow()
    open_package("slimdp_tf")
    from slimdp_tf.distribute import serve

    serve.serve_for_parent(task)


if __name__ == "__main__":
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[2])
    main(json.loads(sys.argv[1]))
