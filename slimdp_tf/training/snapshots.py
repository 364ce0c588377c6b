"""A Keras callback that takes snapshots of a run and goes on from the last one."""

from __future__ import annotations

import pathlib

import keras
import tensorflow as tf

from slimdp_tf.distribute.snapshots import Keeper, Snapshot, check_schedule
from slimdp_tf.distribute.strategy import SlimDPStrategy
from slimdp_tf.training import keras_bridge


class Snapshots(keras.callbacks.Callback):
    """Takes snapshots while `fit` runs; when `fit` begins and there is one, it goes on from the last.

    No step is trained twice and none is left out: the run goes on in the middle of its epoch, with everything that the
    workers and servers held. Put it last in the list of callbacks, so that it sees what the others changed.

    Args:
        directory: where snapshots are; TensorFlow checkpoints.
        every_rounds, every_s: how far apart they are, in rounds or seconds (the first then is taken after the first
            round); with neither, one is taken per epoch.
        max_to_keep: how many stay.
    """

    def __init__(
        self,
        directory: str | pathlib.Path,
        every_rounds: int | None = None,
        every_s: float | None = None,
        max_to_keep: int = 3,
    ):
        super().__init__()
        check_schedule(every_rounds, every_s, max_to_keep)
        self._directory, self._schedule = directory, (every_rounds, every_s, max_to_keep)
        self._keeper: Keeper | None = None
        self._last: Snapshot | None = None  # to go on from, when the first epoch begins
        self._epoch = 0
        self._position: dict | None = None

    def on_train_begin(self, logs: dict | None = None) -> None:
        strategy = self.model.distribute_strategy
        if not isinstance(strategy, SlimDPStrategy):
            raise ValueError(f"slimdp_tf.Snapshots is for models of a SlimDPStrategy. Received: {strategy!r}")
        if self._keeper is None or self._keeper.rounds is not strategy.rounds:
            self._keeper = Keeper(strategy.rounds, self._directory, *self._schedule)
        strategy.rounds.snapshots, self._position = self._keeper, None
        self._last = self._keeper.last() if strategy.rounds.round == 0 else None
        if self._last is not None:
            keras_bridge.prepare(self.model, strategy.feed().element_spec)
            self._keeper.restore_fixed(self._last)  # now: callbacks may change it when an epoch begins
            keras_bridge.begin_at(self.model, self._place["epoch"])

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self._epoch = epoch
        if self._last is not None:
            self._go_on(epoch)
            self._last = None

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        feed = self.model.distribute_strategy.feed()
        self._position = {"epoch": self._epoch, **feed.position}
        if self._keeper.is_due:
            self._save()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        if self._schedule[:2] == (None, None):
            self._save_if_new()

    def on_train_end(self, logs: dict | None = None) -> None:
        """Takes a last one and waits until it is written."""
        self._save_if_new()
        self._keeper.file.finish()
        keras_bridge.begin_at(self.model, 0, is_later_allowed=False)

    def _save_if_new(self) -> None:
        if self._keeper.rounds.begun > self._keeper.saved_round:
            self._save()

    def _save(self) -> None:
        feed, position = self.model.distribute_strategy.feed(), self._position
        self._keeper.save(position and (lambda lead: feed.ahead_of(position, lead)))

    @property
    def _place(self) -> dict:
        """Where the last snapshot was taken; at the beginning, if it does not say."""
        start = {"epoch": 0, "step": 0, "number": 0, "taken": 0, "ends": False}
        return self._last.about["position"] or start

    def _go_on(self, epoch: int) -> None:
        strategy, place = self.model.distribute_strategy, self._place
        if epoch < place["epoch"]:
            raise ValueError(
                f"The snapshot in {self._directory} was taken in epoch {place['epoch'] + 1}, and another callback made "
                f"fit begin with epoch {epoch + 1}: put slimdp_tf.Snapshots last in the list of callbacks."
            )
        is_next = place["ends"] and epoch == place["epoch"] + 1  # that epoch's end was seen by another callback
        if epoch > place["epoch"] and not is_next:
            message = "The snapshot in %s is of epoch %d and fit begins with epoch %d: it is not restored."
            tf.get_logger().warning(message, self._directory, place["epoch"] + 1, epoch + 1)
            return
        self._keeper.restore(self._last, is_rewinding=is_next)
        strategy.feed().resume(place, self._last.about["workers"], is_next)
