"""Rounds that do not wait for the last workers (`Method.spare`): backup workers.

A round is merged when all but `spare` of the live workers have pushed. Who is late is not asked again before it has
ended; what it pushes bears the number of a round that is past, so it is never folded, and it pulls everything next.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from slimdp_tf.distribute.calls import GONE, WATCH_S, Call
from slimdp_tf.distribute.reports import Report
from slimdp_tf.distribute.roles import Role
from slimdp_tf.distribute.round_functions import RoundFunctions
from slimdp_tf.distribute.rounds import Rounds
from slimdp_tf.inspection import ABSENT


class QuorumFunctions(RoundFunctions):
    """The functions of rounds in step, of which a merge folds those alone who are `among` the first."""

    def __init__(self, cache, devices: list[str]):
        super().__init__(cache, devices)
        self.among = tf.Variable([True] * len(cache.workers), trainable=False)

    def verdicts(self, number: tf.Tensor, whole: bool, choices) -> tf.Tensor:
        return tf.where(self.among.read_value(), super().verdicts(number, whole, choices), ABSENT)


class Quorum(Rounds):
    """Runs rounds that are merged without the last workers; see `Rounds`."""

    make_functions = QuorumFunctions

    def __init__(self, workers, servers, method, seed, on_nonfinite):
        super().__init__(workers, servers, method, seed, on_nonfinite)
        self._late: dict[int, Call] = {}
        self._sums: dict[int, np.ndarray] = {}  # what metrics hold on each worker
        self._missed, self._is_exchanging = 0, False

    def _run(self, step, handles, arguments, steps, is_exchanging, ahead) -> list[Report]:
        """One round, which ends when enough workers have pushed; see `Rounds.run`."""
        self._is_exchanging, metrics = is_exchanging, self.cache.of_role(Role.SUM)
        if any(v.is_dirty for v in metrics):
            self._sums.clear()
        reports = super()._run(step, handles, arguments, steps, is_exchanging, ahead)
        if metrics and self._sums:  # those of the late count, too
            self.cache.absorb(metrics, np.sum([self._sums[w] for w in sorted(self._sums)], 0))
        return reports

    def rewind(self, place: dict, strangers: set[int], sums: dict[int, np.ndarray] | None) -> None:
        """See `Rounds.rewind`."""
        super().rewind(place, strangers, sums)
        self._sums = self._sums if sums is None else sums

    def abandon(self) -> None:
        """See `Rounds.abandon`."""
        self._late.clear()

    def _settle(self) -> None:
        """Waits for those who are late, so that nobody does anything beside `run`."""
        give_up = time.monotonic() + self.workers.deadline_s
        for worker, call in self._late.items():
            if not call.ends_within(give_up - time.monotonic()):
                self.workers.lose(worker)
        self._welcome_late()
        self._late.clear()

    def _ask(self, work: Callable[[int], Report | None], workers: list[int] | None = None) -> dict[int, Report | None]:
        if workers is not None:
            return super()._ask(work, workers)
        self._welcome_late()
        arrived: queue.SimpleQueue[int] = queue.SimpleQueue()

        def serve(worker: int) -> Report | None:
            try:
                return work(worker)
            finally:
                arrived.put(worker)

        calls = {w: self.workers.submit(serve, w) for w in sorted(self.workers.live - set(self._late))}
        wanted = max(1, len(self.workers.live) - self.method.spare if self._is_exchanging else len(calls))
        answers, give_up = {}, time.monotonic() + self.workers.deadline_s
        while calls and sum(report is not None and report.steps > 0 for report in answers.values()) < wanted:
            try:
                worker = arrived.get(timeout=min(WATCH_S, max(0.0, give_up - time.monotonic())))
            except queue.Empty:
                if silence := self.servers.watch(f"in round {self.round}"):  # whoever waits for a server is not late
                    give_up = time.monotonic() + self.workers.deadline_s + silence
                if time.monotonic() < give_up:
                    continue
                for worker in calls:
                    self.workers.lose(worker)
                break
            self._take(worker, calls.pop(worker), answers)
        behind = {w: call for w, call in calls.items() if w in self.workers.live}
        self._late.update(behind)
        self._needs_everything |= set(behind)
        self._missed += len(behind)
        if not answers:
            self.servers.check(f"in round {self.round}")
            self._settle()  # who is late may be all that is left
            if not self.workers.live:
                self.workers.wait_for_any()
        return answers

    def _take(self, worker: int, call: Call, answers: dict[int, Report | None]) -> None:
        call.ends_within(self.workers.deadline_s)  # it has said that it is about to
        if call.error is None:
            answers[worker] = call.result
            self._sums.update({} if call.result is None else {worker: call.result.sums})
            return
        try:
            self.workers.judge(worker, call.error)
        except GONE as error:  # of a server that is not there
            raise self.servers.explain(error, f"in round {self.round}") from error

    def _welcome_late(self) -> None:
        """Those who have ended a round that was merged without them take part again."""
        for worker, call in list(self._late.items()):
            if worker not in self.workers.live:
                del self._late[worker]
            elif call.ends_within(0.0):
                del self._late[worker]
                if isinstance(call.error, GONE) and not self.workers.is_gone(worker, call.error):
                    continue  # it was a server that it lost: the next round finds out
                if call.error is not None:
                    self._take(worker, call, {})
                elif call.result is not None:
                    self._sums[worker] = call.result.sums
                    self.ledger.uncounted.append(call.result)

    def _merge(self, reports: dict[int, Report], is_whole: bool, started: float, worked: float) -> None:
        self.binding.functions.among.assign([worker in reports for worker in range(len(self.workers))])
        super()._merge(reports, is_whole, started, worked)

    def _record(self, reports, core, refused, started, worked, **more) -> None:
        super()._record(reports, core, refused, started, worked, missed=self._missed, **more)
        self._missed = 0
