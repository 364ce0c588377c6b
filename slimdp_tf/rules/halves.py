"""HOW values are written: as floats of 16 bits."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from slimdp_tf.types import Payload


@dataclasses.dataclass(frozen=True)
class Half:
    """Floats of 16 bits, to the nearest: 2 bytes per value.

    Args:
        dtype: "bfloat16" (8 bits of precision, float32's range) or "float16" (11 bits, up to 65504: what is greater
            is cut to that, and what a memory keeps of it comes later).
    """

    dtype: str = "bfloat16"

    def __post_init__(self):
        if self.dtype not in ("bfloat16", "float16"):
            raise ValueError(f"dtype must be 'bfloat16' or 'float16'. Received: {self.dtype!r}")

    def encode(self, value: tf.Tensor, seed: tf.Tensor) -> Payload:
        dtype = tf.as_dtype(self.dtype)
        limit = tf.cast(dtype.max, tf.float32)
        return {
            "value": tf.cast(tf.where(tf.math.is_finite(value), tf.clip_by_value(value, -limit, limit), value), dtype)
        }

    def decode(self, payload: Payload, count: tf.Tensor | int) -> tf.Tensor:
        return tf.cast(payload["value"], tf.float32)

    def lengths(self, count: tf.Tensor | int) -> dict[str, tf.Tensor | int]:
        return {"value": count}
