"""Rounds without a barrier (pacing "async"): each worker runs its own, and its push is merged when it arrives.

A call of `run` ends when as many rounds have ended as there are workers, whoever did them; workers that are ahead go on
meanwhile, `staleness` rounds at most. How a worker does its rounds stands in `turns.py`.
"""

from __future__ import annotations

import functools
import time

import numpy as np

from slimdp_tf.distribute.lanes import Task
from slimdp_tf.distribute.reports import Report, Unfinished, mean_loss
from slimdp_tf.distribute.roles import Role
from slimdp_tf.distribute.turns import Turns


class Arrivals(Turns):
    """Runs rounds whose workers do not wait for one another; see `Rounds`."""

    def __init__(self, workers, servers, method, seed, on_nonfinite):
        super().__init__(workers, servers, method, seed, on_nonfinite)
        self._sums: dict[int, np.ndarray] = {}

    def _run(self, step, handles, arguments, steps, is_exchanging, ahead) -> list[Report]:
        """One round of each worker, whoever does them; with nothing `ahead` it ends when all workers have ended."""
        started = time.perf_counter()
        self._refusals.begin(self.snapshots is not None)
        is_changed = self.workers.has_returned() or any(v.is_dirty for v in self.cache.variables)
        if self._task is None or self._is_paused or is_changed:
            self._pause()
            self._make_ready()
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

    def _settle(self) -> None:
        """Waits until no worker does anything; what was done beside `run` is merged and recorded."""
        started = time.perf_counter()
        self._pause()
        task, self._task = self._task, None  # nobody begins anything more
        done = self._collect(is_last=True) if self._done else []
        if done and task is not None:
            known = self.ledger.count
            self._conclude(done, started, task.is_exchanging)
            self.ledger.tell(known)
        self._end_course()

    # -- before the workers begin ---------------------------------------------------------------------------------

    def _make_ready(self) -> None:
        """While nobody does anything: takes workers that are back, and sends what the chief assigned."""
        self.cache.leave_behind()  # by what was merged since the chief last looked
        if any(v.is_dirty for v in self.cache.of_role(Role.SUM)):
            self._sums.clear()
        super()._make_ready()

    def _take_returned(self) -> None:
        stayed = set(self.workers.live)
        super()._take_returned()
        beside = min((self._lanes[w] for w in stayed), key=lambda lane: lane.turns, default=None)
        for worker in self.workers.live - stayed:
            self._lanes[worker].welcome(beside, self.merging.merges)
            purpose = f"when {self.workers.names[worker]} was back"
            self.servers.call(functools.partial(self.merging.renew, worker), purpose)

    # -- at rest --------------------------------------------------------------------------------------------------

    def rest(self) -> None:
        """See `Rounds.rest`: everybody is as far as the one that was furthest, and all that was pushed is merged."""
        self._catch_up()
        self._make_ready()
        self._take_over()

    def _note_taken(self, reports: dict[int, Report]) -> None:
        for worker in reports:
            self._lanes[worker].has_answer = False
        self.ledger.uncounted += reports.values()

    def tell_place(self) -> dict:
        """See `Rounds.tell_place`; "lanes" and "merging" tell how far each worker and the merges are."""
        place = super().tell_place()
        rounds, steps = self._course.lead(self._live_lanes.values())
        place |= {"round": self.round + rounds, "steps": self.steps + steps, "lead": steps}
        place["signal"] |= {"round": self.signal.round + rounds, "steps": self.signal.steps + steps}
        return {**place, "lanes": [lane.tell_place() for lane in self._lanes], "merging": self.merging.tell_place()}

    def rewind(self, place: dict, strangers: set[int], sums: dict[int, np.ndarray] | None) -> None:
        """See `Rounds.rewind`; a worker that was not there goes on with the number of the one that was furthest."""
        super().rewind(place, strangers, sums)
        self._sums = self._sums if sums is None else sums
        with self._state:
            self.merging.go_on_from(place["merging"], self.binding.functions)
            furthest = max(place["lanes"], key=lambda lane: lane["number"])
            for worker, lane in enumerate(self._lanes):
                lane.go_on_from(place["lanes"][worker] if worker < len(place["lanes"]) else furthest)

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
                self._make_ready()
            with self._state:
                self._begin_turns()
                is_idle = not self._done and not self._is_any_busy
            worked = sum(report.steps > 0 for _, report in got)
            if is_idle or (not is_last and worked >= wanted):
                return got

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
