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

from slimdp_tf.distribute.binding import Binding
from slimdp_tf.distribute.calls import GONE, constant_here
from slimdp_tf.distribute.ledger import Ledger
from slimdp_tf.distribute.local_variable import LocalVariable
from slimdp_tf.distribute.recovery import Recovery
from slimdp_tf.distribute.refusals import Refusals
from slimdp_tf.distribute.reports import Report, Stillness, Unfinished, mean_loss
from slimdp_tf.distribute.roles import Role
from slimdp_tf.distribute.round_functions import RoundFunctions
from slimdp_tf.distribute.servers import ServerLost, Servers
from slimdp_tf.distribute.shared import Shared
from slimdp_tf.distribute.slots import ABSENT, MERGED, NOT_FINITE
from slimdp_tf.distribute.step import Step
from slimdp_tf.distribute.sync import ChiefCache
from slimdp_tf.distribute.workers import Workers
from slimdp_tf.method import Method
from slimdp_tf.types import Signal


class Rounds:
    """Runs the rounds of whatever is trained under one strategy.

    Args:
        workers: the workers.
        servers: the servers.
        method: the recipe.
        seed: the run's seed.
        on_nonfinite: "raise", "skip" or "rollback" when a server refuses an update.
    """

    make_shared, make_functions = Shared, RoundFunctions
    can_rest = True  # whether nothing is under way between two rounds, so that a snapshot may be taken

    def __init__(self, workers: Workers, servers: Servers, method: Method, seed: int, on_nonfinite: str):
        self.workers, self.servers, self.method, self.seed = workers, servers, method, seed
        self.cache = ChiefCache(workers, servers)
        self.ledger = Ledger(self.cache)
        self.records, self.listeners = self.ledger.records, self.ledger.listeners
        self.round = self.steps = 0
        self.signal, self._unfinished, self._stillness = Signal(), Unfinished(), Stillness(workers.names)
        self._refusals = Refusals(on_nonfinite, workers.names, self.can_rest)
        self.snapshots, self.recovery = None, Recovery(self)  # the `Keeper` to go back to, if there is one
        self._traces: dict[Step, object] = {}
        self.binding = Binding(self.cache, method, seed, self.settle, self.make_shared, self.make_functions)
        self._needs_everything: set[int] = set()
        self.not_finite: list[int] = []  # whose update the last merge refused for that
        self._has_answer = False

    def graph_of(self, step: Step):
        """The graph of `step`, which is traced when it is first asked for."""
        if step not in self._traces:
            self._traces[step] = step.trace()
        return self._traces[step].graph

    def prepare(
        self, step: Step, variables: list[LocalVariable], weights: list[LocalVariable], private: list[LocalVariable]
    ) -> None:
        """Sees to it that the variables of `step` are on the workers and the servers.

        Args:
            step: the local step.
            variables: every variable it may read or write.
            weights: the trainable ones among them, in the order in which they are flattened.
            private: those that belong to a worker alone.
        """
        if not weights:
            raise ValueError("There is nothing to train: the model has no trainable weights.")
        if self.binding.prepare(self.graph_of(step), variables, weights, private):
            self._begin_anew()

    def _begin_anew(self) -> None:
        """The servers' blocks are new: there is nothing to pull but everything."""
        self._has_answer, self._unfinished = False, Unfinished()  # what they moved cannot be told of other blocks
        self.ledger.uncounted.clear()

    def bring_home(self) -> None:
        """Fetches everything to the chief before the cluster ends; after it nothing can be trained."""
        self.binding.bring_home()
        self.workers.is_closed = True

    @property
    def planned(self) -> int:
        """Local steps of the round that is about to begin."""
        return self.method.trigger.plan(self.signal)

    def run(
        self, step: Step, handles: Callable[[int], list], arguments: list, steps: int, is_exchanging: bool, ahead=0
    ) -> list[Report]:
        """One round: local steps on every live worker, and the exchange if `is_exchanging`.

        Args:
            step: a step that was prepared.
            handles: worker -> its iterators' handles.
            arguments: further tensors for the step.
            steps: local steps, at most.
            is_exchanging: whether the workers push and the servers merge.
            ahead: further steps that will be asked for; workers in step do not begin them.

        Returns:
            A report per worker that took part, in worker order.
        """
        known = len(self.records)
        while True:
            try:
                reports = self._run(step, handles, arguments, steps, is_exchanging, ahead)
            except ServerLost as error:
                self.recovery.after_loss(error)
            else:
                break
        if self._refusals.wants_rollback:
            self.recovery.after_refusal()
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

    def rest(self) -> None:
        """Every live worker takes over what waits for it, as it would when the next round begins.

        After it nothing is under way between workers and servers: what they hold is all there is.
        """
        self.settle()
        self._make_ready()
        pulls = {worker: self._pull_of(worker) for worker in self.workers.live}
        functions = {pull: self.binding.functions.rest(pull) for pull in set(pulls.values()) - {None}}
        number, none = tf.constant(self.round, tf.int32), tf.constant(0)

        def adopt(worker: int) -> Report:
            outputs = functions[pulls[worker]]([], [], none, number, constant_here(worker))
            return self.binding.functions.parse(outputs)

        waiting = [worker for worker, pull in pulls.items() if pull]
        reports = self._ask(adopt, waiting) if waiting else {}
        self._unfinished.hold(reports)
        self._needs_everything -= set(reports)
        self._has_answer = False

    def rewind(self, round_number: int, steps: int, signal: Signal, needs_everything: set[int]) -> None:
        """Goes on as after `round_number` rounds; nothing waits for the workers, but for those that need everything."""
        self.round, self.steps, self.signal = round_number, steps, signal
        self._needs_everything, self._has_answer, self._unfinished = needs_everything, False, Unfinished()

    def _make_ready(self) -> None:
        """Takes workers that came back, and sends what was assigned on the chief."""
        if self.workers.has_returned():
            self._take_returned()
        if self.cache.send():
            self._needs_everything |= self.workers.live

    def _ask(self, work: Callable[[int], Report | None], workers: list[int] | None = None) -> dict[int, Report | None]:
        """Runs `work` on live workers; those that wait for a server which hangs are lost as it is."""
        purpose = f"in round {self.round}"
        self.servers.begin_wait()
        try:
            answers = self.workers.call(work, workers, watch=lambda: self.servers.watch(purpose))
        except GONE as error:  # the worker that says so is there: it is a server that it lost
            raise self.servers.explain(error, purpose) from error
        if not answers:
            self.servers.check(purpose)
        return answers

    def _take_returned(self) -> None:
        """Gives workers that came back, and hold nothing, what the others hold; they pull the rest in this round."""
        self.cache.catch_up()
        stayed = set(self.workers.live)
        returned = self.workers.take_returned()
        self.cache.furnish(returned, min(stayed or returned, default=None))
        self._needs_everything.update(returned)

    def _pull_of(self, worker: int) -> str | None:
        return "everything" if worker in self._needs_everything else "answer" if self._has_answer else None

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
        self._stillness.note(reports)
        self._record(list(reports.values()), int(core), len(refused), started, worked)
        self._has_answer, self._unfinished = True, Unfinished()
        self.round += 1
        self.signal = self.signal.after(self.planned, self.steps, mean_loss(list(reports.values())))

    def settle(self) -> None:
        """Waits for what workers do beside `run`: in step, nothing."""

    def raise_refusal(self) -> None:
        """Raises what the last round refused, if refusals are to be raised; callbacks have seen its logs by now."""
        self._refusals.raise_last()

    def _record(self, reports: list[Report], core: int, refused: int, started: float, worked: float, **more) -> None:
        known = {"round": self.round, "steps": self.steps, "core_entries": core, "refused": refused}
        self.ledger.add(reports, started, worked, **known, **more)
