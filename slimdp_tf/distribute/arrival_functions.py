"""The functions that merge the push of one worker, as graphs: one trace serves all workers (see `arrival_slots`)."""

from __future__ import annotations

import tensorflow as tf

from slimdp_tf.distribute.roles import Role
from slimdp_tf.distribute.round_functions import RoundFunctions
from slimdp_tf.distribute.step import Step
from slimdp_tf.inspection import ABSENT, MERGED
from slimdp_tf.method import Method


class ArrivalFunctions(RoundFunctions):
    """Traces, once each, the functions that rounds without a barrier need; those of workers are the same as in step."""

    def prepare(self, step: Step, trace, pulls: set[str | None], method: Method | None) -> dict:
        """All functions that rounds may need from now on, so that no worker's thread traces one.

        Args:
            step, trace: the step and its trace.
            pulls: what workers may pull.
            method: what rounds end with; None where they do not exchange.

        Returns:
            (pull, push) -> the function of a worker's round.
        """
        pushes = [None]
        if method is not None:
            known = {"chosen": True, "whole": method.agreement.whole, "due": hasattr(method.trigger, "is_due")}
            pushes = [push for push, is_possible in known.items() if is_possible]
            pulls = pulls | {None} if known["due"] else pulls  # who has not pushed has nothing to pull
            for whole in {push == "whole" for push in pushes}:
                self.merge_one(whole)
            if method.agreement.period:
                self.refresh()
        return {(pull, push): self.worker(step, trace, pull, push) for pull in pulls for push in pushes}

    def is_due(self, done: tf.Tensor) -> tf.Tensor:
        """Whether the worker here has gone so far from what it pulled that it must push, bool[]."""
        shared = self.cache.shared[Role.WEIGHT]
        drift, weight = shared.measure_drift()
        return (done > 0) & shared.exchange.method.trigger.is_due(drift, weight, 0)

    def merge_one(self, whole: bool):
        """The concrete function (round i64[], worker i32[], others bool[workers]) -> i64[2]: verdict, core's entries.

        It is called for "the worker here"; `others` says who else takes part.
        """
        key = ("one", whole)
        if key not in self._traced:
            self._traced[key] = tf.function(
                lambda *arguments: self._merge_one(whole, *arguments), autograph=False
            ).get_concrete_function(
                tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.int32), tf.TensorSpec([None], tf.bool)
            )
        return self._traced[key]

    def renew(self):
        """The concrete function after which the worker here, which is back, takes over the weights of now."""
        if "renew" not in self._traced:

            def renew() -> None:
                for shared in self.cache.shared.values():
                    for block in shared.blocks:
                        block.renew_shadow()

            self._traced["renew"] = tf.function(renew, autograph=False).get_concrete_function()
        return self._traced["renew"]

    def refresh(self):
        """The concrete function (version i64[]) that chooses new keys, of which the worker here is told at once."""
        if "refresh" not in self._traced:
            choose = self.cache.shared[Role.WEIGHT].choose_keys
            self._traced["refresh"] = tf.function(choose, autograph=False).get_concrete_function(
                tf.TensorSpec([], tf.int64)
            )
        return self._traced["refresh"]

    def _merge_one(self, whole: bool, number: tf.Tensor, worker: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
        found, choices = [], {}
        for role, shared in self.cache.shared.items():
            choices[role] = shared.choose_here(number, worker)
            found += shared.inspect_here(number, whole and role is Role.WEIGHT, choices[role])
        with tf.device(self.devices[0]):
            found = tf.stack(found)  # i32[blocks of all that is shared]
            verdict = tf.where(tf.reduce_any(tf.equal(found, ABSENT)), ABSENT, tf.reduce_max(found))

        def fold():
            for role, shared in self.cache.shared.items():
                shared.fold_here(number, worker, whole and role is Role.WEIGHT, others, choices[role])
            return verdict

        done = tf.cond(tf.equal(verdict, MERGED), fold, lambda: verdict)
        with tf.control_dependencies([done]):
            core = self.cache.shared[Role.WEIGHT].core_entries()
            return tf.stack([tf.cast(done, tf.int64), core])
