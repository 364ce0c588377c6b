"""How a config becomes a run, through the public interface alone: strategy, scope, compile, fit."""

from __future__ import annotations

import dataclasses
import inspect
import math
import time
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from slimdp_tf.measure.record import RoundRecord
from slimdp_tf.measure.runs import Point, Run, Totals
from slimdp_tf.training.config import ConfigDict, call, describe_unknown, find, find_method
from slimdp_tf.training.feeds import FEEDS, Feed
from slimdp_tf.training.lars import Lars
from slimdp_tf.training.models import BUILDERS
from slimdp_tf.training.warm_up import WarmUp

_OPTIMIZERS = ("sgd", "rmsprop", "adam", "adamw", "adagrad", "adadelta", "adamax", "nadam", "lion", "lars")
_VALIDATION_BATCH = 250


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A config and what was made of it before the cluster is touched, so that mistakes show at once.

    Attributes:
        config: the resolved config.
        method: what the strategy is given.
        feed: the data.
        label: how tables and pictures call the run.
    """

    config: ConfigDict
    method: Any
    feed: Feed
    label: str

    @classmethod
    def prepare(cls, config: ConfigDict, label: str = "", feed: Feed | None = None) -> Experiment:
        """Checks a config and loads its data.

        Args:
            config: as `new_config` makes it.
            label: how tables and pictures call the run; the method's name when empty.
            feed: the data, where it is loaded already.

        Raises:
            ValueError: a field has a value that cannot be used, or an unknown name.
            FileNotFoundError: the data is not there.
        """
        check_numbers(config)
        build_optimizer(config)
        method = build_method(config)
        feed = feed or build_feed(config)
        feed.count_steps(config.workers, config.batch_size)
        return cls(config, method, feed, label or config.method)

    def train(
        self, strategy: tf.distribute.Strategy, callbacks: Sequence[keras.callbacks.Callback] = (), **fit: Any
    ) -> Run:
        """Trains a new model from the config's seed and returns what came of it.

        Args:
            strategy: a SlimDPStrategy that has not trained yet.
            callbacks: for `fit`, beside the one that takes down the curve.
            fit: more arguments of `fit`, as verbose.
        """
        config = self.config
        keras.utils.set_random_seed(config.seed)  # every method starts from the same weights
        with strategy.scope():
            model = build_model(config)
            model.compile(
                optimizer=build_optimizer(config), loss="sparse_categorical_crossentropy", metrics=["accuracy"]
            )
        curve = Curve(strategy)
        start = time.monotonic()
        model.fit(
            **self._pass_data(strategy),
            epochs=config.epochs,
            validation_steps=config.validation_steps or None,
            callbacks=[curve, *callbacks],
            **fit,
        )
        return Run(
            label=self.label,
            method=config.method,
            workers=strategy.workers,
            ps=strategy.ps,
            points=tuple(curve.points),
            totals=curve.totals,
            wall_s=time.monotonic() - start,
            config=config.to_dict(),
        )

    def count_steps(self, workers: int) -> int:
        """Returns the mini-batches per worker in the whole run."""
        config = self.config
        if isinstance(self.feed.train, tuple):  # every example is used: a worker's last batch may be short
            whole = math.ceil(math.ceil(self.feed.examples / workers) / config.batch_size)
        else:
            whole = self.feed.count_steps(workers, config.batch_size)
        return (config.steps_per_epoch or whole) * config.epochs

    def _pass_data(self, strategy: tf.distribute.Strategy) -> dict[str, Any]:
        config, train, validation = self.config, self.feed.train, self.feed.validation
        given = {"validation_data": validation() if callable(validation) else validation}
        if isinstance(train, tuple):
            steps = config.steps_per_epoch or None
            sizes = {"batch_size": config.batch_size, "validation_batch_size": _VALIDATION_BATCH}
            return {"x": train[0], "y": train[1], "steps_per_epoch": steps, **sizes, **given}
        steps = config.steps_per_epoch or self.feed.count_steps(strategy.workers, config.batch_size)
        batches = strategy.distribute_datasets_from_function(train)
        return {"x": batches, "steps_per_epoch": steps, "shuffle": False, **given}


class Curve(keras.callbacks.Callback):
    """Takes down one `Point` per epoch, from the strategy's records and Keras's logs.

    Attributes:
        points: so far.
        totals: sums over the strategy's rounds up to the last epoch's end.
    """

    def __init__(self, strategy: tf.distribute.Strategy):
        super().__init__()
        self._strategy = strategy
        self.totals = Totals()
        strategy.on_round(self._add)
        self.points: list[Point] = []

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        names = ("loss", "accuracy", "val_loss", "val_accuracy")
        values = {name: float((logs or {}).get(name, math.nan)) for name in names}
        mb = self.totals.count_mb(self._strategy.workers)
        self.points.append(Point(epoch + 1, self.totals.steps, mb, self.totals.seconds, **values))

    def _add(self, record: RoundRecord) -> None:
        self.totals = self.totals.add(record)


def build_method(config: ConfigDict) -> Any:
    """Returns the method of a config: its factory called with `config.options`."""
    return call(find_method(config.method), config.options, f"option of the method {config.method!r}")


def build_model(config: ConfigDict) -> keras.Model:
    """Returns a new model. Call it under the strategy's scope."""
    name = config.model.name
    return call(find(name, BUILDERS, "model"), config.model, f"option of the model {name!r}")


def build_feed(config: ConfigDict) -> Feed:
    """Returns the data of a config."""
    name = config.data.name
    given = {"data_dir": config.data_dir, "batch_size": config.batch_size, "seed": config.seed}
    return call(find(name, FEEDS, "data"), config.data, f"option of the data {name!r}", **given)


def build_optimizer(config: ConfigDict) -> keras.optimizers.Optimizer:
    """Returns a new optimizer from optimizer, learning_rate, momentum and weight_decay (the last two unless 0)."""
    if config.optimizer not in _OPTIMIZERS:
        raise ValueError(describe_unknown("optimizer", [config.optimizer], _OPTIMIZERS))
    kind = Lars if config.optimizer == "lars" else type(keras.optimizers.get(config.optimizer))
    rate = config.learning_rate
    arguments = {"learning_rate": WarmUp(rate, config.warm_up) if config.warm_up else rate}
    for name in ("momentum", "weight_decay"):
        if config[name]:
            arguments[name] = config[name]
            if name not in inspect.signature(kind).parameters:
                raise ValueError(f"{name} must be 0 with {config.optimizer}, which has none. Received: {config[name]}.")
    return kind(**arguments)


def check_numbers(config: ConfigDict) -> None:
    """Raises a ValueError when a count or rate of the config is out of range."""
    least = {"batch_size": 1, "epochs": 1, "workers": 1, "ps": 1, "seed": 0}
    least |= {"steps_per_epoch": 0, "validation_steps": 0, "momentum": 0, "weight_decay": 0, "warm_up": 0}
    for name, value in least.items():
        if config[name] < value:
            raise ValueError(f"{name} must be at least {value}. Received: {config[name]}.")
    if not 0 < config.learning_rate < math.inf:
        raise ValueError(f"learning_rate must be a number above 0. Received: {config.learning_rate}.")
