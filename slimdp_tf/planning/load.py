"""What an exchange moves, counted from the payloads of a small model and scaled to the size of the real one."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from slimdp_tf.method import Method
from slimdp_tf.simulate import Simulation

_SAMPLE = 1 << 16  # entries of the small model
_COLUMNS = 64
_ROUNDS = 6
_LATE = 20_000  # rounds after which warm-ups and schedules have ended


@dataclasses.dataclass(frozen=True)
class Load:
    """What one worker moves in one round, keys included; the mean over a period of the core.

    Attributes:
        push_bytes: worker to servers.
        pull_bytes: servers to worker.
        steps: mini-batches in a round once schedules have ended; 0 where that is not known.
    """

    push_bytes: float
    pull_bytes: float
    steps: int = 0

    @property
    def bytes(self) -> float:
        """In both directions."""
        return self.push_bytes + self.pull_bytes


def count_load(method: Method, entries: int, shapes: Sequence[Sequence[int]] = (), seed: int = 0) -> Load:
    """Counts the bytes of a round of `method`.

    A model of at most 65,536 entries takes random steps under `Simulation` for a few rounds, late in its training
    (after warm-ups and schedules), and its payloads are counted. Where the bytes of a method depend on its updates
    (thresholds, codes of variable length) they are those of normally distributed ones.

    Args:
        method: the recipe.
        entries: n of the real model.
        shapes: of its variables, for methods that go by columns; used as they are where n is small enough.
        seed: of the steps and of the method.

    Returns:
        The bytes scaled to n; a whole push, which comes once in q rounds, is counted as a q-th of one.
    """
    if entries < 1:
        raise ValueError(f"entries must be at least 1. Received: {entries}")
    size = min(entries, _SAMPLE)
    if not shapes or entries > size:
        shapes = [(size // _COLUMNS, _COLUMNS), (size % _COLUMNS,)] if size >= _COLUMNS else [(size,)]
        shapes = [shape for shape in shapes if math.prod(shape)]
    rng = np.random.default_rng(seed)
    simulation = Simulation(method, rng.standard_normal(size).astype(np.float32), 1, 1, seed, shapes)
    ordinary, refreshing, period = [], [], method.agreement.period
    late = _LATE - _LATE % period if period else _LATE
    for number in (0, *range(late, late + _ROUNDS)):
        if number:
            simulation.round, simulation.steps = number, _LATE * _LATE
            simulation.signal = dataclasses.replace(simulation.signal, round=number, steps=simulation.steps)
        before = simulation.traffic
        simulation.run_round(lambda worker, weights, steps, at: weights + _walk(rng, size), simulation.planned)
        moved = [simulation.traffic.push_bytes - before.push_bytes, simulation.traffic.pull_bytes - before.pull_bytes]
        keys = simulation.traffic.keys_bytes - before.keys_bytes
        (refreshing if method.refreshes(number) else ordinary).append((*moved, keys))
    push, pull, keys = ordinary[-1] if ordinary else refreshing[-1]
    if period and refreshing:  # round 0 pulls everything, once in a training: only what it pushes comes again
        whole, _, whole_keys = refreshing[-1]
        push, keys = push + (whole - push) / period, keys + (whole_keys - keys) / period
    scale = entries / size
    return Load((push + keys) * scale, pull * scale, simulation.planned)


def _walk(rng: np.random.Generator, size: int) -> np.ndarray:
    return rng.normal(0.0, 0.01, size).astype(np.float32)
