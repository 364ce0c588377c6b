"""What `fit` iterates over: rounds, of which each is up to p steps of an epoch."""

from __future__ import annotations

import contextlib
import math
import warnings
import weakref
from collections.abc import Iterator, Mapping

import tensorflow as tf

from slimdp_tf.distribute.data import ShardedDataset, ShardedIterator
from slimdp_tf.distribute.strategy import SlimDPStrategy


class RoundIterator:
    """(first step, last step, iterator) of each round of an epoch; Keras calls it an epoch iterator.

    Before `reset` it gives one batch instead, for Keras to build the model by.

    Args:
        strategy: runs the rounds.
        dataset: what the workers train on.
        steps_per_epoch: steps of an epoch; None is as many as the worker with most batches has.
    """

    def __init__(self, strategy: SlimDPStrategy, dataset: ShardedDataset, steps_per_epoch: int | None):
        self.strategy, self.steps_per_epoch = strategy, steps_per_epoch
        self._dataset = dataset
        cardinality = dataset.cardinality()
        self._length = cardinality if cardinality >= 0 else None
        self._iterator: ShardedIterator | None = None
        self._seen = self._step = 0
        self._is_resumed = False
        self._is_building = True
        strategy.feed = weakref.ref(self)

    @property
    def element_spec(self):
        """Spec of a worker's batch."""
        return self._dataset.element_spec

    @property
    def position(self) -> dict[str, int | bool]:
        """Where things are after the round that was given last.

        "step" of the epoch, "number" of the pass over the data, batches "taken" of it, and whether the epoch "ends".
        """
        ends = self._step == self.num_batches
        return {"step": self._step, "number": self._iterator.number, "taken": self._seen, "ends": ends}

    def ahead_of(self, position: Mapping[str, int | bool], steps: int) -> dict[str, int | bool]:
        """Where things are `steps` of the same epoch and pass after a `position`."""
        step = position["step"] + steps
        ends = step == self.num_batches
        return {**position, "step": step, "taken": position["taken"] + steps, "ends": ends}

    def resume(self, place: Mapping[str, int | bool], workers: int, is_next: bool) -> None:
        """Lets the epoch that is about to begin go on where another run was.

        Args:
            place: its `position`.
            workers: how many it had; with another number the data is dealt out anew, and as much of it left out.
            is_next: whether this is the epoch after the one that ended at `place`.
        """
        now = self.strategy.workers
        step, number, taken = place["step"], place["number"], place["taken"] * workers // now
        if self.steps_per_epoch is None:
            step = step * workers // now
        if place["ends"] and self.num_batches is not None:
            step = self.num_batches
        if is_next:
            step = 0
            if self.steps_per_epoch is None or (self._length is not None and taken >= self._length):
                number, taken = number + 1, 0
        self._iterator, self._is_resumed = self._dataset.begin_at(number, taken), True
        self._step, self._seen = step, taken

    @property
    def num_batches(self) -> int | None:
        """Steps per epoch, None while unknown."""
        return self.steps_per_epoch or self._length

    def reset(self) -> None:
        """Called by `fit` when the model is built and before the first epoch."""
        self._iterator, self._is_building = None, False

    def __iter__(self) -> Iterator:
        if self._is_building:
            return iter([(0, 0, iter([self._dataset.example()]))])
        return self._rounds()

    def _rounds(self) -> Iterator[tuple[int, int, ShardedIterator]]:
        if not self._is_resumed:
            self._step = 0
            if self._iterator is None or self.steps_per_epoch is None:
                self._iterator, self._seen = iter(self._dataset), 0
        self._is_resumed = False
        self.strategy.rounds.settle()  # of an epoch that was broken off
        try:
            yield from self._rounds_of(self.num_batches or math.inf)
        finally:
            self.strategy.rounds.settle()

    def _rounds_of(self, steps: float) -> Iterator[tuple[int, int, ShardedIterator]]:
        step = self._step
        while step < steps:
            left = math.inf if self._length is None else self._length - self._seen
            if left <= 0:
                self._warn_of_end()
                break
            self._iterator.steps = int(min(self.strategy.rounds.planned, steps - step, left))
            self._iterator.ahead = min(steps - step, left) - self._iterator.steps
            self._iterator.taken = self._seen
            self._seen += self._iterator.steps
            self._step = step + self._iterator.steps
            yield step, self._step - 1, self._iterator
            self.strategy.rounds.raise_refusal()
            step = self._step
        if self._length is not None and self._seen >= self._length:
            self._iterator = None

    @contextlib.contextmanager
    def catch_stop_iteration(self) -> Iterator[None]:
        """Ends the epoch where the data ends."""
        try:
            yield
        except (StopIteration, tf.errors.OutOfRangeError):
            self._iterator = None
            if self.steps_per_epoch:
                self._warn_of_end()

    def _warn_of_end(self) -> None:
        warnings.warn(
            "The data ended before steps_per_epoch * epochs steps; the epoch ends here. Repeat the dataset "
            "(`.repeat()`) or ask for fewer steps.",
            stacklevel=4,
        )
