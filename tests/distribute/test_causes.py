"""Who failed, by what TensorFlow says."""

import pytest
import tensorflow as tf

from slimdp_tf.distribute.causes import is_blamed, lacks_all

TARGET = "Additional GRPC error information from remote target /job:{}/replica:0/task:{} while calling"
LOST_CONTEXT = "Unable to find a context_id matching the specified one (7). Perhaps the worker was restarted\n"
LACKS_ALL = "Unable to find the relevant tensor remote_handle: Op ID: 7"


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (tf.errors.InvalidArgumentError, LACKS_ALL),
        (tf.errors.InvalidArgumentError, "x unknown device."),
        (tf.errors.NotFoundError, "'f' is neither a type of a primitive operation nor a name of a function registered"),
    ],
)
def test_a_task_that_is_another_process_lacks_all(kind, said):
    assert lacks_all(kind(None, None, said))
    assert not lacks_all(kind(None, None, "its own fault"))
    assert not lacks_all(tf.errors.UnavailableError(None, None, said))
    assert not lacks_all(ValueError(said))


def test_the_task_that_is_named_first_is_blamed():
    worker, server = TARGET.format("worker", 11), TARGET.format("ps", 1)
    error = tf.errors.AbortedError(None, None, f"{LOST_CONTEXT}{server}\n{worker}")
    assert is_blamed("/job:ps/replica:0/task:1/device:CPU:0", error)
    assert not is_blamed("/job:worker/replica:0/task:11/device:CPU:0", error)
    own = tf.errors.UnavailableError(None, None, f"failed to connect\n{worker}")
    assert is_blamed("/job:worker/replica:0/task:11/device:GPU:0", own)
    assert not is_blamed("/job:worker/replica:0/task:1/device:CPU:0", own)  # 11 is not 1
    assert not is_blamed("/job:worker/replica:0/task:11/device:CPU:0", tf.errors.UnavailableError(None, None, "reset"))
