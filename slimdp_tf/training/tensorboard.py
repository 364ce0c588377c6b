"""TensorBoard: one folder per run with traffic, time, curves, hyper-parameters and the config.

TensorBoard's axis counts whole steps. So loss and accuracy are written three times, under tags that name the unit:
    by_step/     against mini-batches per worker
    by_kb_sent/  against kilobytes (1000 bytes; 1000 kB = 1 MB) moved per worker in pushes, pulls and keys
    by_ms/       against milliseconds of rounds (evaluation and saving are not in it)
All else is against mini-batches per worker.
"""

from __future__ import annotations

import math
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import tensorflow as tf
from tensorboard.plugins.hparams import api as hparams_api
from tensorboard.plugins.scalar import summary_v2 as scalar_summary

from slimdp_tf import methods
from slimdp_tf.measure.record import RoundRecord
from slimdp_tf.measure.runs import Run, Totals
from slimdp_tf.training.config import ConfigDict, describe, find_method, format_config, save_config

_AXES = {
    "by_step": "against mini-batches per worker",
    "by_kb_sent": "against kB (1000 bytes) moved per worker: pushes, pulls and keys",
    "by_ms": "against milliseconds of rounds",
}
_SHARED_FIELDS = ("optimizer", "learning_rate", "batch_size", "epochs", "workers", "ps", "seed")
_RESULTS = {
    "result/accuracy": "accuracy",
    "result/mb_per_worker": "MB per worker",
    "result/ratio_to_baseline": "times fewer bytes",
    "result/seconds": "seconds of rounds",
    "result/wait_s": "seconds waiting",
}


class RunLog(keras.callbacks.Callback):
    """Writes one run into one folder: give each run a folder of its own, and TensorBoard the folder above them."""

    def __init__(self, log_dir: str | pathlib.Path, strategy: tf.distribute.Strategy, config: ConfigDict | None = None):
        """Listens to the strategy from now on; the folder is written when training begins.

        Args:
            log_dir: the run's folder.
            strategy: a SlimDPStrategy; its records are what is written.
            config: saved beside as config.json and shown as text and hyper-parameters; without it only the method is.
        """
        super().__init__()
        self._folder = pathlib.Path(log_dir)
        self._strategy = strategy
        self._config = config
        self._writer: tf.summary.SummaryWriter | None = None
        self._totals = Totals()
        self._accuracy = math.nan
        strategy.on_round(self.write_round)

    def on_train_begin(self, logs: dict[str, float] | None = None) -> None:
        if self._writer is not None:
            return
        self._writer = tf.summary.create_file_writer(str(self._folder))
        text = f"    {self._strategy.method}"
        if self._config is not None:
            save_config(self._config, self._folder / "config.json")
            text += "\n\n" + "\n".join(f"    {line}" for line in format_config(self._config).splitlines())
        with self._writer.as_default():
            tf.summary.text("config", text, step=0, description="the method and the resolved config")
        _write_hparams(self._writer, list_hparams(self._strategy.method, self._config), self._folder.name)

    def write_round(self, record: RoundRecord) -> None:
        """Writes what one round moved and how long it took. The strategy calls it after every round."""
        self._totals = self._totals.add(record)
        if self._writer is not None:
            self._write(describe_round(record, self._strategy.method.pacing == "async"), self._totals.steps)

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        """Writes the loss and the metrics that Keras shows at this point: means since the epoch began."""
        self._write_curves(logs, is_wanted=lambda name: not name.startswith("val_"))

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Writes the validation's loss and metrics."""
        logs = logs or {}
        self._write_curves(logs, is_wanted=lambda name: name.startswith("val_"))
        self._accuracy = float(logs.get("val_accuracy", logs.get("accuracy", math.nan)))
        self._writer.flush()

    def on_train_end(self, logs: dict[str, float] | None = None) -> None:
        """Writes the results that the HPARAMS page compares; the ratio is added by `write_ratio`."""
        results = {
            "result/accuracy": self._accuracy,
            "result/mb_per_worker": self._totals.count_mb(self._strategy.workers),
            "result/seconds": self._totals.seconds,
            "result/wait_s": self._totals.wait_s,
        }
        self._write({tag: (value, _RESULTS[tag]) for tag, value in results.items()}, self._totals.steps)
        self._writer.flush()

    def _write_curves(self, logs: dict[str, float] | None, is_wanted: Any) -> None:
        values = {name: float(value) for name, value in (logs or {}).items() if is_wanted(name)}
        kb = 1000 * self._totals.count_mb(self._strategy.workers)
        for axis, place in zip(_AXES, (self._totals.steps, kb, 1000 * self._totals.seconds), strict=True):
            described = {f"{axis}/{name}": (value, f"{name} {_AXES[axis]}") for name, value in values.items()}
            self._write(described, round(place))

    def _write(self, described: Mapping[str, tuple[float, str]], step: int) -> None:
        _write_scalars(self._writer, described, step)


def describe_round(record: RoundRecord, is_async: bool) -> dict[str, tuple[float, str]]:
    """Returns tag -> (value, description) for one round; traffic is per worker."""
    traffic, workers = record.traffic, max(record.workers, 1)
    each = "MB (1e6 bytes) per worker in a round"
    values = {
        "traffic/push_mb": (traffic.push_mb / workers, f"values pushed, {each}"),
        "traffic/pull_mb": (traffic.pull_mb / workers, f"values pulled, {each}"),
        "traffic/keys_mb": (traffic.keys_mb / workers, f"keys in either direction, {each}"),
        "time/round_s": (record.round_s, "seconds of the whole round"),
        "time/compute_s": (record.compute_s, "seconds of local training, mean over workers"),
        "time/exchange_s": (record.exchange_s, "seconds of packing, pushing, merging, pulling and adopting"),
        "time/wait_s": (record.wait_s, "seconds in which the average worker had nothing to do"),
        "slim/core_entries": (record.core_entries, "size of the core, over all PS"),
        "slim/explorer_entries": (record.explorer_entries, "entries explored per worker"),
        "slim/key_cache_hits": (record.cache_hits, "signatures that matched, so that no keys were sent"),
        "slim/key_cache_misses": (record.cache_misses, "signatures answered by a full key list"),
        "slim/key_cache_mismatches": (record.cache_mismatches, "of these, those that no older core explains"),
        "cluster/workers": (record.workers, "workers that took part"),
        "cluster/refused": (record.refused, "updates the server refused"),
        "cluster/missed": (record.missed, "workers that the round was merged without, because they were late"),
    }
    if is_async:
        values |= {
            "async/staleness_mean": (
                record.staleness_mean,
                "merges of others between a worker's pull and its own",
            ),
            "async/staleness_max": (record.staleness_max, "the same, the greatest of the round"),
            "async/late": (record.late, "updates merged of workers that had been given up"),
        }
    for j, count in enumerate(traffic.ps_bytes):
        values[f"ps_mb/{j}"] = (count / 1e6, f"MB that PS {j} sent and received in a round, all workers")
    return values


def list_hparams(method: Any, config: ConfigDict | None) -> dict[str, Any]:
    """Returns hyper-parameters of a run as TensorBoard takes them: numbers, booleans and text."""
    values: dict[str, Any] = {"method": method.name}
    if config is not None:
        chosen = {name: config[name] for name in _SHARED_FIELDS} | dict(config.options.items())
        values |= {name: v if isinstance(v, (bool, int, float, str)) else str(v) for name, v in chosen.items()}
        values |= {"method": config.method, "model": config.model.name}
        if "c" in values:
            values["c"] = str(values["c"])  # a number or "auto": one column, one type
    return values


def write_ratio(log_dir: str | pathlib.Path, run: Run, ratio: float) -> None:
    """Adds to a run's folder how many times fewer bytes it moved than the baseline; nothing when that is not known."""
    if math.isfinite(ratio):
        writer = tf.summary.create_file_writer(str(log_dir))
        tag = "result/ratio_to_baseline"
        _write_scalars(writer, {tag: (ratio, _RESULTS[tag])}, run.totals.steps)
        writer.close()


def _write_scalars(writer: tf.summary.SummaryWriter, described: Mapping[str, tuple[float, str]], step: int) -> None:
    # One op for all tags of a step: an op for each costs a round of small models a good part of its time.
    summary = None
    for tag, (value, description) in described.items():
        single = scalar_summary.scalar_pb(tag, value, description)
        summary = single if summary is None else summary
        if summary is not single:
            summary.value.extend(single.value)
    if summary is not None:
        with writer.as_default():
            tf.summary.experimental.write_raw_pb(summary.SerializeToString(), step=step)


def _write_hparams(writer: tf.summary.SummaryWriter, values: Mapping[str, Any], run_name: str) -> None:
    names = ["method", "model", *_SHARED_FIELDS, *_list_options()]
    columns = [hparams_api.HParam(name) for name in dict.fromkeys([*names, *values])]
    metrics = [hparams_api.Metric(tag, display_name=title) for tag, title in _RESULTS.items()]
    with writer.as_default():
        hparams_api.hparams_config(columns, metrics)  # the same in every run: TensorBoard shows the first it finds
        hparams_api.hparams(dict(values), trial_id=run_name)


def _list_options() -> Iterable[str]:
    return [option for name in methods.names() for option in describe(find_method(name))]
