"""K workers and P servers in one process, on plain tensors: what the cluster must be equal to.

There are no variables, devices, threads or faults here, only the verbs of `slimdp_tf.exchange` in the order of a round.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from slimdp_tf.channel import joined
from slimdp_tf.exchange import Exchange, block_sizes, payload_bytes
from slimdp_tf.measure.record import Traffic
from slimdp_tf.method import Method
from slimdp_tf.pieces import cut
from slimdp_tf.simulate_arrivals import Arriving
from slimdp_tf.types import Note, Payload, Signal, State, anywhere, edited, reduced

Train = Callable[[int, np.ndarray, int, int], np.ndarray | tuple[np.ndarray, float]]


@dataclasses.dataclass
class Simulation:
    """A cluster of `workers` and `servers` that trains f32[n] weights by `method`.

    Attributes:
        values: the server's blocks.
        locals: for each worker its blocks.
        traffic: bytes so far, counted from the payloads.
    """

    method: Method
    initial: np.ndarray
    workers: int
    servers: int = 1
    seed: int = 0
    shapes: Sequence[Sequence[int]] = ()

    def __post_init__(self):
        flat = tf.constant(np.asarray(self.initial, np.float32).reshape(-1))
        sizes = [size for size in block_sizes(int(flat.shape[0]), self.servers) if size]
        pieces = cut(self.shapes or [(int(flat.shape[0]),)], sizes)
        self.exchange = Exchange(self.method, tuple(sizes), self.seed, pieces)
        self.values = tf.split(flat, sizes)
        self.server = [self.exchange.init_server(value) for value in self.values]
        shadows = 1 if self.method.shares_answer else self.workers
        self.shadows = [[self.exchange.init_shadow(value)] * shadows for value in self.values]
        self.signal, self.steps = Signal(), 0
        self.locals = [list(self.values) for _ in range(self.workers)]
        self.state = [[self.exchange.init_worker(value) for value in self.values] for _ in range(self.workers)]
        self.version = 0
        self.agreed = self.exchange.agree([tf.zeros([0], tf.int32) for _ in sizes], self.version)
        self.round = 0
        self.traffic = Traffic(ps_bytes=(0,) * len(sizes))

    @property
    def weights(self) -> np.ndarray:
        """The server's weights, f32[n]."""
        return np.concatenate([value.numpy() for value in self.values])

    def run_round(self, train: Train, steps: int) -> None:
        """Trains every worker, then push, merge, refresh, pull.

        Args:
            train: (worker, local weights f32[n], steps, round) -> new local weights f32[n], or (weights, mean loss).
            steps: mini-batches per worker in this round.
        """
        losses = []
        for worker in range(self.workers):
            trained = train(worker, np.concatenate([b.numpy() for b in self.locals[worker]]), steps, self.round)
            trained, loss = trained if isinstance(trained, tuple) else (trained, float("nan"))
            self.locals[worker] = tf.split(tf.constant(trained, tf.float32), list(self.exchange.sizes))
            losses.append(loss)
        self.agreed = [dict(agreed, round=tf.constant(self.round)) for agreed in self.agreed]
        agreed, updates, self.steps = self.agreed, [], self.steps + steps
        pushed = [self._exchange_block(block, steps, losses, updates) for block in range(len(self.values))]
        if self.method.refreshes(self.round):
            self._refresh(updates)
        for block in range(len(self.values)):
            self._pull(block, agreed[block], pushed[block])
        self.round += 1
        self.signal = self.signal.after(self.planned, self.steps, float(np.mean(losses)))

    @property
    def planned(self) -> int:
        """Mini-batches per worker in the next round."""
        return self.method.trigger.plan(self.signal)

    def _exchange_block(self, block: int, steps: int, losses: list, updates: list) -> list[tf.Tensor | None]:
        exchange, whole = self.exchange, self.method.pushes_whole(self.round)
        incoming, pushed = [], []
        for worker in range(self.workers):
            draw = exchange.draw(self.round, worker)
            state, local = self.state[worker][block], self.locals[worker][block]
            payload, _, edits = exchange.push(block, state, local, self.agreed[block], draw, whole)
            self.locals[worker][block] = edits.pop("local", local)
            self.state[worker][block] = edited(state, edits)
            self.count(block, payload, "push_bytes")
            parts = exchange.parts_of(block, payload, self.agreed[block], draw)
            incoming.append(exchange.receive(block, payload, parts, whole))
            pushed.append(joined(parts))
        notes = [Note(tf.constant(True), tf.constant(loss, tf.float32), tf.constant(steps)) for loss in losses]
        incoming = exchange.together(block, incoming, exchange.draw(self.round, -1))
        increments, edits = exchange.merge(self.server[block], self.values[block], incoming, notes)
        self.server[block] = edited(self.server[block], edits)
        before = self.values[block]
        for increment in increments:
            self.values[block] = reduced(self.values[block], increment)
        updates.append(before - self.values[block])
        return pushed

    def _refresh(self, updates: list[tf.Tensor]) -> None:
        keys = self.exchange.refresh(self.values, updates, anywhere, [agreed["core"] for agreed in self.agreed])
        self.version += 1
        self.agreed = self.exchange.agree(keys, self.version)
        for block, core in enumerate(keys):
            for _ in range(self.workers):
                self.count(block, {"core.keys": core}, "push_bytes")

    def _pull(self, block: int, agreed: State, pushed: list[tf.Tensor | None]) -> None:
        exchange, everything = self.exchange, self.method.pulls_whole(self.round)
        shared, is_shared = None, self.method.shares_answer
        for worker in range(self.workers):
            number = 0 if is_shared else worker
            shadow = self.shadows[block][number]
            if everything:
                payload: Payload = {"value": exchange.held_by_worker(shadow, self.values[block])}
                self.locals[worker][block] = payload["value"]
                self.state[worker][block] = exchange.init_worker(payload["value"])
            else:
                draw = exchange.draw(self.round, -1 if is_shared else worker)
                held = agreed if pushed[worker] is None else dict(agreed, pushed=pushed[worker])
                if shared is None or not is_shared:
                    shared, edits = exchange.answer(block, shadow, self.values[block], held, draw)
                    self.shadows[block][number] = edited(shadow, edits)
                payload, state = shared, self.state[worker][block]
                local, edits = exchange.adopt(block, state, self.locals[worker][block], payload, held, draw)
                self.locals[worker][block], self.state[worker][block] = local, edited(state, edits)
            self.count(block, payload, "pull_bytes")

    def count(self, block: int, payload: Payload, kind: str) -> None:
        """Adds the bytes of a payload from or to a block."""
        values, keys = (int(size) for size in payload_bytes(payload))
        ps = [0] * len(self.exchange.sizes)
        ps[block] = values + keys
        self.traffic += Traffic(keys_bytes=keys, ps_bytes=tuple(ps), **{kind: values})


def simulate(
    method: Method,
    initial: np.ndarray,
    train: Train,
    rounds: int,
    workers: int,
    servers: int = 1,
    seed: int = 0,
    shapes: Sequence[Sequence[int]] = (),
    arrivals: Sequence[int] | None = None,
) -> Simulation:
    """Runs `rounds` whole rounds, of as many steps as the method plans, and returns the simulation at its end.

    With pacing "async" a round is one of every worker, merged one by one, and `train` is given the worker's own round.

    Args:
        method: the recipe.
        initial: f32[n], the weights every worker and the server start from.
        train: (worker, local weights f32[n], steps, round) -> new local weights f32[n], or (weights, mean loss).
        rounds: how many rounds.
        workers: K. servers: number of blocks. seed: the run's seed.
        shapes: of the variables that `initial` holds one after another; () takes it for one column.
        arrivals: with pacing "async", the workers in the order in which their pushes are merged, instead of `rounds`
            times each in turn.
    """
    for name, value in (("rounds", rounds), ("workers", workers), ("servers", servers)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be an integer of at least 1. Received: {value!r}")
    if np.size(initial) == 0:
        raise ValueError("initial must hold at least one weight. Received: none")
    is_in_step = method.pacing == "sync"
    if arrivals is not None and (is_in_step or not set(arrivals) <= set(range(workers))):
        raise ValueError(
            f"arrivals are numbers of workers, 0 to {workers - 1}, for a method with pacing 'async'. Received: "
            f"{list(arrivals)[:10]} with pacing {method.pacing!r}"
        )
    simulation = Simulation(method, initial, workers, servers, seed, shapes)
    if not is_in_step:
        arriving = Arriving(simulation)
        for worker in list(range(workers)) * rounds if arrivals is None else arrivals:
            arriving.take(worker, train)
        return simulation
    for _ in range(rounds):
        simulation.run_round(train, simulation.planned)
    return simulation


def overlapped(train: Train) -> Train:
    """`train` as workers do it that exchange the round before meanwhile (`SlimDPStrategy(..., overlap=True)`).

    A round begins where the last one ended, before its exchange; what the exchange changed is taken over afterwards:
    x <- l + (train(x) - x), with the exchanged copy l. The result is what is exchanged next.
    """
    begun: dict[int, np.ndarray] = {}

    def delayed(worker: int, weights: np.ndarray, steps: int, number: int):
        x = begun.get(worker, weights)
        trained = train(worker, x, steps, number)
        trained, *loss = trained if isinstance(trained, tuple) else (trained,)
        begun[worker] = (weights + (np.asarray(trained, np.float32) - x)).astype(np.float32)
        return (begun[worker], *loss) if loss else begun[worker]

    return delayed
