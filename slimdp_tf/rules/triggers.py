"""WHEN an exchange takes place."""

from __future__ import annotations

import dataclasses

from slimdp_tf.types import Signal


@dataclasses.dataclass(frozen=True)
class Every:
    """After every `period` local steps: the paper's communication frequency p.

    Args:
        period: local mini-batches per round, at least 1.
    """

    period: int = 1

    def __post_init__(self):
        if isinstance(self.period, bool) or not isinstance(self.period, int) or self.period < 1:
            raise ValueError(
                f"p, the mini-batches per round, must be an integer of at least 1. Received: {self.period!r}"
            )

    def plan(self, signal: Signal) -> int:
        return self.period
