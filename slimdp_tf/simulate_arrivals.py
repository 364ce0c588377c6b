"""The rounds of single workers, merged one by one in a given order: what the cluster does with pacing "async"."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from slimdp_tf.arrival import fold_one
from slimdp_tf.channel import joined
from slimdp_tf.types import Note, Signal, State, anywhere, edited, reduced


class Arriving:
    """What a simulation holds beside its blocks and workers when pushes are merged as they arrive.

    Args:
        simulation: a `simulate.Simulation`, whose state is changed.

    Attributes:
        staleness: for every merge so far, how many others lay between the worker's pull and it.
    """

    def __init__(self, simulation):
        self.simulation, workers = simulation, simulation.workers
        self.held = [simulation.agreed] * workers  # what each worker was told with its last answer
        self.chosen: list[list[tf.Tensor | None]] = [
            [None if simulation.method.up.is_dense else tf.zeros([0], tf.int32)] * workers for _ in simulation.values
        ]
        self.notes = [Note(tf.constant(True), tf.constant(0.0), tf.constant(0)) for _ in range(workers)]
        self.signals = [Signal() for _ in range(workers)]
        self.waiting = [tf.zeros_like(value) for value in simulation.values]
        self.delivered: set[int] = set()
        self.staleness: list[int] = []
        self._pulled_at = [0] * workers

    def take(self, worker: int, train) -> None:
        """One worker's rounds up to its next push, which is merged by itself; then it pulls its answer.

        Args:
            worker: which one.
            train: as for `simulate`; the round is the worker's own.
        """
        simulation, waited = self.simulation, 1
        self._train(worker, train)
        while not self._is_due(worker, waited):
            waited += 1
            self._train(worker, train)
        number = self.signals[worker].round - 1
        whole = simulation.method.pushes_whole(number)
        for block in range(len(simulation.values)):
            self._exchange_block(block, worker, number, whole)
        self.staleness.append(len(self.staleness) - self._pulled_at[worker])
        self._pulled_at[worker] = len(self.staleness)
        if whole:
            self._note_whole(worker)
        self.held[worker] = simulation.agreed

    def _train(self, worker: int, train) -> None:
        simulation, signal = self.simulation, self.signals[worker]
        steps = simulation.method.trigger.plan(signal)
        local = np.concatenate([block.numpy() for block in simulation.locals[worker]])
        trained = train(worker, local, steps, signal.round)
        trained, loss = trained if isinstance(trained, tuple) else (trained, float("nan"))
        simulation.locals[worker] = tf.split(tf.constant(trained, tf.float32), list(simulation.exchange.sizes))
        self.notes[worker] = Note(tf.constant(True), tf.constant(loss, tf.float32), tf.constant(steps))
        self.signals[worker] = signal.after(steps, signal.steps + steps, loss)

    def _is_due(self, worker: int, waited: int) -> bool:
        """Whether it pushes now: always, unless the trigger looks at how far it has gone."""
        trigger = self.simulation.method.trigger
        if not hasattr(trigger, "is_due"):
            return True
        anchors = [state["anchor"] for state in self.simulation.state[worker]]
        pairs = zip(self.simulation.locals[worker], anchors)
        drift = tf.add_n([tf.reduce_sum(tf.square(local - anchor)) for local, anchor in pairs])
        return bool(trigger.is_due(drift, tf.add_n([tf.reduce_sum(tf.square(a)) for a in anchors]), waited))

    def _exchange_block(self, block: int, worker: int, number: int, whole: bool) -> None:
        simulation, exchange = self.simulation, self.simulation.exchange
        draw = exchange.draw(number, worker)
        agreed: State = dict(self.held[worker][block], round=tf.constant(number))
        state, local = simulation.state[worker][block], simulation.locals[worker][block]
        payload, _, edits = exchange.push(block, state, local, agreed, draw, whole)
        local = edits.pop("local", local)
        state = edited(state, edits)
        simulation.count(block, payload, "push_bytes")
        parts = exchange.parts_of(block, payload, agreed, draw)
        self.chosen[block][worker] = joined(parts)
        others = [Note(tf.constant(w != worker), n.loss, n.steps) for w, n in enumerate(self.notes)]
        arrived, before = exchange.receive(block, payload, parts, whole), simulation.values[block]
        increments, edits = fold_one(
            exchange, simulation.server[block], before, arrived, self.notes[worker], self.chosen[block], others
        )
        simulation.server[block] = edited(simulation.server[block], edits)
        for increment in increments:
            simulation.values[block] = reduced(simulation.values[block], increment)
        if whole:
            self.waiting[block] += before - simulation.values[block]
        shadow, held = simulation.shadows[block][worker], dict(agreed, pushed=joined(parts))
        payload, edits = exchange.answer(block, shadow, simulation.values[block], held, draw)
        simulation.shadows[block][worker] = edited(shadow, edits)
        local, edits = exchange.adopt(block, state, local, payload, held, draw)
        simulation.locals[worker][block], simulation.state[worker][block] = local, edited(state, edits)
        simulation.count(block, payload, "pull_bytes")

    def _note_whole(self, worker: int) -> None:
        """The core is chosen anew when every worker has delivered a whole update since it was last."""
        simulation = self.simulation
        self.delivered.add(worker)
        if len(self.delivered) == simulation.workers:
            keys = [agreed["core"] for agreed in simulation.agreed]
            keys = simulation.exchange.refresh(simulation.values, self.waiting, anywhere, keys)
            simulation.version += 1
            simulation.agreed = simulation.exchange.agree(keys, simulation.version)
            self.waiting = [tf.zeros_like(value) for value in simulation.values]
            self.delivered = set()
