"""The round: every live worker runs one function, then one merge folds what they stored.

    worker: adopt what was merged last -> p local steps -> push into its slots       (one function, `_worker_round`)
    servers: inspect, fold, make the answers ready, choose a new core when it is due  (one function, `_merge`)
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from slimdp_tf.distribute import _tf
from slimdp_tf.distribute.local_variable import LocalVariable
from slimdp_tf.distribute.shared import Shared
from slimdp_tf.distribute.slots import ABSENT, MERGED, NOT_FINITE
from slimdp_tf.distribute.sync import ChiefCache, Role, role_of
from slimdp_tf.distribute.workers import ClusterError, Workers
from slimdp_tf.measure.record import RoundRecord, Traffic
from slimdp_tf.method import Method
from slimdp_tf.methods import plump

_PULLS = (None, "answer", "everything")
_PUSHES = (None, "chosen", "whole")


class NonFiniteUpdateError(ArithmeticError):
    """A worker's update held a nan or an infinity; the server refused it and its weights are untouched."""


@dataclasses.dataclass(eq=False)
class Step:
    """One local step, to be traced for all workers.

    Attributes:
        function: (elements, one per iterator; further tensors) -> list of tensors.
        element_specs: the element_spec of each iterator.
        argument_specs: specs of the further tensors.
        is_repeatable: whether `function` gives one f64[m] and may run p times in a loop.
    """

    function: Callable
    element_specs: list
    argument_specs: list[tf.TensorSpec]
    is_repeatable: bool

    def trace(self):
        """The concrete function (iterator handles, tensors, steps) -> (steps done, outputs)."""
        handles = [tf.TensorSpec([], tf.resource) for _ in self.element_specs]
        run = self._repeat if self.is_repeatable else self._once
        return tf.function(run, autograph=False).get_concrete_function(
            handles, self.argument_specs, tf.TensorSpec([], tf.int32)
        )

    def _once(self, handles, arguments, steps):
        elements = [_tf.iterator_behind(h, spec).get_next() for h, spec in zip(handles, self.element_specs)]
        outputs = self.function(elements, arguments)
        with tf.control_dependencies(outputs):
            return tf.ones([], tf.int32), [tf.identity(output) for output in outputs]

    def _repeat(self, handles, arguments, steps):
        """Up to `steps` steps; ends early where the data does. The outputs are those of the last step."""
        iterator = _tf.iterator_behind(handles[0], self.element_specs[0])

        def body(done, is_going, outputs):
            optional = iterator.get_next_as_optional()

            def step():
                return done + 1, tf.constant(True), self.function([optional.get_value()], arguments)[0]

            return tf.cond(optional.has_value(), step, lambda: (done, tf.constant(False), outputs))

        done, _, outputs = tf.while_loop(
            lambda done, is_going, outputs: is_going & (done < steps),
            body,
            [tf.zeros([], tf.int32), tf.constant(True), tf.zeros([0], tf.float64)],
            shape_invariants=[tf.TensorShape([]), tf.TensorShape([]), tf.TensorShape([None])],
        )
        return done, [outputs]


@dataclasses.dataclass
class Report:
    """What one worker reported of a round: seconds, counts, sums of metrics, and its outputs."""

    seconds: np.ndarray  # f64[3]: pull, compute, push
    steps: int
    bytes: np.ndarray  # f64[blocks of all shared, 4]: push values, push keys, pull values, pull keys
    matches: np.ndarray  # f64[2]: signatures that matched, that did not
    explored: float
    sums: np.ndarray
    outputs: list[np.ndarray]


class Rounds:
    """Runs the rounds of whatever is trained under one strategy.

    Args:
        workers: the workers. devices: a device per server.
        method: the recipe. seed: the run's seed.
        on_nonfinite: "raise" or "skip" when a server refuses an update.
    """

    def __init__(self, workers: Workers, devices: list[str], method: Method, seed: int, on_nonfinite: str):
        self.workers, self.devices, self.method, self.seed = workers, devices, method, seed
        self.on_nonfinite = on_nonfinite
        self.cache = ChiefCache(workers)
        self.records: list[RoundRecord] = []
        self.listeners: list[Callable[[RoundRecord], None]] = []
        self.round = self.steps = self.refused = 0
        self.refusal: NonFiniteUpdateError | None = None
        self._weights: list[LocalVariable] = []
        self._steps: dict[Step, object] = {}
        self._functions: dict[tuple, object] = {}
        self._needs_everything: set[int] = set()
        self._has_answer = False
        self._make_copies: Callable[[int], None] | None = None

    # -- binding --------------------------------------------------------------------------------------------------

    def prepare(
        self, step: Step, variables: list[LocalVariable], weights: list[LocalVariable], private: list[LocalVariable]
    ) -> None:
        """Traces `step` and sees to it that its variables are on the workers and the servers.

        Args:
            step: the local step.
            variables: every variable it may read or write.
            weights: the trainable ones among them, in the order in which they are flattened.
            private: those that belong to a worker alone.
        """
        if not weights:
            raise ValueError("There is nothing to train: the model has no trainable weights.")
        if step not in self._steps:
            self._steps[step] = step.trace()
        graph = self._steps[step].graph
        is_weight, is_private = {id(v) for v in weights}, {id(v) for v in private}
        roles = [(v, role_of(v, graph, id(v) in is_weight, id(v) in is_private)) for v in variables]
        known = self.cache.roles
        if all(known.get(id(v)) in (role, *_WIDER.get(role, ())) for v, role in roles) and weights == self._weights:
            return
        self._bind(roles, weights)

    def _bind(self, roles: list[tuple[LocalVariable, Role]], weights: list[LocalVariable]) -> None:
        for variable in self.cache.variables:
            variable.value()  # what the owners hold is fetched before they are let go
        if self._make_copies is not None:
            self.workers.forget(self._make_copies)
            for shared in self.cache.shared.values():
                shared.release()
        known = self.cache.roles
        roles = [(v, known.get(id(v), role) if role is Role.FIXED else role) for v, role in roles]
        variables = [v for v, _ in roles]

        def make_copies(worker: int) -> None:
            for v in variables:
                v.copies += [None] * (len(self.workers) - len(v.copies))
                v.copies[worker] = _tf.new_copy(v, self.workers.devices[worker])

        self._make_copies = make_copies
        self.workers.furnish(make_copies)
        averages = [v for v, role in roles if role is Role.AVERAGE]
        shared = {Role.WEIGHT: Shared(self.method, weights, self.devices, self.workers, self.seed)}
        if averages:
            shared[Role.AVERAGE] = Shared(plump(self.method.p), averages, self.devices, self.workers, self.seed)
        self._weights, self._functions = weights, {}
        self.cache.bind(roles, shared)

    # -- running --------------------------------------------------------------------------------------------------

    def run(self, step: Step, handles: Callable[[int], list], arguments: list, steps: int, is_exchanging: bool) -> list[Report]:
        """One round: local steps on every live worker, and the exchange if `is_exchanging`.

        Args:
            step: a step that was prepared.
            handles: worker -> its iterators' handles.
            arguments: further tensors for the step.
            steps: local steps, at most.
            is_exchanging: whether the workers push and the servers merge.

        Returns:
            A report per worker that took part, in worker order.
        """
        started = time.perf_counter()
        for worker in self.workers.take_returned():
            self.cache.furnish(worker)
            self._needs_everything.add(worker)
        if self.cache.send():
            self._needs_everything |= self.workers.live
        is_whole = is_exchanging and self.method.pushes_whole(self.round)
        push = "whole" if is_whole else "chosen" if is_exchanging else None
        functions = {pull: self._worker_function(step, pull, push) for pull in self._pulls_now()}
        number = tf.constant(self.round, tf.int32)

        def work(worker: int) -> Report:
            function = functions[self._pull_of(worker)]
            outputs = function(handles(worker), arguments, tf.constant(steps), number, tf.constant(worker))
            return self._parse(outputs)

        reports = self.workers.call(work)
        self._needs_everything -= set(reports)
        self._has_answer = False
        worked = time.perf_counter()
        if is_exchanging and any(report.steps for report in reports.values()):
            self._merge(reports, is_whole, started, worked)
        self._settle(list(reports.values()))
        return [reports[worker] for worker in sorted(reports)]

    def _pulls_now(self) -> set[str | None]:
        return {self._pull_of(worker) for worker in self.workers.live}

    def _pull_of(self, worker: int) -> str | None:
        return "everything" if worker in self._needs_everything else "answer" if self._has_answer else None

    def _settle(self, reports: list[Report]) -> None:
        self.cache.leave_behind()
        metrics = self.cache.of_role(Role.SUM)
        if metrics and reports:
            self.cache.absorb(metrics, np.sum([report.sums for report in reports], 0))
        self.steps += max((report.steps for report in reports), default=0)

    def _merge(self, reports: dict[int, Report], is_whole: bool, started: float, worked: float) -> None:
        refresh = self.method.refreshes(self.round)
        try:
            verdicts = self._merge_function(is_whole, refresh)(tf.constant(self.round, tf.int64)).numpy()
        except (tf.errors.UnavailableError, tf.errors.AbortedError) as error:
            raise ClusterError(f"A parameter server failed while round {self.round} was merged: {error}") from error
        core, verdicts = int(verdicts[-1]), verdicts[:-1]
        refused = [w for w in reports if verdicts[w] not in (ABSENT, MERGED)]
        self._needs_everything |= set(refused)
        if refresh:  # who has not pushed knows an older core than the answers were made for
            self._needs_everything |= {w for w in self.workers.live if verdicts[w] != MERGED}
        if self.method.pulls_whole(self.round):
            self._needs_everything |= self.workers.live
        self.refused += len(refused)
        not_finite = [w for w in refused if verdicts[w] == NOT_FINITE]
        if not_finite and self.on_nonfinite == "raise":
            names = ", ".join(self.workers.names[w] for w in not_finite)
            self.refusal = NonFiniteUpdateError(
                f"The update of round {self.round} from {names} is not finite; the servers refused it and the weights "
                "are those of the round before. on_nonfinite='skip' would go on without it."
            )
        self._record(list(reports.values()), core, len(refused), started, worked)
        self._has_answer = True
        self.round += 1

    def raise_refusal(self) -> None:
        """Raises what the last round refused, if refusals are to be raised; callbacks have seen its logs by now."""
        refusal, self.refusal = self.refusal, None
        if refusal is not None:
            raise refusal

    def _record(self, reports: list[Report], core: int, refused: int, started: float, worked: float) -> None:
        ended = time.perf_counter()
        pull, compute, push = np.mean([report.seconds for report in reports], 0)
        by_block = np.sum([report.bytes for report in reports], 0)
        ps = np.zeros(len(self.devices))
        for shared, rows in zip(self.cache.shared.values(), self._rows(by_block)):
            ps[: len(rows)] += rows.sum(1)
        total = by_block.sum(0)
        chief, self.cache.chief_bytes = self.cache.chief_bytes, 0
        matches = np.sum([report.matches for report in reports], 0)
        record = RoundRecord(
            round=self.round,
            steps=self.steps + max(report.steps for report in reports),
            steps_in_round=max(report.steps for report in reports),
            workers=len(reports),
            round_s=ended - started,
            compute_s=float(compute),
            exchange_s=float(pull + push) + ended - worked,
            wait_s=max(0.0, worked - started - float(pull + compute + push)),
            traffic=Traffic(int(total[0]), int(total[2]), int(total[1] + total[3]), chief, tuple(int(b) for b in ps)),
            core_entries=core,
            explorer_entries=float(np.mean([report.explored for report in reports])),
            cache_hits=int(matches[0]),
            cache_misses=int(matches[1]),
            refused=refused,
        )
        self.records.append(record)
        for listener in self.listeners:
            listener(record)

    def _rows(self, by_block: np.ndarray) -> list[np.ndarray]:
        lengths = [len(shared.blocks) for shared in self.cache.shared.values()]
        return np.split(by_block, np.cumsum(lengths)[:-1])

    # -- tracing --------------------------------------------------------------------------------------------------

    def _worker_function(self, step: Step, pull: str | None, push: str | None):
        key = (step, pull, push)
        if key not in self._functions:
            handles = [tf.TensorSpec([], tf.resource) for _ in step.element_specs]
            scalar = tf.TensorSpec([], tf.int32)
            self._functions[key] = tf.function(
                lambda *arguments: self._worker_round(self._steps[step], pull, push, *arguments), autograph=False
            ).get_concrete_function(handles, step.argument_specs, scalar, scalar, scalar)
        return self._functions[key]

    def _worker_round(self, local_steps, pull, push, handles, arguments, steps, number, worker):
        shared = list(self.cache.shared.values())
        begun = tf.timestamp()
        pulled, matches = [_no_bytes(s) for s in shared], tf.zeros([2], tf.int64)
        if pull is not None:
            adopted = [s.adopt(number, worker, pull == "everything") for s in shared]
            pulled, matches = [counts for counts, _ in adopted], tf.add_n([m for _, m in adopted])
        with tf.control_dependencies([*pulled, matches]):
            adopted_at = tf.timestamp()
        with tf.control_dependencies([adopted_at]):
            done, outputs = local_steps(handles, arguments, steps)
        with tf.control_dependencies([done, *outputs]):
            trained_at = tf.timestamp()
        pushed, explored = [_no_bytes(s) for s in shared], tf.zeros([], tf.int64)
        if push is not None:
            *pushed, explored = tf.cond(
                done > 0, lambda: self._push(shared, number, worker, push == "whole", done), lambda: [*pushed, explored]
            )
        with tf.control_dependencies([*pushed, explored]):
            pushed_at = tf.timestamp()
        metrics = [tf.reshape(v.value(), [-1]) for v in self.cache.of_role(Role.SUM)]
        counts = tf.concat([tf.concat([out, into], 1) for out, into in zip(pushed, pulled)], 0)
        numbers = [[adopted_at - begun, trained_at - adopted_at, pushed_at - trained_at], [done], counts, matches, [explored]]
        return [tf.concat([tf.reshape(tf.cast(n, tf.float64), [-1]) for n in [*numbers, *metrics]], 0), *outputs]

    def _push(self, shared: list[Shared], number, worker, whole: bool, done: tf.Tensor) -> list[tf.Tensor]:
        note = tf.stack([float("nan"), tf.cast(done, tf.float32)])
        sent = [s.push(number, worker, whole and s.exchange.method is self.method, note) for s in shared]
        return [*[counts for counts, _ in sent], tf.add_n([explored for _, explored in sent])]

    def _parse(self, outputs: list[tf.Tensor]) -> Report:
        report, *others = [output.numpy() for output in outputs]
        blocks = sum(len(shared.blocks) for shared in self.cache.shared.values())
        counts, rest = report[4 : 4 + 4 * blocks].reshape(blocks, 4), report[4 + 4 * blocks :]
        return Report(report[:3], int(report[3]), counts, rest[:2], float(rest[2]), rest[3:], others)

    def _merge_function(self, whole: bool, refresh: bool):
        key = ("merge", whole, refresh)
        if key not in self._functions:
            self._functions[key] = tf.function(
                lambda number: self._merge_all(number, whole, refresh), autograph=False
            ).get_concrete_function(tf.TensorSpec([], tf.int64))
        return self._functions[key]

    def _merge_all(self, number: tf.Tensor, whole: bool, refresh: bool) -> tf.Tensor:
        """Merges everything that is shared; returns what became of each worker's push, and the core's size."""
        found = []
        for role, shared in self.cache.shared.items():
            found += shared.inspect(number, whole and role is Role.WEIGHT)
        with tf.device(self.devices[0]):
            found = tf.stack(found)  # i32[blocks of all shared, workers]
            is_absent = tf.reduce_any(tf.equal(found, ABSENT), 0)
            verdicts = tf.where(is_absent, ABSENT, tf.reduce_max(found, 0))
        for role, shared in self.cache.shared.items():
            is_weight = role is Role.WEIGHT
            shared.merge(number, verdicts, whole and is_weight, refresh and is_weight)
        core = self.cache.shared[Role.WEIGHT].core_entries()
        return tf.concat([tf.cast(verdicts, tf.int64), [core]], 0)


_WIDER = {Role.FIXED: tuple(Role)}  # a function that only reads a variable leaves it the role it has


def _no_bytes(shared: Shared) -> tf.Tensor:
    return tf.zeros([len(shared.blocks), 2], tf.int64)
