"""What the workers report of a round, and the record that is made of it."""

from __future__ import annotations

import dataclasses
import math
import time

import numpy as np
import tensorflow as tf

from slimdp_tf.measure.record import RoundRecord, Traffic


@dataclasses.dataclass
class Report:
    """What one worker reported of a round.

    Attributes:
        seconds: f64[3], pull, compute and push.
        steps: local steps done.
        loss: mean training loss of these steps, nan when unknown.
        bytes: f64[blocks of all that is shared, 4], values pushed, keys pushed, values pulled, keys pulled.
        matches: f64[3], signatures that matched, that did not, and those of the latter that no older core explains.
        explored: entries pushed beyond the core.
        is_still: whether the worker pushed nothing but zeros.
        sums: f64[entries of all metrics], what the metrics hold on this worker.
        outputs: the step's outputs.
    """

    seconds: np.ndarray
    steps: int
    loss: float
    bytes: np.ndarray
    matches: np.ndarray
    explored: float
    is_still: bool
    sums: np.ndarray
    outputs: list[np.ndarray]

    @property
    def has_pushed(self) -> bool:
        """Whether the worker stored anything on the servers."""
        return bool(self.bytes[:, :2].sum() > 0)

    def plus(self, later: Report) -> Report:
        """This and a later report of the same worker in the same round; sums and outputs are the later ones."""
        added = {name: getattr(self, name) + getattr(later, name) for name in ("seconds", "steps", "bytes", "matches")}
        trained = [report for report in (self, later) if report.steps]
        loss = np.average([r.loss for r in trained], weights=[r.steps for r in trained]) if trained else math.nan
        return dataclasses.replace(later, explored=self.explored + later.explored, loss=float(loss), **added)


class Unfinished:
    """What workers did in a round before its exchange: a custom loop calls them once per step."""

    def __init__(self):
        self._reports: dict[int, Report] = {}
        self._started: float | None = None

    @property
    def has_begun(self) -> bool:
        """Whether anything was done."""
        return self._started is not None

    def hold(self, reports: dict[int, Report]) -> None:
        """Takes what workers did between two rounds: it counts with the next one, whose time has not begun."""
        started = self._started
        self.add(reports, 0.0)
        self._started = started

    def add(self, reports: dict[int, Report], started: float) -> tuple[dict[int, Report], float]:
        """Takes what one more call did; returns what the round did so far, and when it began on the chief's clock."""
        self._started = started if self._started is None else self._started
        for worker, report in reports.items():
            self._reports[worker] = self._reports[worker].plus(report) if worker in self._reports else report
        return dict(sorted(self._reports.items())), self._started


def parse_report(outputs: list[tf.Tensor], blocks: int) -> Report:
    """What a worker's function returned: one vector of numbers, and the step's outputs.

    Args:
        outputs: [f64 vector, *outputs].
        blocks: how many blocks the vector has counts for.
    """
    numbers, *others = [output.numpy() for output in outputs]
    (steps, loss), counts, rest = numbers[3:5], numbers[5 : 5 + 4 * blocks], numbers[5 + 4 * blocks :]
    return Report(
        seconds=numbers[:3],
        steps=int(steps),
        loss=float(loss),
        bytes=counts.reshape(blocks, 4),
        matches=rest[:3],
        explored=float(rest[3]),
        is_still=bool(rest[4]),
        sums=rest[5:],
        outputs=others,
    )


class Stillness:
    """Notices workers whose updates have been nothing but zeros for many rounds: their data or their loss is at fault.

    Args:
        names: what warnings call each worker.
        rounds: how many rounds are many.
    """

    def __init__(self, names: list[str], rounds: int = 50):
        self.names, self.rounds = names, rounds
        self._still: dict[int, int] = {}

    def note(self, reports: dict[int, Report]) -> None:
        """Takes down what workers reported of a round; warns of each once, until it moves again."""
        for worker, report in reports.items():
            if report.steps:
                self._still[worker] = self._still.get(worker, 0) + 1 if report.is_still else 0
            if report.steps and self._still[worker] == self.rounds:
                message = "%s has pushed nothing but zeros for %d rounds: look at its data and at the loss."
                tf.get_logger().warning(message, self.names[worker], self.rounds)


def mean_loss(reports: list[Report]) -> float:
    """The mean loss over the workers that trained, nan when it is unknown."""
    losses = [report.loss for report in reports if report.steps]
    return float(np.mean(losses)) if losses else float("nan")


def make_record(reports: list[Report], started: float, worked: float, **known) -> RoundRecord:
    """The record of a round that ends now.

    Args:
        reports: of the workers that took part.
        started, worked: seconds on the chief's clock, at the round's start and when the workers had ended.
        known: the fields that reports say nothing of.
    """
    ended = time.perf_counter()
    pull, compute, push = np.mean([report.seconds for report in reports], 0)
    hits, misses, mismatches = np.sum([report.matches for report in reports], 0)
    return RoundRecord(
        steps_in_round=max(report.steps for report in reports),
        workers=sum(report.steps > 0 for report in reports),
        round_s=ended - started,
        compute_s=float(compute),
        exchange_s=float(pull + push) + ended - worked,
        wait_s=max(0.0, worked - started - float(pull + compute + push)),
        explorer_entries=float(np.mean([report.explored for report in reports])),
        cache_hits=int(hits),
        cache_misses=int(misses),
        cache_mismatches=int(mismatches),
        **known,
    )


def sum_traffic(reports: list[Report], widths: list[int], servers: int, chief_bytes: int) -> Traffic:
    """Bytes of a round, over all workers.

    Args:
        reports: of the workers that took part.
        widths: for everything that is shared, how many blocks it has; block j lives on server j.
        servers: how many servers there are.
        chief_bytes: what the chief moved since the last round.
    """
    by_block = np.sum([report.bytes for report in reports], 0).astype(np.int64)
    ps, start = np.zeros(servers, np.int64), 0
    for width in widths:
        ps[:width] += by_block[start : start + width].sum(1)
        start += width
    push, push_keys, pull, pull_keys = (int(total) for total in by_block.sum(0))
    return Traffic(push, pull, push_keys + pull_keys, chief_bytes, tuple(int(count) for count in ps))
