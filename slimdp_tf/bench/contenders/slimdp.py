"""This package by its public interface: an unchanged Keras model, plain fit, a callback that talks to the referee."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from slimdp_tf import methods
from slimdp_tf.bench.contenders.tf_tasks import make_cluster, make_dataset, make_model, start_programs
from slimdp_tf.bench.setting import Program, Setting
from slimdp_tf.bench.task import Task
from slimdp_tf.distribute.strategy import SlimDPStrategy
from slimdp_tf.measure.record import RoundRecord
from slimdp_tf.method import Method
from slimdp_tf.version import __version__


def launch(setting: Setting, *, method: str, **options: Any) -> list[Program]:
    """Returns the programs of chief, workers and ps.

    Args:
        setting: where they run.
        method: name of a method's factory.
        options: of the factory; and `overlap`, which is the strategy's.
    """
    return start_programs(setting, __name__, json.dumps({"method": method, "options": options}))


class Talk(keras.callbacks.Callback):
    """Asks the referee at the end of every epoch, which is `task.every` steps, whether to go on."""

    def __init__(self, task: Task, strategy: SlimDPStrategy):
        super().__init__()
        self._task, self._strategy = task, strategy
        self._steps, self._seconds = 0, dict.fromkeys(("compute_s", "exchange_s", "wait_s"), 0.0)

    def on_train_begin(self, logs: dict[str, float] | None = None) -> None:
        self._strategy.on_round(self._add)
        versions = f"slimdp_tf {__version__}, tensorflow {tf.__version__}, keras {keras.__version__}"
        self._task.begin(version=versions, method=repr(self._strategy.method))

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        self._steps += self._task.every
        if not self._task.pause(self._steps, self.model.get_weights, **self._seconds):
            self.model.stop_training = True

    def _add(self, record: RoundRecord) -> None:
        self._seconds = {name: seconds + getattr(record, name) for name, seconds in self._seconds.items()}


def make_method(name: str, options: Mapping[str, Any]) -> Method:
    """Returns the method of a contender's options."""
    return getattr(methods, name)(**{key: value for key, value in options.items() if key != "overlap"})


def main(arguments: list[str]) -> None:
    """Trains as the chief; the workers and ps are served by tf_tasks."""
    task, call = Task.from_environment(), json.loads(arguments[1])
    method, overlap = make_method(call["method"], call["options"]), call["options"].get("overlap", False)
    strategy = SlimDPStrategy(make_cluster(arguments[0]), method, seed=task.seed, overlap=overlap)
    with strategy.scope():
        model = make_model()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.0), loss)
    model.set_weights(task.initial_weights())
    data = strategy.distribute_datasets_from_function(lambda context: make_dataset(task, context.input_pipeline_id))
    model.fit(data, epochs=1, steps_per_epoch=max(task.every, 2 * method.p), verbose=0)  # warms up, at rate 0
    model.set_weights(task.initial_weights())
    model.optimizer.learning_rate = task.learning_rate
    model.fit(data, epochs=10**9, steps_per_epoch=task.every, verbose=0, callbacks=[Talk(task, strategy)])
    sys.stdout.flush()
    os._exit(0)  # TensorFlow's server has threads that never end


if __name__ == "__main__":
    main(sys.argv[1:])
