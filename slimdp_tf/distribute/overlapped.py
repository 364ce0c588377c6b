"""Rounds whose exchange runs while the workers train on: `SlimDPStrategy(..., overlap=True)`.

    first half of the steps   beside: push what the round before trained
    servers:                  merge it
    second half of the steps  beside: pull and adopt the answer; then take it over, beside what was trained meanwhile

So what a round trained reaches the other workers one round later than without overlap (`delayed.py`).
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from slimdp_tf.distribute.calls import constant_here
from slimdp_tf.distribute.delayed import DelayedShared
from slimdp_tf.distribute.overlap_functions import OverlapFunctions
from slimdp_tf.distribute.reports import Report
from slimdp_tf.distribute.roles import Role
from slimdp_tf.distribute.rounds import Rounds


class Overlapped(Rounds):
    """Runs rounds whose exchange is that of the round before; see `Rounds`.

    A record is from merge to merge: the second half of a round and the first of the next.
    """

    make_shared, make_functions = DelayedShared, OverlapFunctions

    def __init__(self, workers, servers, method, seed, on_nonfinite):
        super().__init__(workers, servers, method, seed, on_nonfinite)
        self._owing: set[int] = set()  # workers whose last round is not pushed yet

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self._owing.clear()

    def _run(self, step, handles, arguments, steps, is_exchanging, ahead) -> list[Report]:
        if not is_exchanging:
            raise RuntimeError("overlap=True is for model.fit: custom loops exchange between calls of strategy.run.")
        self._refusals.begin(self.snapshots is not None)
        self._make_ready()
        self._welcome()
        trace = self._traces[step]

        def begin(pull, push, end):
            return self.binding.functions.half(step, trace, pull, push, end)

        first = (steps + 1) // 2
        one = self._exchange(begin, lambda w, most: (handles(w), arguments, tf.constant(most)), first, steps - first)
        if not one:  # every worker was lost: whoever is back does the round
            return self._run(step, handles, arguments, steps, is_exchanging, ahead)
        self.cache.leave_behind()
        metrics = self.cache.of_role(Role.SUM)
        if metrics:
            self.cache.absorb(metrics, np.sum([one[w].sums for w in sorted(one)], 0))
        self.steps += max((report.steps for report in one.values()), default=0)
        self._owing = {worker for worker, report in one.items() if report.steps}
        return [one[worker] for worker in sorted(one)]

    def abandon(self) -> None:
        """See `Rounds.abandon`."""
        self._owing.clear()

    @property
    def begun(self) -> int:
        """See `Rounds.begun`; the last of them is not merged yet."""
        return self.round + bool(self._owing)

    def _settle(self) -> None:
        """Exchanges what the last round trained."""
        self._owing &= self.workers.live - self._needs_everything
        if self._owing:
            known = self.ledger.count
            self._exchange(self.binding.functions.still, lambda w, most: ([], [], tf.constant(0)), 0, 0)
            self._owing.clear()
            self.cache.leave_behind()
            self.ledger.tell(known)

    def _welcome(self) -> None:
        """Workers that hold nothing of worth take over everything before they begin."""
        self._owing -= self._needs_everything
        self._take_over()

    def _exchange(self, begin: Callable, inputs: Callable, first: int, second: int) -> dict[int, Report]:
        """Both halves of a round.

        Args:
            begin: (pull, push, end) -> the function of a half.
            inputs: (worker, steps) -> the function's iterators, tensors and steps.
            first, second: steps of either half.

        Returns:
            A report of the whole round for each worker that did both.
        """
        started, is_whole = time.perf_counter(), self.method.pushes_whole(self.round)
        push = "whole" if is_whole else "chosen"
        does = {w: push if w in self._owing else None for w in self.workers.live}
        early = self._do({w: begin(None, how, None) for w, how in does.items()}, inputs, first)
        worked = time.perf_counter()
        done, started = self._unfinished.add(early, started)
        pushed = {w: done[w] for w in early if w in self._owing}
        if pushed:
            self._merge(done, is_whole, started, worked)
        pulls = {w: self._pull_of(w) for w in early}
        ends = {w: "healed" if pushed and w in self.not_finite else "over" for w in early}
        self._has_answer = False
        late = self._do({w: begin(pull, None, ends[w]) for w, pull in pulls.items()}, inputs, second)
        self._needs_everything -= set(late)
        self._unfinished.add(late, time.perf_counter())
        return {w: _joined(early[w], report, second) for w, report in late.items()}

    def _do(self, functions: dict[int, object], inputs: Callable, most: int) -> dict[int, Report]:
        number = tf.constant(self.round)

        def work(worker: int) -> Report:
            return self._call(functions[worker], *inputs(worker, most), number, worker)

        return self._ask(work, sorted(functions))

    def _call(self, function, handles, arguments, steps, number, worker: int) -> Report:
        return self.binding.functions.parse(function(handles, arguments, steps, number, constant_here(worker)))


def _joined(early: Report, late: Report, second: int) -> Report:
    """Both halves as one; without steps in the second its outputs are empty."""
    joined = early.plus(late)
    return joined if second and late.steps else dataclasses.replace(joined, outputs=early.outputs)
