"""Vectors across the wire, in pieces: TensorFlow carries several at once, and one alone more slowly.

The sender cuts, the receiver joins; each is called under the device of whoever does it.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from slimdp_tf.types import Payload

_PIECE_BYTES = 4 << 20  # smaller pieces gain nothing more
_PIECES = 8  # of a vector whose length is known only when it is sent
_UNIT = 16  # entries: a slice that does not begin on 64 bytes is copied


def cut(vector: tf.Tensor, longest: int) -> list[tf.Tensor]:
    """`vector`, [m], in pieces that share its memory.

    Args:
        vector: what is to be sent.
        longest: how many entries it has at most.
    """
    length = vector.shape[0]
    count = -(-(longest if length is None else length) * vector.dtype.size // _PIECE_BYTES)
    if length is None:
        count = min(count, _PIECES)
    if count <= 1:
        return [vector]
    step = ((tf.size(vector) if length is None else length) // (count * _UNIT) + 1) * _UNIT
    return [vector[i * step : (i + 1) * step] for i in range(count)]


def join(pieces: list[tf.Tensor]) -> tf.Tensor:
    """What `cut` made, on the device this is called under."""
    pieces = [tf.identity(piece) for piece in pieces]
    return pieces[0] if len(pieces) == 1 else tf.concat(pieces, 0)


def fetch(payload: Payload, device: str, longest: int) -> Payload:
    """`payload`, which is on `device`, on the device this is called under; no vector is longer than `longest`."""
    with tf.device(device):
        cuts = {name: cut(vector, longest) for name, vector in payload.items()}
    return {name: join(pieces) for name, pieces in cuts.items()}


def there_and_back(entries: int, in_pieces: bool) -> Callable[[], object]:
    """For measuring: a function that moves `entries` floats from worker 0 to ps 0 and back, in pieces or whole."""
    ps, worker = (f"/job:{job}/replica:0/task:0/device:CPU:0" for job in ("ps", "worker"))
    with tf.device(ps):
        served = tf.Variable(tf.zeros([entries]))
    with tf.device(worker):
        local = tf.Variable(tf.zeros([entries]))

    def split(value: tf.Tensor) -> list[tf.Tensor]:
        return cut(value, entries) if in_pieces else [value]

    @tf.function(autograph=False)
    def move():
        with tf.device(worker):
            pushed = split(local.read_value())
        with tf.device(ps):
            with tf.control_dependencies([served.assign(join(pushed))]):
                pulled = split(served.read_value())
        with tf.device(worker):
            local.assign(join(pulled))

    return lambda: move()  # holds the variables
