"""WHEN an exchange takes place, where that changes in the course of training."""

from __future__ import annotations

import dataclasses
import math

from slimdp_tf.types import Signal


@dataclasses.dataclass(frozen=True)
class After:
    """After every step at first, after every `then` of them once `steps` have been done.

    Args:
        steps: local steps per worker until then, at least 0.
        then: local steps per round from then on.

    Reference: Lin et al. 2020 (post-local SGD), section 3.
    """

    steps: int = 1000
    then: int = 16
    period = 1

    def __post_init__(self):
        _check("steps, until rounds become longer,", self.steps, 0)
        _check("then, the mini-batches per round,", self.then, 1)

    def plan(self, signal: Signal) -> int:
        return self.then if signal.steps >= self.steps else 1


@dataclasses.dataclass(frozen=True)
class WithLoss:
    """Fewer steps per round as the loss falls: tau = ceil(sqrt(F / F_0) tau_0), or half of what it was, if not fewer.

    F is the mean loss over workers in the last round, F_0 that of round 0; an unknown loss changes nothing.

    Args:
        period: tau_0, the steps of the first rounds.
        every: rounds between two adaptations.

    Reference: Wang & Joshi 2019 (AdaComm), equations 17 and 18. We differ: it adapts by rounds, not by seconds, so that
    a run can be repeated.
    """

    period: int = 16
    every: int = 50
    needs_all = "plans a round by the loss of all workers in the one before"

    def __post_init__(self):
        _check("period, the mini-batches per round,", self.period, 1)
        _check("every, in rounds,", self.every, 1)

    def plan(self, signal: Signal) -> int:
        before = signal.before or self.period
        is_due = signal.round > 0 and signal.round % self.every == 0
        if not is_due or not math.isfinite(signal.loss) or not signal.first_loss > 0.0:
            return before
        planned = math.ceil(math.sqrt(max(signal.loss, 0.0) / signal.first_loss) * self.period)
        return max(1, planned if planned < before else before // 2)


def _check(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}. Received: {value!r}")
