"""A finished run as plain numbers: what tables, pictures and files are made of."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
from collections.abc import Iterable
from typing import Any

from slimdp_tf.measure.record import RoundRecord, Traffic

_MB = 1e6


@dataclasses.dataclass(frozen=True)
class Totals:
    """Sums over the rounds of a run so far.

    Attributes:
        rounds: how many rounds.
        steps: mini-batches per worker.
        seconds: from each round's start to its end; time between rounds (evaluation, saving) is not in it.
        compute_s, exchange_s, wait_s: what the average worker did in that time.
        traffic: bytes, sums over all workers.
        staleness: merges of others between a worker's pull and its own, the mean of each round.
    """

    rounds: int = 0
    steps: int = 0
    seconds: float = 0.0
    compute_s: float = 0.0
    exchange_s: float = 0.0
    wait_s: float = 0.0
    traffic: Traffic = Traffic()
    staleness: float = 0.0

    def add(self, record: RoundRecord) -> Totals:
        """Returns the totals with one more round."""
        return Totals(
            rounds=self.rounds + 1,
            steps=self.steps + record.steps_in_round,
            seconds=self.seconds + record.round_s,
            compute_s=self.compute_s + record.compute_s,
            exchange_s=self.exchange_s + record.exchange_s,
            wait_s=self.wait_s + record.wait_s,
            traffic=self.traffic + record.traffic,
            staleness=self.staleness + record.staleness_mean,
        )

    def count_mb(self, workers: int) -> float:
        """Returns the megabytes (1e6 bytes) that training moved, per worker: pushes, pulls and keys."""
        return self.traffic.exchange_bytes / _MB / workers


def sum_rounds(records: Iterable[RoundRecord]) -> Totals:
    """Returns the totals of some rounds."""
    totals = Totals()
    for record in records:
        totals = totals.add(record)
    return totals


@dataclasses.dataclass(frozen=True)
class Point:
    """The state of training after an epoch.

    Attributes:
        epoch: epochs done.
        steps: mini-batches per worker done.
        mb: megabytes (1e6 bytes) moved per worker so far.
        seconds: seconds of rounds so far.
        loss, accuracy: over the epoch's training data.
        val_loss, val_accuracy: on the validation data; nan where there was none.
    """

    epoch: int
    steps: int
    mb: float
    seconds: float
    loss: float = math.nan
    accuracy: float = math.nan
    val_loss: float = math.nan
    val_accuracy: float = math.nan

    @property
    def best_known_accuracy(self) -> float:
        """Accuracy on the validation data, on the training data where there was none."""
        return self.accuracy if math.isnan(self.val_accuracy) else self.val_accuracy


@dataclasses.dataclass(frozen=True)
class Run:
    """One training run.

    Attributes:
        label: how tables and pictures call it.
        method: name of the method's factory.
        workers, ps: size of the cluster.
        points: one per epoch, in order.
        totals: sums over all rounds.
        wall_s: seconds of the whole of `fit`, evaluation and tracing included.
        config: the resolved config, as plain values.
    """

    label: str
    method: str
    workers: int
    ps: int
    points: tuple[Point, ...]
    totals: Totals
    wall_s: float = math.nan
    config: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def accuracy(self) -> float:
        """Accuracy after the last epoch (not the best of all), nan when no epoch was finished."""
        return self.points[-1].best_known_accuracy if self.points else math.nan

    @property
    def mb_per_worker(self) -> float:
        return self.totals.count_mb(self.workers)

    @property
    def step_ms(self) -> float:
        """Milliseconds per step, mean over all rounds."""
        return 1000 * self.totals.seconds / self.totals.steps if self.totals.steps else math.nan

    @property
    def staleness(self) -> float:
        """Merges of others between a worker's pull and its own, mean over all rounds; 0 in step."""
        return self.totals.staleness / self.totals.rounds if self.totals.rounds else 0.0


def save_run(run: Run, path: str | pathlib.Path) -> None:
    """Writes a run as JSON; what is not a number is written as null."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(_replace(dataclasses.asdict(run), _is_nan, None), indent=2, default=str) + "\n")


def load_run(path: str | pathlib.Path) -> Run:
    """Returns a run that `save_run` wrote.

    Raises:
        ValueError: the file is not one of these.
    """
    try:
        content = json.loads(pathlib.Path(path).read_text())
        numbers = _replace({k: content.pop(k) for k in ("points", "totals", "wall_s")}, _is_none, math.nan)
        traffic = numbers["totals"].pop("traffic")
        traffic["ps_bytes"] = tuple(traffic["ps_bytes"])
        return Run(
            points=tuple(Point(**point) for point in numbers["points"]),
            totals=Totals(traffic=Traffic(**traffic), **numbers["totals"]),
            wall_s=numbers["wall_s"],
            **content,
        )
    except (json.JSONDecodeError, AttributeError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} must be a run as save_run writes it. Received: {type(error).__name__}: {error}."
        ) from error


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _is_none(value: Any) -> bool:
    return value is None


def _replace(value: Any, matches: Any, by: Any) -> Any:
    if isinstance(value, dict):
        return {key: _replace(item, matches, by) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_replace(item, matches, by) for item in value]
    return by if matches(value) else value
