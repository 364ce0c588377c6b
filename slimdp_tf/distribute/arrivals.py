"""Rounds without a barrier (pacing "async"): each worker runs its own, and its push is merged when it arrives.

A worker's thread: adopt its own answer -> p local steps -> push -> merged by itself on the servers -> its next round.
The servers' one thread takes the pushes in the order in which they come. A call of `run` ends when as many rounds have
ended as there are workers, whoever did them; workers that are ahead go on meanwhile, `staleness` rounds at most.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import time

import numpy as np
import tensorflow as tf

from slimdp_tf.distribute.arrival_functions import ArrivalFunctions
from slimdp_tf.distribute.arrival_slots import ArrivingShared
from slimdp_tf.distribute.calls import GONE, WATCH_S, constant_here
from slimdp_tf.distribute.lanes import Course, Lane, Task, Turn, soonest
from slimdp_tf.distribute.merging import Merging
from slimdp_tf.distribute.reports import Report, Unfinished, mean_loss
from slimdp_tf.distribute.roles import Role
from slimdp_tf.distribute.rounds import Rounds
from slimdp_tf.types import Signal


class Arrivals(Rounds):
    """Runs rounds whose workers do not wait for one another; see `Rounds`.

    Attributes:
        merging: merges the pushes; its `order` is the order in which they were.
    """

    make_shared, make_functions, can_rest = ArrivingShared, ArrivalFunctions, False

    def __init__(self, workers, servers, method, seed, on_nonfinite):
        super().__init__(workers, servers, method, seed, on_nonfinite)
        self._lanes = [Lane() for _ in range(len(workers))]
        self.merging = Merging(method, workers, self._lanes, self._needs_everything)
        self._state = self.merging.state
        self._done: collections.deque[tuple[int, Report | None, BaseException | None]] = collections.deque()
        self._task: Task | None = None
        self._course, self._is_paused = Course(method.staleness), False
        self._sums: dict[int, np.ndarray] = {}

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self.merging.begin_anew(self.binding.functions)

    def _run(self, step, handles, arguments, steps, is_exchanging, ahead) -> list[Report]:
        """One round of each worker, whoever does them; with nothing `ahead` it ends when all workers have ended."""
        started = time.perf_counter()
        self._refusals.begin(self.snapshots is not None)
        is_changed = self.workers.has_returned() or any(v.is_dirty for v in self.cache.variables)
        if self._task is None or self._is_paused or is_changed:
            self._pause()
            self.cache.leave_behind()  # by what was merged since the chief last looked
            self._send()
        with self._state:
            pulls = {"everything", "answer"} | {self._pull_of(worker) for worker in self.workers.live}
        prepare, ends_with = self.binding.functions.prepare, self.method if is_exchanging else None
        functions = prepare(step, self._traces[step], pulls, ends_with)
        with self._state:
            self._task = Task(step, functions, handles, arguments, is_exchanging)
            self._course.ask(steps, ahead)
            self._begin_turns()
        done = self._collect(is_last=not ahead)
        if not ahead:
            self._end_course()
        return self._conclude(done, started, is_exchanging)

    def settle(self) -> None:
        """Waits until no worker does anything; what was done beside `run` is merged and recorded."""
        started = time.perf_counter()
        self._pause()
        task, self._task = self._task, None  # nobody begins anything more
        done = self._collect(is_last=True) if self._done else []
        if done and task is not None:
            known = len(self.records)
            self._conclude(done, started, task.is_exchanging)
            self.ledger.tell(known)
        self._end_course()

    # -- before the workers begin ---------------------------------------------------------------------------------

    def _send(self) -> None:
        """While nobody does anything: takes workers that are back, and sends what the chief assigned."""
        if self.workers.has_returned():
            self._take_returned()
        if any(v.is_dirty for v in self.cache.of_role(Role.SUM)):
            self._sums.clear()
        if self.cache.send():
            self._needs_everything |= self.workers.live

    def _take_returned(self) -> None:
        stayed = set(self.workers.live)
        super()._take_returned()
        beside = min((self._lanes[w] for w in stayed), key=lambda lane: lane.turns, default=None)
        for worker in self.workers.live - stayed:
            self._lanes[worker].welcome(beside, len(self.merging.order))
            purpose = f"when {self.workers.names[worker]} was back"
            self.servers.call(functools.partial(self.merging.renew, worker), purpose)

    def _pull_of(self, worker: int) -> str | None:
        if worker in self._needs_everything:
            return "everything"
        return "answer" if self._lanes[worker].has_answer else None

    # -- rounds of workers; the caller holds the state ------------------------------------------------------------

    def _begin_turns(self) -> None:
        if self._is_paused or self._task is None:
            return
        for worker in self._course.may_begin({w: self._lanes[w] for w in sorted(self.workers.live)}):
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
        if turn.ticket == self._lanes[worker].ticket:
            self._needs_everything.discard(worker)
        if report.has_pushed:
            begun = time.perf_counter()
            purpose = f"while round {turn.number} of {self.workers.names[worker]} was merged"
            self.servers.call(functools.partial(self.merging.merge, turn, worker), purpose)
            report = dataclasses.replace(report, seconds=report.seconds + [0, 0, time.perf_counter() - begun])
        return report

    # -- while the chief waits ------------------------------------------------------------------------------------

    def _collect(self, is_last: bool) -> list[tuple[int, Report]]:
        """Waits for as many rounds as there are workers with data, or until all have ended."""
        got: list[tuple[int, Report]] = []
        while True:
            with self._state:
                if not self._done:
                    self._await(lambda: self._done)
                wanted = max(1, sum(not self._lanes[w].is_ended for w in self.workers.live))
                taken = [self._done.popleft() for _ in range(len(self._done) if is_last else min(1, len(self._done)))]
            for worker, report, error in taken:
                self._attend(worker, error)
                got += [(worker, report)] if report is not None else []
            if not self.workers.live:
                self.servers.check(f"in round {self.round}")
                self.workers.wait_for_any()
                self._send()
            with self._state:
                self._begin_turns()
                is_idle = not self._done and not any(lane.is_busy for lane in self._lanes)
            worked = sum(report.steps > 0 for _, report in got)
            if is_idle or (not is_last and worked >= wanted):
                return got

    def _await(self, is_there) -> None:
        """Waits for something, for nobody to be busy, or for the deadline of a worker, which is lost then."""
        patience = min(max(soonest(self._lanes) - time.monotonic(), 0.0), WATCH_S)
        is_over = self._state.wait_for(lambda: is_there() or not any(lane.is_busy for lane in self._lanes), patience)
        if not is_over and patience == WATCH_S:
            self.servers.watch(f"in round {self.round}")
        for worker, lane in enumerate(self._lanes):
            if lane.is_busy and worker not in self.workers.live:  # another call found it gone
                lane.forsake()
            elif lane.is_busy and lane.give_up <= time.monotonic():
                self.workers.lose(worker)
                lane.forsake()

    def _attend(self, worker: int, error: BaseException | None) -> None:
        """What a worker's round asks of the chief: it failed, or its push was not finite."""
        if error is not None:
            self._is_paused = True  # others begin nothing more if this is the end
            try:
                self.workers.judge(worker, error)
            except GONE as gone:  # the worker that says so is there: it is a server that it lost
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
            while any(lane.is_busy for lane in self._lanes):
                self._await(lambda: False)
            self._is_paused = False

    def _end_course(self) -> None:
        self._task, self._course = None, Course(self.method.staleness)
        for lane in self._lanes:
            lane.turns, lane.steps, lane.is_ended, lane.is_held = 0, 0, False, False
        self.merging.not_finite.clear()

    def _conclude(self, done: list[tuple[int, Report]], started: float, is_exchanging: bool) -> list[Report]:
        done = sorted(done, key=lambda entry: entry[0])
        self.steps += max((report.steps for _, report in done), default=0)
        self._sums.update({worker: report.sums for worker, report in done})
        reports = [report for _, report in done]
        if not is_exchanging or self._unfinished.has_begun:  # a custom loop: one report of each worker per call
            whole, started = self._unfinished.add(dict(done), started)
            reports = list(whole.values())
        if is_exchanging and any(report.steps for report in reports):
            self._stillness.note(dict(done))
            core, refused, more = self.merging.take_figures()
            self._record(reports, core, refused, started, time.perf_counter(), **more)
            self._unfinished = Unfinished()
            self.round += 1
            self.signal = self.signal.after(self.planned, self.steps, mean_loss(reports))
        self.cache.leave_behind()
        metrics = self.cache.of_role(Role.SUM)
        if metrics and self._sums:
            self.cache.absorb(metrics, np.sum([self._sums[w] for w in sorted(self._sums)], 0))
        return [report for _, report in done]
