"""A soak: a cluster trains, faults come one after another, and everything is written down."""

from __future__ import annotations

import dataclasses
import itertools
import math
import pathlib
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from slimdp_tf.bench.soak.cast import Cast
from slimdp_tf.bench.soak.faults import Fault
from slimdp_tf.bench.soak.story import Story
from slimdp_tf.bench.soak.vitals import Growth, Sample, measure_growth

_BEGIN_S = 180.0  # patience with the first rounds
_RECOVER_S = 120.0  # with the end of a fault
_END_S = 90.0  # with the end of the training
_SETTLED = 20  # rounds before the first fault


@dataclasses.dataclass(frozen=True)
class Tried:
    """A fault that was tried.

    Attributes:
        fault: which.
        begun, undone: when it was done and undone, in seconds since the soak began.
        recovered_s: seconds from then until a round of all workers had ended, None if there was none in time.
        missing: updates of workers that the rounds meanwhile were merged without.
    """

    fault: Fault
    begun: float
    undone: float
    recovered_s: float | None
    missing: int


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a soak came to.

    Attributes:
        tried: the faults.
        samples: of all processes.
        growth: of all processes.
        rounds: how many were merged.
        epochs: what the chief wrote of each.
        complaints: what was wrong, in words; empty when the soak held.
    """

    tried: Sequence[Tried]
    samples: Sequence[Sample]
    growth: Sequence[Growth]
    rounds: int
    epochs: Sequence[dict[str, Any]]
    complaints: Sequence[str]

    @property
    def lost_rounds(self) -> int:
        """Rounds whose updates were lost as the run went back to a snapshot."""
        return max((epoch["lost"] for epoch in self.epochs), default=0)


class SoakFailed(RuntimeError):
    """The cluster did not go on; the message says why."""


class Soak:
    """Runs one soak.

    Args:
        cast: the processes.
        story: what the chief writes.
        stop: the file that ends the training.
        workers: how many there are.
        seconds: how long faults are tried.
        every_s: seconds between two looks at the processes.
        warm_up_s: how old a process is before it counts.
        tell: is told in words what happens.
    """

    def __init__(
        self,
        cast: Cast,
        story: Story,
        stop: pathlib.Path,
        workers: int,
        seconds: float,
        every_s: float,
        warm_up_s: float,
        tell: Callable[[str], None],
    ):
        self._cast, self._story, self._stop, self._workers = cast, story, stop, workers
        self._seconds, self._every_s, self._warm_up_s, self._tell = seconds, every_s, warm_up_s, tell
        self._tried: list[Tried] = []

    def run(self, faults: Iterator[Fault]) -> Outcome:
        """Starts the cluster, tries faults until the time is over, ends the training and returns what came of it."""
        has_ended, complaints = threading.Event(), []
        sampler = threading.Thread(target=self._sample, args=(has_ended,), daemon=True, name="slimdp soak samples")
        try:
            self._cast.start_all()
            sampler.start()
            self._await(lambda: len(self._story.rounds) >= _SETTLED, _BEGIN_S, "the first rounds")
            self._try_all(faults)
            has_ended.set()
            self._end()
        except SoakFailed as error:
            complaints.append(str(error))
        finally:
            has_ended.set()
            sampler.join(timeout=2 * self._every_s + 10.0)
        self._story.read_on()
        kills = [one.undone for one in self._tried if one.fault.kind == "kill"]
        growth = measure_growth(self._cast.samples, self._warm_up_s, kills)
        complaints += [*self._judge_training(), *_judge_growth(growth)]
        rounds, epochs = len(self._story.rounds), self._story.epochs
        return Outcome(self._tried, self._cast.samples, growth, rounds, epochs, complaints)

    def _try_all(self, faults: Iterator[Fault]) -> None:
        give_up = time.monotonic() + self._seconds
        for number in itertools.count(1):
            fault = next(faults)
            if time.monotonic() + fault.pause_s + fault.away_s > give_up:
                self._rest(give_up)
                return
            self._rest(time.monotonic() + fault.pause_s)
            begun = time.monotonic()
            undone = self._cast.inflict(fault)
            recovered: list[float] = []

            def has_recovered(undone=undone, recovered=recovered) -> bool:
                found = self._story.first_whole(undone, self._workers)
                recovered += [found] if found is not None else []
                return bool(recovered)

            try:
                self._await(has_recovered, _RECOVER_S, f"a round of all workers after a {fault.kind} of {fault.task}")
            finally:
                after = recovered[0] - undone if recovered else None
                missing = self._story.count_missing(begun, recovered[0] if recovered else math.inf, self._workers)
                start = self._cast.began
                self._tried.append(Tried(fault, begun - start, undone - start, after, missing))
            self._tell(
                f"[{number}] {fault.kind} of {fault.task} for {fault.away_s:.1f} s: all train again after "
                f"{after:.1f} s, {missing} updates missing"
            )

    def _rest(self, until: float) -> None:
        """Lets the cluster train."""
        while time.monotonic() < until:
            time.sleep(min(0.5, max(0.0, until - time.monotonic())))
            self._check()

    def _await(self, is_there: Callable[[], bool], seconds: float, what: str) -> None:
        give_up = time.monotonic() + seconds
        while True:
            self._story.read_on()
            if is_there():
                return
            self._check()
            if time.monotonic() > give_up:
                raise SoakFailed(f"Waited {seconds:g} s for {what}.")
            time.sleep(0.1)

    def _check(self) -> None:
        if dead := self._cast.find_dead():
            raise SoakFailed("; ".join(dead))

    def _end(self) -> None:
        self._stop.touch()
        try:
            code = self._cast.chief.wait(timeout=_END_S)
        except subprocess.TimeoutExpired as error:
            raise SoakFailed(f"The chief did not end within {_END_S:g} s of being asked to.") from error
        if code:
            raise SoakFailed("; ".join(self._cast.find_dead()))

    def _sample(self, has_ended: threading.Event) -> None:
        while not has_ended.wait(self._every_s):
            self._cast.sample()

    def _judge_training(self) -> list[str]:
        epochs = self._story.epochs
        if len(epochs) < 2:
            return [f"The training came to {len(epochs)} epochs, at least 2 are needed to see the loss fall."]
        first, last = epochs[0]["loss"], epochs[-1]["loss"]
        complaints = [] if last < first else [f"The loss did not fall: {first:.4f}, in the end {last:.4f}."]
        if not all(epoch["is_finite"] for epoch in epochs):
            complaints.append("Weights were not finite.")
        return complaints


def _judge_growth(growth: Sequence[Growth]) -> list[str]:
    known = [one for one in growth if one.is_known]
    complaints = [] if known else ["No process lived for long enough after its warm-up to say whether it grew."]
    for one in known:
        if not one.is_flat:
            complaints.append(
                f"{one.task} (process {one.life + 1}) grew: memory {one.rss_mb[0]:.0f} to {one.rss_mb[1]:.0f} MB "
                f"({100 * one.memory:+.1f} %), threads {one.threads[0]:.0f} to {one.threads[1]:.0f}, files "
                f"{one.files[0]:.0f} to {one.files[1]:.0f} in {one.seconds:.0f} s."
            )
    return complaints
