"""Everything the package knows of Keras's inside: how `fit` hands its steps to the rounds of a `SlimDPStrategy`.

`install` changes three methods and one name of Keras's TensorFlow trainer; for models that were not made under a
`SlimDPStrategy` each of them does what it did before. `evaluate` and `predict` run on the chief, with the servers'
weights, so they see every example once and in order. Run with the versions of `KERAS_VERSIONS`; a test imports every
name used here.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from keras.src import tree
from keras.src.backend.tensorflow import trainer as tf_trainer
from keras.src.trainers import data_adapters
from keras.src.trainers.data_adapters import array_slicing
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
from keras.src.trainers.data_adapters.tf_dataset_adapter import TFDatasetAdapter

from slimdp_tf.distribute.data import ShardedDataset, ShardedIterator
from slimdp_tf.distribute.local_variable import LocalVariable
from slimdp_tf.distribute.step import Step
from slimdp_tf.distribute.strategy import SlimDPStrategy
from slimdp_tf.training.batch_loss import run_with_loss
from slimdp_tf.training.round_iterator import RoundIterator
from slimdp_tf.training.scope_checks import check_is_not_half_ours, own_variables

KERAS_VERSIONS = ("3.12", "3.15")

_Trainer = tf_trainer.TensorFlowTrainer
_KerasEpochIterator = tf_trainer.TFEpochIterator


def install() -> None:
    """Teaches Keras's trainer to hand its steps to a `SlimDPStrategy`. Doing it twice changes nothing."""
    if tf_trainer.TFEpochIterator is not _KerasEpochIterator:
        return
    tf_trainer.TFEpochIterator = _make_epoch_iterator
    _Trainer.make_train_function = _replacing(_Trainer.make_train_function, _make_train_function)
    _Trainer.make_test_function = _replacing(_Trainer.make_test_function, _running_on_chief("test_function"))
    _Trainer.make_predict_function = _replacing(_Trainer.make_predict_function, _running_on_chief("predict_function"))
    _Trainer.train_on_batch = _replacing(_Trainer.train_on_batch, _refuse_train_on_batch)


def _strategy_of(model) -> SlimDPStrategy | None:
    strategy = model.distribute_strategy
    return strategy if isinstance(strategy, SlimDPStrategy) else None


def _replacing(original, replacement):
    """The method `replacement(original, strategy, model, ...)` for models of a SlimDPStrategy, else `original`."""

    @functools.wraps(original)
    def method(model, *args, **kwargs):
        strategy = _strategy_of(model)
        if strategy is None:
            check_is_not_half_ours(getattr(getattr(model, "optimizer", None), "_distribution_strategy", None))
            return original(model, *args, **kwargs)
        return replacement(original, strategy, model, *args, **kwargs)

    return method


def _refuse_train_on_batch(original, strategy, model, *args, **kwargs):
    raise RuntimeError(
        "train_on_batch is not possible under SlimDPStrategy: one batch cannot be each worker's own. "
        "Use model.fit, or strategy.run with next(iterator) of a distributed dataset."
    )


def _running_on_chief(attribute: str):
    """A make_..._function whose function runs on the chief, outside the rounds."""

    def make(original, strategy, model, force=False):
        if getattr(model, attribute) is not None and not force:
            return
        setattr(model, attribute, None)
        with strategy.on_chief():
            original(model, force=True)
        function = getattr(model, attribute)

        def run(data):
            with strategy.on_chief():
                return function(data)

        setattr(model, attribute, run)

    return make


# -- fit --------------------------------------------------------------------------------------------------------------


def _make_train_function(original, strategy, model, force=False):
    if model.train_function is None or force:
        model.train_function = _Training(strategy, model)


class _Training:
    """A model's `train_function`: one call is one round."""

    def __init__(self, strategy: SlimDPStrategy, model):
        if model.run_eagerly:
            raise ValueError("run_eagerly=True is not possible under SlimDPStrategy: the workers run compiled steps.")
        self.strategy, self.model = strategy, model
        self._names: list[str] = []
        self._shapes: list[tuple[int, ...]] = []
        self._steps: dict[tuple, Step] = {}
        self._used: dict[Step, list[LocalVariable]] = {}
        self._results: dict[Step, Callable[[], dict]] = {}

    def __call__(self, iterator: ShardedIterator) -> dict:
        step = self.step_for(iterator.element_spec)
        asked = iterator.steps, True, iterator.ahead
        reports = self.strategy.rounds.run(step, lambda w: [iterator.handle(w)], [], *asked)
        outputs = [report.outputs[0] for report in reports if report.steps]
        if not outputs:
            raise tf.errors.OutOfRangeError(None, None, "The data of all workers has ended.")
        logs = self._unpack(np.mean(outputs, 0))
        logs.update({name: value.numpy() for name, value in self._results[step]().items() if name in logs})
        return logs

    def step_for(self, element_spec) -> Step:
        """The step on batches of this spec; its variables are on workers and servers."""
        flat = tuple(tree.flatten(element_spec))
        if flat not in self._steps:
            self._steps[flat] = Step(self._train_step, [element_spec], [], True, has_loss=True)
            with self.strategy.scope():
                if not self.model.optimizer.built:
                    self.model.optimizer.build(self.model.trainable_variables)
        step = self._steps[flat]
        private = self.model.optimizer.variables
        declared = own_variables([*self.model.variables, *self.model.metrics_variables, *private])
        if step not in self._used:
            graph = self.strategy.rounds.graph_of(step)
            self._used[step] = self.strategy.extended.used_in([graph])
            self._results[step] = tf.function(lambda: self._metrics_written_in(graph), autograph=False)
        variables = list({id(v): v for v in [*declared, *self._used[step]]}.values())
        weights = [v.value for v in self.model.trainable_variables]
        self.strategy.rounds.prepare(step, variables, weights, [v.value for v in private])
        return step

    def _train_step(self, elements, arguments) -> list[tf.Tensor]:
        step = self.model._autoconvert_optionals(self.model.train_step)
        run = self.strategy.extended.call_for_each_replica
        logs, loss = run_with_loss(self.model._loss_tracker, lambda: run(step, (elements[0],), {}))
        if not isinstance(logs, dict):
            raise TypeError(f"train_step must return a dict of logs. Received: {type(logs).__name__}")
        values = {name: tf.convert_to_tensor(value) for name, value in logs.items()}
        self._names, self._shapes = list(values), [tuple(v.shape) for v in values.values()]
        return [tf.concat([tf.reshape(tf.cast(v, tf.float64), [-1]) for v in [loss, *values.values()]], 0)]

    def _metrics_written_in(self, graph) -> dict[str, tf.Tensor]:
        """What the metrics show that a step updates; a log that only bears a metric's name is not one of them."""
        shown = {}
        for metric in self.model.metrics:
            if any(v.value.is_written_in(graph) for v in metric.variables):
                result = metric.result()
                shown.update(result if isinstance(result, dict) else {metric.name: result})
        return shown

    def _unpack(self, flat: np.ndarray) -> dict:
        logs, start = {}, 1  # after the loss of the mini-batches
        for name, shape in zip(self._names, self._shapes):
            size = math.prod(shape)
            value = flat[start : start + size].reshape(shape)
            logs[name], start = (float(value) if shape == () else value), start + size
        return logs


def prepare(model, element_spec) -> None:
    """Puts a model that `fit` is about to train on workers and servers, so that it can be restored."""
    model.train_function.step_for(element_spec)


def begin_at(model, epoch: int, is_later_allowed: bool = True) -> None:
    """Lets `fit` begin with this epoch, or with a later one that was asked for already, as by BackupAndRestore."""
    model._initial_epoch = max(epoch, model._initial_epoch or 0) if is_later_allowed else epoch


def place_of(optimizer, variable) -> int:
    """The place of a variable among those that an optimizer was built for, when its step is given that variable."""
    return optimizer._get_variable_index(variable)


# -- data -------------------------------------------------------------------------------------------------------------


class _OnChief:
    """Stands for a strategy where Keras asks one to distribute a dataset: it stays as it is."""

    def experimental_distribute_dataset(self, dataset):
        return dataset


def _make_epoch_iterator(distribute_strategy=None, *args, **kwargs):
    """Keras's TFEpochIterator, or ours where `fit` asks for one under a SlimDPStrategy."""
    if not isinstance(distribute_strategy, SlimDPStrategy):
        return _KerasEpochIterator(distribute_strategy, *args, **kwargs)
    if "class_weight" in kwargs:  # only fit passes it
        dataset = _distribute(distribute_strategy, **kwargs)
        return RoundIterator(distribute_strategy, dataset, kwargs["steps_per_epoch"])
    if isinstance(kwargs["x"], ShardedDataset | tf.data.Dataset):
        kwargs["x"] = distribute_strategy.dataset_on_chief(kwargs["x"])
    return _KerasEpochIterator(_OnChief(), *args, **kwargs)


def _distribute(
    strategy, x, y, sample_weight, batch_size, steps_per_epoch, shuffle, class_weight, **unused
) -> ShardedDataset:
    if isinstance(x, ShardedDataset):
        if class_weight is not None:
            raise ValueError("class_weight is not possible with a distributed dataset: yield sample weights instead.")
        return x
    adapter = data_adapters.get_data_adapter(
        x=x,
        y=y,
        sample_weight=sample_weight,
        batch_size=batch_size,
        steps_per_epoch=steps_per_epoch,
        shuffle=shuffle,
        class_weight=class_weight,
    )
    if isinstance(adapter, ArrayDataAdapter):
        arrays = array_slicing.convert_to_sliceable(adapter._inputs, target_backend="tensorflow")
        if all(isinstance(column, np.ndarray | tf.Tensor) for column in tree.flatten(arrays)):
            arrays = tree.lists_to_tuples(tree.map_structure(np.asarray, arrays))
            return strategy.distribute_arrays(arrays, adapter.batch_size, shuffle)
    if isinstance(adapter, ArrayDataAdapter | TFDatasetAdapter):
        return strategy.experimental_distribute_dataset(adapter.get_tf_dataset())
    raise ValueError(
        "fit under SlimDPStrategy takes arrays, a tf.data.Dataset, or what strategy.distribute_datasets_from_function "
        f"returns: Python code that makes batches cannot run on the workers. Received: {type(x).__name__}"
    )
