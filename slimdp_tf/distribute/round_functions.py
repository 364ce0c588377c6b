"""The two functions of a round, as graphs: what every worker runs, and what merges on the servers."""

from __future__ import annotations

import tensorflow as tf

from slimdp_tf.distribute.calls import fetch_here
from slimdp_tf.distribute.local_variable import standing_on
from slimdp_tf.distribute.reports import Report, parse_report
from slimdp_tf.distribute.roles import Role
from slimdp_tf.distribute.shared import Shared
from slimdp_tf.distribute.step import Step
from slimdp_tf.distribute.sync import ChiefCache
from slimdp_tf.inspection import ABSENT, explain


class RoundFunctions:
    """Traces, once each, the functions that the rounds of some variables need.

    Args:
        cache: knows the variables and how they are shared.
        devices: a device per server.
    """

    def __init__(self, cache: ChiefCache, devices: list[str]):
        self.cache, self.devices = cache, devices
        self._traced: dict[tuple, object] = {}

    def worker(self, step: Step, local_steps, pull: str | None, push: str | None):
        """The concrete function (handles, tensors, steps, round, worker) -> [report, *outputs].

        Args:
            step, local_steps: the step and its trace.
            pull: "answer" (what the last merge made ready), "everything", or None.
            push: "chosen" (the communication set), "whole", "due" (the chosen ones if the trigger says so), or None.
        """
        key = (step, pull, push)
        if key not in self._traced:
            scalar = tf.TensorSpec([], tf.int32)
            self._traced[key] = tf.function(
                lambda *arguments: self._work(step, local_steps, pull, push, *arguments), autograph=False
            ).get_concrete_function(step.handle_specs, step.argument_specs, scalar, scalar, scalar)
        return self._traced[key]

    def rest(self, pull: str):
        """As `worker`, for a pull alone: no iterators, no tensors, no step."""
        return self.worker(REST, do_nothing, pull, None)

    def merge(self, whole: bool, refresh: bool):
        """The concrete function (round i64[]) -> i64[workers + 1]: verdict on each push, and the core's entries."""
        key = (whole, refresh)
        if key not in self._traced:
            self._traced[key] = tf.function(
                lambda number: self._merge(number, whole, refresh), autograph=False
            ).get_concrete_function(tf.TensorSpec([], tf.int64))
        return self._traced[key]

    def faults(self, verdict: int, number: int, worker: int, whole: bool) -> list[str]:
        """Why the servers refused what a worker pushed in a round, in words, per block; it lies in its slot still.

        Args:
            verdict, number, worker: what the merge found, the round and the worker.
            whole: whether it pushed every entry.
        """
        key, scalar = ("facts", whole), tf.TensorSpec([], tf.int64)
        if key not in self._traced:
            self._traced[key] = tf.function(
                lambda *arguments: self._gather_facts(whole, *arguments), autograph=False
            ).get_concrete_function(scalar, tf.TensorSpec([], tf.int32))
        with standing_on(worker):
            facts = self._traced[key](tf.constant(number, tf.int64), tf.constant(worker))
        found = []
        for (role, shared), blocks in zip(self.cache.shared.items(), facts):
            words = [explain(shared.exchange, j, of_block, verdict) for j, of_block in enumerate(blocks)]
            found += [f"block {j} of the {role.name.lower()}s: {text}" for j, text in enumerate(words) if text]
        return found

    def _gather_facts(self, whole: bool, number: tf.Tensor, worker: tf.Tensor) -> list:
        return [
            [block.gather_facts(number, worker, whole and role is Role.WEIGHT) for block in shared.blocks]
            for role, shared in self.cache.shared.items()
        ]

    def parse(self, outputs: list[tf.Tensor]) -> Report:
        """What a worker's function returned, fetched to the chief."""
        outputs = [fetch_here(output) for output in outputs]
        return parse_report(outputs, sum(len(shared.blocks) for shared in self.cache.shared.values()))

    def _work(self, step, local_steps, pull, push, handles, arguments, steps, number, worker):
        shared = list(self.cache.shared.values())
        begun = tf.timestamp()
        pulled, matches = [no_bytes(s) for s in shared], tf.zeros([3], tf.int64)
        if pull is not None:
            *pulled, matches = self._adopt(number, worker, pull)
        adopted_at = time_after([*pulled, matches])
        with tf.control_dependencies([adopted_at]):
            done, outputs = local_steps(handles, arguments, steps)
        loss = tf.reduce_sum(outputs[0][:1]) if step.has_loss else tf.constant(float("nan"), tf.float64)
        trained_at = time_after([done, *outputs])
        pushed, explored, is_still = [no_bytes(s) for s in shared], tf.zeros([], tf.int64), tf.constant(False)
        if push is not None:  # a worker without data has nothing to say
            nothing = [*pushed, explored, is_still]
            note = tf.stack([tf.cast(loss, tf.float32), tf.cast(done, tf.float32)])
            is_due = self.is_due(done) if push == "due" else done > 0
            *pushed, explored, is_still = tf.cond(
                is_due, lambda: self._push(number, worker, push, note), lambda: nothing
            )
        pushed_at = time_after([*pushed, explored])
        seconds = [adopted_at - begun, trained_at - adopted_at, pushed_at - trained_at]
        counts = tf.concat([tf.concat([out, into], 1) for out, into in zip(pushed, pulled)], 0)
        metrics = [v.value() for v in self.cache.of_role(Role.SUM)]
        numbers = [seconds, done, loss, counts, matches, explored, is_still, *metrics]
        return [tf.concat([tf.reshape(tf.cast(n, tf.float64), [-1]) for n in numbers], 0), *outputs]

    def _adopt(self, number: tf.Tensor, worker: tf.Tensor, pull: str) -> list[tf.Tensor]:
        """Bytes pulled of all that is shared, and signatures that did (not) match."""

        def adopt(number, worker):
            counts, matches = zip(*[s.adopt(number, worker, pull == "everything") for s in self.cache.shared.values()])
            return [*counts, tf.add_n(matches)]

        return self._part(("adopt", pull), adopt)(number, worker)

    def _push(self, number: tf.Tensor, worker: tf.Tensor, push: str, note: tf.Tensor) -> list[tf.Tensor]:
        """Bytes pushed of all that is shared, entries explored, and whether all of it is zeros."""

        def store(number, worker, note):
            sent = [
                shared.push(number, worker, push == "whole" and role is Role.WEIGHT, note)
                for role, shared in self.cache.shared.items()
            ]
            counts, explored, nothing = zip(*sent)
            return [*counts, tf.add_n(explored), nothing[0]]  # the weights come first

        return self._part(("push", push == "whole"), store, tf.TensorSpec([2]))(number, worker, note)

    def _part(self, key: tuple, function, *further: tf.TensorSpec):
        """The concrete function (round, worker, ...) of a part that several functions have, traced once."""
        if key not in self._traced:
            scalar = tf.TensorSpec([], tf.int32)
            self._traced[key] = tf.function(function, autograph=False).get_concrete_function(scalar, scalar, *further)
        return self._traced[key]

    def verdicts(self, number: tf.Tensor, whole: bool, choices: dict[Role, list]) -> tf.Tensor:
        """What becomes of each worker's push, over all blocks. i32[workers]"""
        found = []
        for role, shared in self.cache.shared.items():
            is_whole = whole and role is Role.WEIGHT
            found += [block.inspect(number, is_whole, c) for block, c in zip(shared.blocks, choices[role])]
        found = tf.stack(found)  # i32[blocks of all that is shared, workers]
        is_absent = tf.reduce_any(tf.equal(found, ABSENT), 0)
        return tf.where(is_absent, ABSENT, tf.reduce_max(found, 0))

    def _merge(self, number: tf.Tensor, whole: bool, refresh: bool) -> tf.Tensor:
        choices = {role: [block.choices() for block in shared.blocks] for role, shared in self.cache.shared.items()}
        with tf.device(self.devices[0]):
            verdicts = self.verdicts(number, whole, choices)
        for role, shared in self.cache.shared.items():
            is_weight = role is Role.WEIGHT
            shared.merge(number, verdicts, choices[role], whole and is_weight, refresh and is_weight)
        core = self.cache.shared[Role.WEIGHT].core_entries()
        return tf.concat([tf.cast(verdicts, tf.int64), [core]], 0)


REST = Step(lambda elements, arguments: [], [], [], False)


def do_nothing(handles, arguments, steps):
    """No local step: (steps done i32[], outputs)."""
    return tf.zeros([], tf.int32), []


def time_after(tensors: list[tf.Tensor]) -> tf.Tensor:
    """The time, in seconds, when all of `tensors` are there. f64[]"""
    with tf.control_dependencies(tensors):
        return tf.timestamp()


def no_bytes(shared: Shared) -> tf.Tensor:
    """The counts of nothing pushed, or nothing pulled."""
    return tf.zeros([len(shared.blocks), 2], tf.int64)
