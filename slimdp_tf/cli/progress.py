"""A line that says how far a run is, how well it does and when it will end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

import keras
import tensorflow as tf

_TERMINAL_PERIOD_S = 0.2
_LOG_PERIOD_S = 10.0  # where lines stay, as in a file


class ProgressLine(keras.callbacks.Callback):
    """Shows one run on one line of a terminal, or on a new line now and then where the output is none."""

    def __init__(
        self,
        label: str,
        strategy: tf.distribute.Strategy,
        steps: int,
        out: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Prepares the line.

        Args:
            label: what the line begins with.
            strategy: whose records tell the steps and bytes.
            steps: mini-batches per worker in the whole run.
            out: where to write; stdout by default.
            clock: seconds.
        """
        super().__init__()
        self._label, self._strategy, self._steps = label, strategy, steps
        self._out = out or sys.stdout
        self._clock = clock
        self._is_terminal = self._out.isatty()
        self._start = self._shown = clock()
        self._written = 0
        self._last = ""
        self._bytes = 0
        self._done = 0
        self._first = (0, 0.0)  # steps and time after the first round, which takes long: functions are traced in it
        strategy.on_round(self._count)

    def on_train_begin(self, logs: dict[str, float] | None = None) -> None:
        self._start = self._clock()
        self._show("starting", is_kept=False)

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        period = _TERMINAL_PERIOD_S if self._is_terminal else _LOG_PERIOD_S
        if self._clock() - self._shown >= period:
            self._show(self.describe(logs), is_kept=False)

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        if logs and "val_accuracy" in logs:
            self._last = f"  validation {logs['val_accuracy']:.4f}"
        if self._done < self._steps:
            self._show(self.describe(logs), is_kept=False)

    def on_train_end(self, logs: dict[str, float] | None = None) -> None:
        self._show(f"{self.describe(logs)}  done in {_format_s(self._clock() - self._start)}", is_kept=True)

    def describe(self, logs: dict[str, float] | None = None) -> str:
        """Returns what the line says: share done, steps, loss and accuracy, megabytes per worker, time left."""
        done = min(1.0, self._done / self._steps)
        parts = [f"{100 * done:3.0f} %  step {self._done}/{self._steps}"]
        parts += [f"{name} {logs[name]:.4f}" for name in ("loss", "accuracy") if logs and name in logs]
        parts.append(f"{self._bytes / 1e6 / self._strategy.workers:.1f} MB per worker")
        steps, start = self._first
        if steps < self._done < self._steps:
            rate = (self._done - steps) / max(self._clock() - start, 1e-9)
            parts.append(f"{_format_s((self._steps - self._done) / rate)} left")
        return "  ".join(parts) + self._last

    def _count(self, record) -> None:
        self._done += record.steps_in_round
        self._bytes += record.traffic.exchange_bytes
        if not self._first[0]:
            self._first = (self._done, self._clock())

    def _show(self, text: str, is_kept: bool) -> None:
        self._shown = self._clock()
        line = f"{self._label}  {text}"
        if self._is_terminal:
            self._out.write("\r" + line.ljust(self._written) + ("\n" if is_kept else ""))
            self._written = 0 if is_kept else len(line)
        else:
            self._out.write(line + "\n")
        self._out.flush()


def _format_s(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
