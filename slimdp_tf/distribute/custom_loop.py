"""Steps of custom training loops: `strategy.run` calls of which every p-th one that trains also exchanges weights."""

from __future__ import annotations

import tensorflow as tf

from slimdp_tf.distribute import _tf
from slimdp_tf.distribute.data import NextBatch
from slimdp_tf.distribute.local_variable import LocalVariable
from slimdp_tf.distribute.rounds import Rounds
from slimdp_tf.distribute.step import Step


class CustomLoop:
    """Runs functions of the user as local steps.

    Args:
        rounds: what the steps are part of.
        extended: the strategy's, which knows the variables that a graph uses.
    """

    def __init__(self, rounds: Rounds, extended):
        self.rounds, self.extended = rounds, extended
        self._programs: dict = {}
        self._graphs: list = []
        self._used: tuple[list[LocalVariable], list[LocalVariable]] = ([], [])
        self._waited = 0

    def run(self, fn, args, kwargs):
        """One local step; see `SlimDPStrategy.run`."""
        flat = tf.nest.flatten((args, kwargs), expand_composites=False)
        batches = [a for a in flat if isinstance(a, NextBatch)]
        tensors = [tf.convert_to_tensor(a) for a in flat if not isinstance(a, NextBatch)]
        step, structure = self._program(fn, args, kwargs, flat, batches, tensors)
        for batch in batches:
            batch.take()
        is_training = any(v.is_written_in(self.rounds.graph_of(step)) for v in self._used[1])
        self._waited += is_training
        is_exchanging = is_training and self._waited >= self.rounds.planned
        if is_exchanging:
            self._waited = 0
        reports = self.rounds.run(step, lambda w: [b.iterator.handle(w) for b in batches], tensors, 1, is_exchanging)
        self.rounds.raise_refusal()
        if not reports:
            raise tf.errors.OutOfRangeError(None, None, "The data of all workers has ended.")
        results = [_fill(structure, report.outputs) for report in reports]
        return tf.nest.map_structure(lambda *of: None if of[0] is None else _tf.PerReplica(of), *results)

    def _program(self, fn, args, kwargs, flat, batches, tensors):
        key = (fn, *(id(b.iterator.dataset) for b in batches), *((t.dtype, tuple(t.shape)) for t in tensors))
        if key not in self._programs:
            structure = []

            def call(elements, arguments):
                elements, arguments = iter(elements), iter(arguments)
                filled = [next(elements if isinstance(a, NextBatch) else arguments) for a in flat]
                a, k = tf.nest.pack_sequence_as((args, kwargs), filled)
                out = self.extended.call_for_each_replica(tf.autograph.experimental.do_not_convert(fn), a, k)
                structure[:] = [tf.nest.map_structure(lambda t: None if t is None else 0, out)]
                return [tf.convert_to_tensor(t) for t in tf.nest.flatten(out) if t is not None]

            specs = [tf.TensorSpec.from_tensor(t) for t in tensors]
            self._programs[key] = Step(call, [b.iterator.element_spec for b in batches], specs, False), structure
        step, structure = self._programs[key]
        self.rounds.prepare(step, *self._used_with(self.rounds.graph_of(step)), [])
        return step, structure[0]

    def _used_with(self, graph) -> tuple[list[LocalVariable], list[LocalVariable]]:
        """The variables of all steps so far, this one included, and those among them that they train."""
        if graph not in self._graphs:
            used = self.extended.used_in([*self._graphs, graph])
            self._graphs.append(graph)
            trained = [v for v in used if v.trainable and v.dtype.is_floating]
            self._used = used, [v for v in trained if any(v.is_written_in(g) for g in self._graphs)]
        return self._used


def _fill(structure, outputs: list):
    """`structure` with `outputs` in place of whatever is not None in it."""
    outputs = iter(outputs)
    leaves = [None if leaf is None else tf.constant(next(outputs)) for leaf in tf.nest.flatten(structure)]
    return tf.nest.pack_sequence_as(structure, leaves)
