"""Rounds of single workers, each in a thread of its own, and how all of them come to an end.

A worker's thread: adopt its own answer -> p local steps -> push -> merged by itself on the servers -> its next round.
The servers' one thread takes the pushes in the order in which they come.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
import time

import tensorflow as tf

from slimdp_tf.distribute.arrival_functions import ArrivalFunctions
from slimdp_tf.distribute.arrival_held import ArrivalHeld
from slimdp_tf.distribute.arrival_slots import ArrivingShared
from slimdp_tf.distribute.calls import GONE, WATCH_S, constant_here
from slimdp_tf.distribute.lanes import Course, Lane, Task, Turn, soonest
from slimdp_tf.distribute.merging import Merging
from slimdp_tf.distribute.reports import Report
from slimdp_tf.distribute.rounds import Rounds
from slimdp_tf.types import Signal

Done = tuple[int, Report | None, BaseException | None]


class Turns(Rounds):
    """Lets each worker do rounds of its own; `Arrivals` asks for them.

    Attributes:
        merging: merges the pushes; its `order` is the order in which the last ones were.
    """

    make_shared, make_functions, make_held = ArrivingShared, ArrivalFunctions, ArrivalHeld

    def __init__(self, workers, servers, method, seed, on_nonfinite):
        super().__init__(workers, servers, method, seed, on_nonfinite)
        self._lanes = [Lane() for _ in range(len(workers))]
        self.merging = Merging(method, workers, self._lanes, self._needs_everything)
        self._state = self.merging.state
        self._done: collections.deque[Done] = collections.deque()
        self._task: Task | None = None
        self._course, self._is_paused = Course(method.staleness), False

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self.merging.begin_anew(self.binding.functions)

    @property
    def _live_lanes(self) -> dict[int, Lane]:
        return {worker: self._lanes[worker] for worker in sorted(self.workers.live)}

    def _pull_of(self, worker: int) -> str | None:
        if worker in self._needs_everything:
            return "everything"
        return "answer" if self._lanes[worker].has_answer else None

    def _number_of(self, worker: int) -> int:
        return self._lanes[worker].number

    # -- rounds of workers; the caller holds the state ------------------------------------------------------------

    def _begin_turns(self) -> None:
        if self._is_paused or self._task is None:
            return
        for worker in self._course.may_begin(self._live_lanes):
            lane, is_exchanging = self._lanes[worker], self._task.is_exchanging
            planned = self.method.trigger.plan(Signal(round=lane.number, steps=lane.all_steps))
            left = self._course.left(lane)
            push = lane.choose_push(self.method, left <= planned) if is_exchanging else None
            most = int(min(planned, left))
            turn = Turn(self._task, lane.ticket, lane.number, self._pull_of(worker), push, most)
            lane.number, lane.has_answer = lane.number + is_exchanging, False
            lane.give_up = time.monotonic() + self.workers.deadline_s
            self.workers.submit(functools.partial(self._serve, turn), worker)

    def _serve(self, turn: Turn, worker: int) -> None:
        """In the worker's thread: one round, and whoever may begin another one afterwards does."""
        report, error = None, None
        try:
            report = self._work(turn, worker)
        except BaseException as raised:  # handed to the chief's thread, whatever it is
            error = raised
        with self._state:
            lane = self._lanes[worker]
            if turn.ticket == lane.ticket:
                lane.note(report, turn.steps)
                lane.is_held = lane.is_held or error is not None
                self._done.append((worker, report, error))
                self._begin_turns()
            elif report is not None:  # late: what it moved counts with the next record
                self.ledger.uncounted.append(report)
            self._state.notify_all()

    def _work(self, turn: Turn, worker: int) -> Report | None:
        function, task = turn.task.functions[turn.pull, turn.push], turn.task
        numbers = [constant_here(n) for n in (turn.steps, turn.number, worker)]
        try:
            outputs = function(task.handles(worker), task.arguments, *numbers)
        except tf.errors.OutOfRangeError:  # its data has ended; it has pulled by then
            return None
        report = self.binding.functions.parse(outputs)
        lane = self._lanes[worker]
        if turn.ticket == lane.ticket:
            self._needs_everything.discard(worker)
        if report.has_pushed and not lane.is_void(turn.ticket):
            begun = time.perf_counter()
            purpose = f"while round {turn.number} of {self.workers.names[worker]} was merged"
            self.servers.call(functools.partial(self.merging.merge, turn, worker), purpose)
            report = dataclasses.replace(report, seconds=report.seconds + [0, 0, time.perf_counter() - begun])
        return report

    # -- while the chief waits ------------------------------------------------------------------------------------

    def _await(self, is_there) -> None:
        """Waits for something, for nobody to be busy, or for the deadline of a worker, which is lost then."""
        patience = min(max(soonest(self._lanes) - time.monotonic(), 0.0), WATCH_S)
        is_over = self._state.wait_for(lambda: is_there() or not self._is_any_busy, patience)
        if not is_over and (silence := self.servers.watch(f"in round {self.round}")):
            for lane in self._lanes:  # whoever waits for a server is not late
                lane.excuse(time.monotonic() + self.workers.deadline_s + silence)
        for worker, lane in enumerate(self._lanes):
            if lane.is_busy and worker not in self.workers.live:  # another call found it gone
                lane.forsake()
            elif lane.is_busy and lane.give_up <= time.monotonic():
                self.workers.lose(worker)
                lane.forsake()

    @property
    def _is_any_busy(self) -> bool:
        return any(lane.is_busy for lane in self._lanes)

    def _attend(self, worker: int, error: BaseException | None) -> None:
        """What a worker's round asks of the chief: it failed, or its push was not finite."""
        if error is not None:
            self._is_paused = True  # others begin nothing more if this is the end
            try:
                self.workers.judge(worker, error)
            except GONE as gone:  # of a server that is not there
                raise self.servers.explain(gone, f"in round {self.round}") from gone
            with self._state:
                self._lanes[worker].forsake()
            self._is_paused = False
        if worker in self.merging.not_finite:
            self.merging.not_finite.discard(worker)
            self.cache.cleanse([worker])
            self._refusals.note(self.round, [worker])
            self._lanes[worker].is_held = False

    def _pause(self) -> None:
        with self._state:
            self._is_paused = True
            while self._is_any_busy:
                self._await(lambda: False)
            self._is_paused = False

    def _catch_up(self) -> None:
        """Lets every worker go as far in this epoch as the one that is furthest, and nobody beyond.

        What they did stays for `run` to collect.
        """
        with self._state:
            self._course.stop = max((lane.turns + lane.is_busy for lane in self._live_lanes.values()), default=0)
        kept, is_over = [], False
        while not is_over:
            with self._state:
                self._begin_turns()
                is_over = not self._is_any_busy and not self._done
                while self._is_any_busy:
                    self._await(lambda: False)
                done = [self._done.popleft() for _ in range(len(self._done))]
            for worker, report, error in done:
                self._attend(worker, error)
                kept += [(worker, report, None)] if error is None else []
        with self._state:
            self._done.extend(kept)
            self._course.stop = math.inf

    def _end_course(self) -> None:
        self._task, self._course = None, Course(self.method.staleness)
        for lane in self._lanes:
            lane.turns, lane.steps, lane.is_ended, lane.is_held = 0, 0, False, False
        self.merging.not_finite.clear()

    def abandon(self) -> None:
        """See `Rounds.abandon`; the epoch is begun anew where `run` is asked next."""
        with self._state:
            for lane in self._lanes:
                lane.abandon()
            self._done.clear()
            self._end_course()
            self._is_paused = False
