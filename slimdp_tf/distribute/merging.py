"""How pushes are merged one by one, in the servers' thread, and what is counted of it."""

from __future__ import annotations

import threading

import numpy as np
import tensorflow as tf

from slimdp_tf.distribute.arrival_functions import ArrivalFunctions
from slimdp_tf.distribute.lanes import Lane, Turn
from slimdp_tf.distribute.local_variable import standing_on
from slimdp_tf.distribute.refusals import warn_of
from slimdp_tf.distribute.workers import Workers
from slimdp_tf.inspection import MERGED, NOT_FINITE
from slimdp_tf.method import Method

_KEPT = 10_000  # of the order of merges


class Merging:
    """Merges pushes as they arrive, and chooses the core when every live worker has delivered a whole update.

    Args:
        method: the recipe.
        workers: the workers.
        lanes: what each of them is at.
        needs_everything: workers that must pull everything; a refusal adds one.

    Attributes:
        state: held by whoever reads or changes lanes; it tells when they change.
        functions: traced merges (`ArrivalFunctions`).
        merges: how many pushes were merged.
        order: the workers whose pushes were merged last, in order.
        not_finite: workers whose last push was not finite; they are held until the chief has cleansed them.
    """

    def __init__(self, method: Method, workers: Workers, lanes: list[Lane], needs_everything: set[int]):
        self.method, self.workers, self.needs_everything = method, workers, needs_everything
        self.state = threading.Condition(threading.RLock())
        self.functions: ArrivalFunctions | None = None
        self.merges, self.order = 0, []
        self.not_finite: set[int] = set()
        self._lanes, self._delivered, self._version = lanes, set(), 0
        self._staleness: list[int] = []
        self._core = self._refused = self._late = 0

    def begin_anew(self, functions: ArrivalFunctions) -> None:
        """The servers' blocks are new: there is no core, and nothing to pull but everything."""
        self.functions, self._delivered, self._version = functions, set(), 0
        for lane in self._lanes:
            lane.has_answer, lane.pulled_at = False, self.merges

    def tell_place(self) -> dict:
        """What is counted, at rest; see `go_on_from`."""
        return {"merges": self.merges, "version": self._version, "delivered": sorted(self._delivered)}

    def go_on_from(self, place: dict, functions: ArrivalFunctions) -> None:
        """Goes on from what `tell_place` gave, of the blocks that `functions` merge into."""
        self.functions, self.merges, self._version = functions, place["merges"], place["version"]
        self._delivered = set(place["delivered"]) & self.workers.live
        self.not_finite.clear()

    def merge(self, turn: Turn, worker: int) -> None:
        """Merges the push of one round, in the servers' thread.

        The push of a worker that is lost is merged all the same, and counted as late, unless it has come back by now.
        """
        lane, whole = self._lanes[worker], turn.push == "whole"
        with self.state:
            if lane.is_void(turn.ticket):
                return
            others = [w in self.workers.live and w != worker for w in range(len(self._lanes))]
        with standing_on(worker):
            number = tf.constant(turn.number, tf.int64)
            merged = self.functions.merge_one(whole)(number, tf.constant(worker), tf.constant(others))
            verdict, core = (int(count) for count in merged.numpy())
        if verdict > NOT_FINITE:
            faults = self.functions.faults(verdict, turn.number, worker, whole)
            warn_of(self.workers.names[worker], turn.number, faults)
        with self.state:
            if lane.is_void(turn.ticket):
                return
            self._core, is_late = core, turn.ticket != lane.ticket
            if verdict == MERGED:
                self._staleness.append(self.merges - lane.pulled_at)
                self._note(worker)
                lane.pulled_at, lane.has_answer = self.merges, not is_late
                self._late += is_late
                if whole:
                    self._delivered.add(worker)
            else:
                self._refuse(worker, lane, verdict)
        if self._delivered and self._delivered >= self.workers.live:
            self._version, self._delivered = self._version + 1, set()
            with standing_on(worker):  # who is told at once
                self.functions.refresh()(tf.constant(self._version, tf.int64))

    def _note(self, worker: int) -> None:
        self.merges += 1
        self.order.append(worker)
        del self.order[:-_KEPT]

    def renew(self, worker: int) -> None:
        """What the servers think a worker holds, which is back, becomes what it will pull."""
        with standing_on(worker):
            self.functions.renew()()

    def _refuse(self, worker: int, lane: Lane, verdict: int) -> None:
        self._refused += 1
        self.needs_everything.add(worker)
        if verdict == NOT_FINITE:
            self.not_finite.add(worker)
            lane.is_held = True

    def take_figures(self) -> tuple[int, int, dict[str, float]]:
        """The core's entries, refusals, and further fields of a record, since this was last asked."""
        with self.state:
            staleness, refused, late = self._staleness, self._refused, self._late
            self._staleness, self._refused, self._late = [], 0, 0
            mean, most = (float(np.mean(staleness)), max(staleness)) if staleness else (0.0, 0)
            return self._core, refused, {"staleness_mean": mean, "staleness_max": most, "late": late}
