"""A word of warning where TensorFlow or Keras has a version that this package was not run with."""

from __future__ import annotations

import keras
import tensorflow as tf

from slimdp_tf.distribute._tf import TF_VERSIONS
from slimdp_tf.training.keras_bridge import KERAS_VERSIONS


def find_others(tensorflow: str = tf.__version__, keras_version: str = keras.__version__) -> str:
    """What to say of these versions, such as "2.21.0"; nothing when the package was run with both."""
    others = [
        f"{name} {found} (run with {' and '.join(run)})"
        for name, found, run in (("TensorFlow", tensorflow, TF_VERSIONS), ("Keras", keras_version, KERAS_VERSIONS))
        if ".".join(found.split(".")[:2]) not in run
    ]
    return f"slimdp_tf uses internals, and was not run with {', nor with '.join(others)}." if others else ""


def warn_of_others() -> None:
    """Warns if the versions found are others than those that were run."""
    if message := find_others():
        tf.get_logger().warning(message)
