"""The round: every live worker runs one function, then one merge folds what they stored.

worker: adopt what was merged last -> p local steps -> push into its slots
servers: inspect, fold, make the answers ready, choose a new core when it is due
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from slimdp_tf.distribute.calls import constant_here
from slimdp_tf.distribute.refusals import warn_of
from slimdp_tf.distribute.reports import Report, Unfinished, mean_loss
from slimdp_tf.distribute.resting import Resting
from slimdp_tf.distribute.roles import Role
from slimdp_tf.distribute.step import Step
from slimdp_tf.inspection import ABSENT, MERGED, NOT_FINITE


class Rounds(Resting):
    """Runs the rounds of whatever is trained under one strategy, all workers in step; see `Resting`."""

    def run(
        self, step: Step, handles: Callable[[int], list], arguments: list, steps: int, is_exchanging: bool, ahead=0
    ) -> list[Report]:
        """One round, local steps and the exchange: a report per worker that took part, in worker order.

        Args:
            step: a step that was prepared.
            handles: worker -> its iterators' handles.
            arguments: further tensors for the step.
            steps: local steps, at most.
            is_exchanging: whether the workers push and the servers merge.
            ahead: further steps that will be asked for; workers in step do not begin them.
        """
        known = self.ledger.count
        reports = self.recovery.watch(lambda: self._run(step, handles, arguments, steps, is_exchanging, ahead))
        self.go_back_if_refused()
        self.ledger.tell(known)
        return reports

    def _run(self, step: Step, handles, arguments: list, steps: int, is_exchanging: bool, ahead) -> list[Report]:
        started = time.perf_counter()
        self._refusals.begin(self.snapshots is not None)
        self._make_ready()
        is_whole = is_exchanging and self.method.pushes_whole(self.round)
        push = "whole" if is_whole else "chosen" if is_exchanging else None
        pulls = {worker: self._pull_of(worker) for worker in self.workers.live}
        make, trace = self.binding.functions.worker, self._traces[step]
        functions = {pull: make(step, trace, pull, push) for pull in set(pulls.values())}
        number, most = tf.constant(self.round, tf.int32), tf.constant(steps)

        def work(worker: int) -> Report | None:
            function = functions[pulls[worker]]
            try:
                outputs = function(handles(worker), arguments, most, number, constant_here(worker))
            except tf.errors.OutOfRangeError:  # its data has ended; it has pulled by then
                return None
            return self.binding.functions.parse(outputs)

        answers = self._ask(work)
        if not answers:  # every worker was lost: whoever is back does the round
            return self._run(step, handles, arguments, steps, is_exchanging, ahead)
        reports = {worker: report for worker, report in answers.items() if report is not None}
        self._needs_everything -= set(reports)
        self._has_answer, worked = False, time.perf_counter()
        self.steps += max((report.steps for report in reports.values()), default=0)
        done, started = self._unfinished.add(reports, started)
        if is_exchanging and any(report.steps for report in reports.values()):
            self._merge(done, is_whole, started, worked)
        self.cache.leave_behind()
        metrics = self.cache.of_role(Role.SUM)
        if metrics and reports:
            self.cache.absorb(metrics, np.sum([reports[w].sums for w in sorted(reports)], 0))
        return [reports[worker] for worker in sorted(reports)]

    def _merge(self, reports: dict[int, Report], is_whole: bool, started: float, worked: float) -> None:
        refresh = self.method.refreshes(self.round)
        fold = functools.partial(self.binding.functions.merge(is_whole, refresh), tf.constant(self.round, tf.int64))
        *verdicts, core = self.servers.call(lambda: fold().numpy(), f"while round {self.round} was merged")
        refused = [w for w in reports if verdicts[w] not in (ABSENT, MERGED)]
        self._needs_everything |= set(refused)
        if refresh:  # who has not pushed knows an older core than the answers were made for
            self._needs_everything |= {w for w in self.workers.live if verdicts[w] != MERGED}
        if self.method.pulls_whole(self.round):
            self._needs_everything |= self.workers.live
        self.not_finite = [w for w in refused if verdicts[w] == NOT_FINITE]
        if self.not_finite:
            self.cache.cleanse(self.not_finite)
            self._refusals.note(self.round, self.not_finite)
        for worker in set(refused) - set(self.not_finite):
            find = functools.partial(self.binding.functions.faults, int(verdicts[worker]), self.round, worker, is_whole)
            warn_of(self.workers.names[worker], self.round, self.servers.call(find, "to say what was refused"))
        self._stillness.note(reports)
        self._record(list(reports.values()), int(core), len(refused), started, worked)
        self._has_answer, self._unfinished = True, Unfinished()
        self.round += 1
        self.signal = self.signal.after(self.planned, self.steps, mean_loss(list(reports.values())))

    def raise_refusal(self) -> None:
        """Raises what the last round refused, if refusals are to be raised; callbacks have seen its logs by now."""
        self._refusals.raise_last()

    def _record(self, reports: list[Report], core: int, refused: int, started: float, worked: float, **more) -> None:
        known = {"round": self.round, "steps": self.steps, "core_entries": core, "refused": refused}
        self.ledger.add(reports, started, worked, **known, **more)
