"""What each worker is at where there is no barrier, and who may begin another round."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable

from slimdp_tf.distribute.reports import Report
from slimdp_tf.distribute.step import Step
from slimdp_tf.method import Method

_LASTING = ("number", "all_steps", "waited", "pulled_at")  # what of a lane outlives an epoch


@dataclasses.dataclass(frozen=True)
class Task:
    """What all workers do until the chief says otherwise.

    Attributes:
        step: the local step.
        functions: (pull, push) -> the function of a worker's round, traced.
        handles: worker -> its iterators' handles.
        arguments: further tensors for the step.
        is_exchanging: whether rounds end with a push.
    """

    step: Step
    functions: dict[tuple[str | None, str | None], object]
    handles: Callable[[int], list]
    arguments: list
    is_exchanging: bool


@dataclasses.dataclass(frozen=True)
class Turn:
    """One round of one worker: its number, what it pulls, does at most and pushes, and the ticket it was begun with."""

    task: Task
    ticket: int
    number: int
    pull: str | None
    push: str | None
    steps: int


@dataclasses.dataclass
class Lane:
    """What one worker is at.

    Attributes:
        number: its rounds so far, over the life of the model.
        all_steps: its local steps so far.
        waited: its rounds since it last pushed.
        turns, steps: its rounds and local steps in this epoch.
        ticket: changes when the worker is lost, so that what it still does can be told from what it is asked.
        lost_ticket: the ticket it was lost with, as long as it is away.
        give_up: while it is busy, when it counts as lost (seconds of the monotonic clock).
        pulled_at: how many merges there were when its last answer was made.
        has_answer: whether its last push was merged and it has not yet pulled.
        is_ended: whether its data has ended.
        is_held: whether it may not begin a round before the chief has seen to it.
    """

    number: int = 0
    all_steps: int = 0
    waited: int = 0
    turns: int = 0
    steps: int = 0
    ticket: int = 0
    lost_ticket: int = -1
    give_up: float | None = None
    pulled_at: int = 0
    has_answer: bool = False
    is_ended: bool = False
    is_held: bool = False

    def choose_push(self, method: Method, is_last: bool) -> str:
        """What its next round ends with; the last one of an epoch, and one that has waited long, pushes anyway."""
        if method.pushes_whole(self.number):
            return "whole"
        is_free = hasattr(method.trigger, "is_due") and not is_last and self.waited + 1 < method.trigger.most
        return "due" if is_free else "chosen"

    def note(self, report: Report | None, asked: int) -> None:
        """A round of at most `asked` steps has ended; None: there was no data for it."""
        steps = report.steps if report else 0
        self.give_up, self.turns, self.is_ended = None, self.turns + 1, steps < asked
        self.steps, self.all_steps = self.steps + steps, self.all_steps + steps
        self.waited = 0 if report and report.has_pushed else self.waited + 1

    def is_void(self, ticket: int) -> bool:
        """Whether a round that was begun with `ticket` has nothing to say any more."""
        return ticket not in (self.ticket, self.lost_ticket)

    @property
    def is_busy(self) -> bool:
        """Whether a round of it is under way."""
        return self.give_up is not None

    def excuse(self, give_up: float) -> None:
        """If it is busy it has time until then."""
        if self.give_up is not None:
            self.give_up = max(self.give_up, give_up)

    def forsake(self) -> None:
        """The worker is lost; what it still pushes is late."""
        self.lost_ticket, self.ticket, self.give_up = self.ticket, self.ticket + 1, None
        self.has_answer = self.is_held = False

    def abandon(self) -> None:
        """What the worker is at counts no more, nor does what it still pushes."""
        self.lost_ticket, self.ticket, self.give_up = -1, self.ticket + 1, None
        self.has_answer = self.is_held = False

    def tell_place(self) -> dict[str, int]:
        """What a lane at rest is known by later; see `go_on_from`."""
        return {name: getattr(self, name) for name in _LASTING}

    def go_on_from(self, place: dict[str, int]) -> None:
        """Goes on from what `tell_place` gave."""
        for name in _LASTING:
            setattr(self, name, place[name])

    def welcome(self, beside: Lane | None, merges: int) -> None:
        """The worker is back, as far in this epoch as `beside`, and pulls everything."""
        self.lost_ticket, self.pulled_at, self.is_ended, self.is_held = -1, merges, False, False
        if beside is not None:
            self.turns, self.steps = beside.turns, beside.steps


@dataclasses.dataclass
class Course:
    """How far the chief has asked the workers to go in this epoch.

    Attributes:
        staleness: rounds a worker may be ahead of the slowest, and of what was asked.
        calls, asked: rounds and local steps asked for so far.
        ahead: further local steps that will be asked for.
        stop: rounds that nobody goes beyond, for all to come to rest.
    """

    staleness: int
    calls: int = 0
    asked: int = 0
    ahead: float = 0
    stop: float = math.inf

    def ask(self, steps: int, ahead: float) -> None:
        """One more round of each worker is asked for, of `steps` local steps."""
        self.calls, self.asked, self.ahead = self.calls + 1, self.asked + steps, ahead

    def left(self, lane: Lane) -> float:
        """Local steps a worker may still do."""
        return self.asked + self.ahead - lane.steps

    def may_begin(self, live: dict[int, Lane]) -> Iterable[int]:
        """Which of the live workers may begin a round now."""
        slowest = min((lane.turns for lane in live.values() if not lane.is_ended), default=0)
        for worker, lane in sorted(live.items()):
            is_free = not (lane.is_busy or lane.is_held or lane.is_ended)
            most = min(self.calls + (self.staleness if self.ahead else 0), self.stop)
            if is_free and lane.turns < most and lane.turns - slowest <= self.staleness and self.left(lane) > 0:
                yield worker

    def lead(self, live: Iterable[Lane]) -> tuple[int, int]:
        """Rounds and local steps that workers have done beyond what was asked for."""
        lanes = list(live)
        turns, steps = (max((getattr(lane, name) for lane in lanes), default=0) for name in ("turns", "steps"))
        return max(0, turns - self.calls), max(0, steps - self.asked)


def soonest(lanes: Iterable[Lane]) -> float:
    """When the first of the busy workers counts as lost, in seconds of the monotonic clock."""
    return min((lane.give_up for lane in lanes if lane.is_busy), default=math.inf)
