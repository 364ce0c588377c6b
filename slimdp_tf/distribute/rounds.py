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

from slimdp_tf.distribute import _tf
from slimdp_tf.distribute.calls import GONE, ClusterError, NonFiniteUpdateError, Servers, constant_here
from slimdp_tf.distribute.local_variable import LocalVariable
from slimdp_tf.distribute.reports import Report, Unfinished, make_record, mean_loss, sum_traffic
from slimdp_tf.distribute.roles import Role, role_of
from slimdp_tf.distribute.round_functions import RoundFunctions
from slimdp_tf.distribute.shared import Shared
from slimdp_tf.distribute.slots import ABSENT, MERGED, NOT_FINITE
from slimdp_tf.distribute.step import Step
from slimdp_tf.distribute.sync import ChiefCache
from slimdp_tf.distribute.workers import Workers
from slimdp_tf.measure.record import RoundRecord
from slimdp_tf.method import Method
from slimdp_tf.methods import plump
from slimdp_tf.types import Signal


class Rounds:
    """Runs the rounds of whatever is trained under one strategy.

    Args:
        workers: the workers.
        servers: the servers.
        method: the recipe.
        seed: the run's seed.
        on_nonfinite: "raise" or "skip" when a server refuses an update.
    """

    make_shared, make_functions = Shared, RoundFunctions

    def __init__(self, workers: Workers, servers: Servers, method: Method, seed: int, on_nonfinite: str):
        self.workers, self.servers, self.method, self.seed = workers, servers, method, seed
        self.on_nonfinite = on_nonfinite
        self.cache = ChiefCache(workers, servers)
        self.records: list[RoundRecord] = []
        self.listeners: list[Callable[[RoundRecord], None]] = []
        self.round = self.steps = 0
        self._signal, self._unfinished, self._uncounted = Signal(), Unfinished(), []
        self._refusal: NonFiniteUpdateError | None = None
        self._weights: list[LocalVariable] = []
        self._traces: dict[Step, object] = {}
        self._functions = self.make_functions(self.cache, servers.devices)
        self._needs_everything: set[int] = set()
        self._has_answer = False
        self._make_copies: Callable[[int], None] | None = None

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
        graph, known = self.graph_of(step), self.cache.roles
        is_weight, is_private = {id(v) for v in weights}, {id(v) for v in private}
        roles = []
        for v in variables:
            role = role_of(v, graph, id(v) in is_weight, id(v) in is_private)
            roles.append((v, known.get(id(v), role) if role is Role.FIXED else role))
        is_bound = all(known.get(id(v)) is role for v, role in roles)
        if not is_bound or [id(v) for v in weights] != [id(v) for v in self._weights]:
            self._let_go()
            bind, seconds = functools.partial(self._bind, roles, weights), self.workers.deadline_s
            self.servers.call(bind, "while the model was put on them", seconds)

    def _bind(self, roles: list[tuple[LocalVariable, Role]], weights: list[LocalVariable]) -> None:
        """Puts variables on workers and servers; what was bound before is already at home."""
        variables = [v for v, _ in roles]

        def make_copies(worker: int) -> None:
            for v in variables:
                v.copies += [None] * (len(self.workers) - len(v.copies))
                v.copies[worker] = _tf.new_copy(v, self.workers.devices[worker])

        self._make_copies = make_copies
        self.workers.furnish(make_copies)
        averages = [v for v, role in roles if role is Role.AVERAGE]
        recipes = {Role.WEIGHT: (self.method, weights)}
        if averages:
            recipes[Role.AVERAGE] = plump(self.method.p, pacing=self.method.pacing), averages
        known = self.servers.devices, self.workers, self.seed
        shared = {role: self.make_shared(*recipe, *known) for role, recipe in recipes.items()}
        self._weights, self._has_answer = weights, False
        self.cache.bind(roles, shared)
        self._functions = self.make_functions(self.cache, self.servers.devices)

    def _let_go(self) -> None:
        for variable in self.cache.variables:
            variable.value()  # fetches what the owners hold
            variable.copies = []
        if self._make_copies is not None:
            self.workers.forget(self._make_copies)
        for shared in self.cache.shared.values():
            shared.release()

    def bring_home(self) -> None:
        """Fetches everything to the chief before the cluster ends; after it nothing can be trained."""
        try:
            self._let_go()
        except (tf.errors.OpError, ClusterError) as error:
            tf.get_logger().warning("The chief keeps the values it had last: the cluster did not answer (%s).", error)
            for variable in self.cache.variables:
                variable.is_stale = False
        self.workers.is_closed = True

    @property
    def planned(self) -> int:
        """Local steps of the round that is about to begin."""
        return self.method.trigger.plan(self._signal)

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
        started, self._refusal = time.perf_counter(), None
        if self.workers.has_returned():
            self._take_returned()
        if self.cache.send():
            self._needs_everything |= self.workers.live
        is_whole = is_exchanging and self.method.pushes_whole(self.round)
        push = "whole" if is_whole else "chosen" if is_exchanging else None
        pulls = {worker: self._pull_of(worker) for worker in self.workers.live}
        functions = {pull: self._functions.worker(step, self._traces[step], pull, push) for pull in set(pulls.values())}
        number, most = tf.constant(self.round, tf.int32), tf.constant(steps)

        def work(worker: int) -> Report | None:
            function = functions[pulls[worker]]
            try:
                outputs = function(handles(worker), arguments, most, number, constant_here(worker))
            except tf.errors.OutOfRangeError:  # its data has ended; it has pulled by then
                return None
            return self._functions.parse(outputs)

        answers = self._ask(work)
        if not answers:  # every worker was lost: whoever is back does the round
            return self.run(step, handles, arguments, steps, is_exchanging)
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

    def _ask(self, work: Callable[[int], Report | None]) -> dict[int, Report | None]:
        """Runs `work` on every live worker; workers that wait for a server which hangs are lost as it is."""
        purpose = f"in round {self.round}"
        try:
            answers = self.workers.call(work)
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
        fold = functools.partial(self._functions.merge(is_whole, refresh), tf.constant(self.round, tf.int64))
        *verdicts, core = self.servers.call(lambda: fold().numpy(), f"while round {self.round} was merged")
        refused = [w for w in reports if verdicts[w] not in (ABSENT, MERGED)]
        self._needs_everything |= set(refused)
        if refresh:  # who has not pushed knows an older core than the answers were made for
            self._needs_everything |= {w for w in self.workers.live if verdicts[w] != MERGED}
        if self.method.pulls_whole(self.round):
            self._needs_everything |= self.workers.live
        not_finite = [w for w in refused if verdicts[w] == NOT_FINITE]
        if not_finite:
            self.cache.cleanse(not_finite)
            self._note_refusal(not_finite)
        self._record(list(reports.values()), int(core), len(refused), started, worked)
        self._has_answer, self._unfinished = True, Unfinished()
        self.round += 1
        self._signal = self._signal.after(self.planned, self.steps, mean_loss(list(reports.values())))

    def _note_refusal(self, not_finite: list[int]) -> None:
        if self.on_nonfinite == "raise":
            self._refusal = NonFiniteUpdateError.of(self.round, [self.workers.names[w] for w in not_finite])

    def settle(self) -> None:
        """Waits for what workers do beside `run`: in step, nothing."""

    def raise_refusal(self) -> None:
        """Raises what the last round refused, if refusals are to be raised; callbacks have seen its logs by now."""
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal

    def _record(self, reports: list[Report], core: int, refused: int, started: float, worked: float, **more) -> None:
        widths = [len(shared.blocks) for shared in self.cache.shared.values()]
        moved, self._uncounted = [*reports, *self._uncounted], []
        traffic = sum_traffic(moved, widths, len(self.servers.devices), self.cache.take_chief_bytes())
        known = {"round": self.round, "steps": self.steps, "core_entries": core, "refused": refused}
        self.records.append(make_record(reports, started, worked, traffic=traffic, **known, **more))
        for listener in self.listeners:
            listener(self.records[-1])
