"""What rounds are made of, whatever their pacing, and how they come to rest and go on from there."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from slimdp_tf.distribute import _tf
from slimdp_tf.distribute.binding import Binding
from slimdp_tf.distribute.calls import GONE, constant_here
from slimdp_tf.distribute.held import Held
from slimdp_tf.distribute.ledger import Ledger
from slimdp_tf.distribute.local_variable import LocalVariable
from slimdp_tf.distribute.probes import BUSY_S, are_there
from slimdp_tf.distribute.recovery import Recovery
from slimdp_tf.distribute.refusals import Refusals
from slimdp_tf.distribute.reports import Report, Stillness, Unfinished
from slimdp_tf.distribute.round_functions import RoundFunctions
from slimdp_tf.distribute.servers import Servers
from slimdp_tf.distribute.shared import Shared
from slimdp_tf.distribute.step import Step
from slimdp_tf.distribute.sync import ChiefCache
from slimdp_tf.distribute.workers import Workers
from slimdp_tf.method import Method
from slimdp_tf.types import Signal


class Resting:
    """Workers, servers and the variables that they hold, between two rounds.

    Args:
        workers: the workers.
        servers: the servers.
        method: the recipe.
        seed: the run's seed.
        on_nonfinite: "raise", "skip" or "rollback" when a server refuses an update.
    """

    make_shared, make_functions, make_held = Shared, RoundFunctions, Held

    def __init__(self, workers: Workers, servers: Servers, method: Method, seed: int, on_nonfinite: str):
        self.workers, self.servers, self.method, self.seed = workers, servers, method, seed
        workers.are_servers_there = lambda: not servers.find_silent(BUSY_S)
        self.cache = ChiefCache(workers, servers)
        self.ledger = Ledger(self.cache)
        self.records, self.listeners = self.ledger.records, self.ledger.listeners
        self.round = self.steps = 0
        self.signal, self._unfinished, self._stillness = Signal(), Unfinished(), Stillness(workers.names)
        self._refusals = Refusals(on_nonfinite, workers.names)
        self.snapshots, self.recovery = None, Recovery(self)  # the `Keeper` to go back to, if there is one
        self.cache.watch = self.recovery.watch
        self._traces: dict[Step, object] = {}
        self.binding = Binding(self.cache, method, seed, self._settle, self.make_shared, self.make_functions)
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
        if _tf.has_unused() and all(are_there(self.workers.devices + self.servers.devices)):
            _tf.let_go()
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

    @property
    def begun(self) -> int:
        """Rounds that workers have begun, as far as `run` was asked for them."""
        return self.round

    def settle(self) -> None:
        """Waits for what workers do beside `run`; a server that is lost meanwhile is restored instead."""
        self.recovery.watch(self._settle, is_repeated=False)

    def _settle(self) -> None:
        """Does so: in step there is nothing."""

    def rest(self) -> None:
        """Every live worker takes over what waits for it, as it would when the next round begins.

        After it nothing is under way between workers and servers: what they hold is all there is.
        """
        self._settle()
        self._make_ready()
        self._take_over()

    def _take_over(self) -> None:
        pulls = {worker: self._pull_of(worker) for worker in self.workers.live}
        functions = {pull: self.binding.functions.rest(pull) for pull in set(pulls.values()) - {None}}

        def adopt(worker: int) -> Report:
            numbers = [constant_here(n) for n in (0, self._number_of(worker), worker)]
            return self.binding.functions.parse(functions[pulls[worker]]([], [], *numbers))

        waiting = [worker for worker, pull in pulls.items() if pull]
        reports = self._ask(adopt, waiting) if waiting else {}
        self._needs_everything -= set(reports)
        self._note_taken(reports)

    def _note_taken(self, reports: dict[int, Report]) -> None:
        self._unfinished.hold(reports)
        self._has_answer = False

    def tell_place(self) -> dict:
        """How far rounds are, at rest: "round", "steps", "signal"; "lead" is steps beyond what `run` was asked for."""
        return {"round": self.round, "steps": self.steps, "signal": dataclasses.asdict(self.signal), "lead": 0}

    def rewind(self, place: dict, strangers: set[int], sums: dict[int, np.ndarray] | None) -> None:
        """Goes on from a place; nothing waits for the workers.

        Args:
            place: what `tell_place` gave.
            strangers: workers that have no state of then, and pull everything.
            sums: f64[entries of all metrics] of each worker; None if they are what they were.
        """
        self.round, self.steps, self.signal = place["round"], place["steps"], Signal(**place["signal"])
        self._needs_everything.clear()
        self._needs_everything |= strangers
        self._has_answer, self._unfinished = False, Unfinished()

    def abandon(self) -> None:
        """What workers do beside `run` counts no more: the state that it belongs to is about to be replaced."""

    def go_back_if_refused(self) -> bool:
        """Goes back to the last snapshot if an update was refused for which that is to be done; returns whether so."""
        wanted = self._refusals.take_rollback()
        if wanted:
            self.recovery.after_refusal()
        return wanted

    def _number_of(self, worker: int) -> int:
        """The number of a worker's next round."""
        return self.round

    def _pull_of(self, worker: int) -> str | None:
        return "everything" if worker in self._needs_everything else "answer" if self._has_answer else None

    def _make_ready(self) -> None:
        """Takes workers that came back, and sends what was assigned on the chief."""
        if self.workers.has_returned():
            self._take_returned()
        if self.cache.send():
            self._needs_everything |= self.workers.live

    def _take_returned(self) -> None:
        """Gives workers that came back, and hold nothing, what the others hold; they pull the rest in this round."""
        self.cache.catch_up()
        stayed = set(self.workers.live)
        returned = self.workers.take_returned()
        self.cache.furnish(returned, min(stayed or returned, default=None))
        self._needs_everything.update(returned)

    def _ask(self, work: Callable[[int], Report | None], workers: list[int] | None = None) -> dict[int, Report | None]:
        """Runs `work` on live workers; those that wait for a server which hangs are lost as it is."""
        purpose, late = f"in round {self.round}", self.ledger.note_late
        self.servers.begin_wait()
        try:
            answers = self.workers.call(work, workers, lambda: self.servers.watch(purpose), late)
        except GONE as error:  # of a server that is not there
            raise self.servers.explain(error, purpose) from error
        if not answers:
            self.servers.check(purpose)
        return answers
