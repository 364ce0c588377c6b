"""What a WORKER makes of pulled values."""

from __future__ import annotations

import dataclasses

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Replace:
    """The pulled value takes the place of the local one (Slim-DP, Algorithm 1, Merge)."""

    def adopt(self, local: tf.Tensor, incoming: tf.Tensor) -> tf.Tensor:
        return incoming
