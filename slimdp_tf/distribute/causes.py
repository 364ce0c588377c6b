"""What TensorFlow's errors say of the task that failed."""

from __future__ import annotations

import re

import tensorflow as tf


def lacks_all(error: BaseException) -> bool:
    """Whether it says that the task is another process than the one it was, or is not connected just now.

    A worker that was started anew before anyone noticed is connected again together with others, and answers.
    """
    said = ("Unable to find the relevant tensor remote_handle", "unknown device", "nor a name of a function registered")
    kinds = (tf.errors.InvalidArgumentError, tf.errors.NotFoundError)
    return isinstance(error, kinds) and any(text in str(error) for text in said)


def is_blamed(device: str, error: BaseException) -> bool:
    """Whether the task of `device` is the one that failed: TensorFlow's message names those on the way after it."""
    named = re.search(r"from remote target (/job:\w+/replica:\d+/task:\d+)", str(error))
    return named is not None and device.startswith(f"{named[1]}/")
