"""What a run of the bench came to, as plain numbers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

_MB = 1e6


@dataclasses.dataclass(frozen=True)
class Mark:
    """The state of a run at an evaluation.

    Attributes:
        steps: mini-batches per worker.
        seconds: of the clock, which stands while the test images are classified.
        sent_bytes: by all hosts together, each byte once, headers included.
        worker_bytes: sent and received at the workers' links, sum over workers.
        busiest_bytes: sent and received at the link with the most, whichever host's it is.
        accuracy: on the test images, 0..1.
        compute_s, exchange_s, wait_s: what the average worker did with the seconds, nan where a contender cannot say.
    """

    steps: float
    seconds: float
    sent_bytes: int
    worker_bytes: int
    busiest_bytes: int
    accuracy: float
    compute_s: float = math.nan
    exchange_s: float = math.nan
    wait_s: float = math.nan


@dataclasses.dataclass(frozen=True)
class Result:
    """A run of one contender at one rate.

    Attributes:
        label: how tables and pictures call it.
        contender: which one it is, with its options.
        is_outside: whether it is another system than this package.
        rate: of the links, as it was written.
        workers: K.
        outcome: why it ended: target, epochs, time, diverged; or failed, and why.
        marks: one per evaluation, in order.
        network: what was measured of it: mbit_s in either direction, notes, busy (share of the processors that was in
            use by others just before).
        about: what the contender said of itself.
        setup_s: seconds until it was ready.
    """

    label: str
    contender: str
    is_outside: bool
    rate: str
    workers: int
    outcome: str
    marks: tuple[Mark, ...] = ()
    network: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    about: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    setup_s: float = math.nan

    @property
    def has_failed(self) -> bool:
        """Whether it ended by a mistake and not by its rules."""
        return self.outcome.startswith("failed")

    @property
    def best_accuracy(self) -> float:
        """The best of all evaluations, nan where there was none."""
        return max((mark.accuracy for mark in self.marks), default=math.nan)

    @property
    def seconds(self) -> float:
        """Of the whole run."""
        return self.marks[-1].seconds if self.marks else math.nan

    @property
    def step_ms(self) -> float:
        """Milliseconds per step, mean over the run."""
        return 1000 * self.seconds / self.marks[-1].steps if self.marks else math.nan

    @property
    def step_bytes(self) -> float:
        """Bytes sent per worker and step, mean over the run."""
        return self.marks[-1].sent_bytes / self.marks[-1].steps / self.workers if self.marks else math.nan

    @property
    def busiest_bytes(self) -> float:
        """Bytes per step that the most loaded link carries, both directions together, mean over the run."""
        return self.marks[-1].busiest_bytes / self.marks[-1].steps if self.marks else math.nan

    def first_at(self, accuracy: float) -> Mark | None:
        """Returns the first evaluation at or above an accuracy, None where there is none."""
        return next((mark for mark in self.marks if mark.accuracy >= accuracy - 1e-9), None)

    def seconds_to(self, accuracy: float) -> float:
        """Returns the seconds to an accuracy, nan where it was not reached."""
        mark = self.first_at(accuracy)
        return mark.seconds if mark else math.nan

    def mb_to(self, accuracy: float) -> float:
        """Returns the megabytes that all hosts sent until an accuracy, nan where it was not reached."""
        mark = self.first_at(accuracy)
        return mark.sent_bytes / _MB if mark else math.nan
