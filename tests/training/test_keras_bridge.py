"""Every name of Keras's inside that keras_bridge.py uses is still there and still means what it did."""

from __future__ import annotations

import ast
import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src import tree
from keras.src.backend.tensorflow import trainer
from keras.src.trainers import data_adapters
from keras.src.trainers.data_adapters import array_slicing
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
from keras.src.trainers.data_adapters.tf_dataset_adapter import TFDatasetAdapter

from slimdp_tf.training import keras_bridge
from tests import sources

FILE = "slimdp_tf/training/keras_bridge.py"
SUPPORTED = ("3.12", "3.15")  # what TensorFlow 2.20 and 2.21 were run with

# Attributes with a leading underscore of objects that are not the bridge's own.
PRIVATE = {
    "_autoconvert_optionals",
    "_distribution_strategy",
    "_get_variable_index",
    "_initial_epoch",
    "_inputs",
    "_loss_tracker",
}

Trainer = trainer.TensorFlowTrainer


def original(method):
    """A method of Keras's trainer as it was before the bridge replaced it."""
    return inspect.unwrap(method)


def source_of(method) -> str:
    return inspect.getsource(original(method))


def test_the_supported_versions_are_named_and_this_is_one_of_them():
    assert keras_bridge.KERAS_VERSIONS == SUPPORTED
    assert keras.__version__.rpartition(".")[0] in SUPPORTED
    assert keras.backend.backend() == "tensorflow"


def test_everything_imported_from_keras_is_pinned_here():
    wanted = {name for _, name in sources.list_imports(FILE) if name.startswith("keras.")}
    here = {
        name for _, name in sources.list_imports("tests/training/test_keras_bridge.py") if name.startswith("keras.")
    }
    assert wanted and wanted <= here


def test_every_private_attribute_is_pinned_here():
    own = {node.name for node in ast.walk(sources.parse(FILE)) if isinstance(node, ast.FunctionDef)}
    used = {
        node.attr
        for node in ast.walk(sources.parse(FILE))
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__")
        if sources.dotted(node.value) not in ("self", "_tf")
    }
    used |= {text for _, text in sources.list_texts(FILE) if text.startswith("_")}  # getattr(optimizer, "_...")
    assert used - own == PRIVATE


# -- the trainer ------------------------------------------------------------------------------------------------------


def test_what_is_replaced_is_there():
    assert isinstance(original(keras_bridge._KerasEpochIterator), type)
    for name in ("make_train_function", "make_test_function", "make_predict_function"):
        assert list(inspect.signature(original(getattr(Trainer, name))).parameters) == ["self", "force"]
    assert list(inspect.signature(original(Trainer.train_on_batch)).parameters)[:3] == ["self", "x", "y"]
    assert keras.Model.mro().index(Trainer) > 0


def test_an_epoch_to_begin_with_is_looked_at_by_fit():
    assert keras.Sequential()._initial_epoch is None
    assert "self._initial_epoch or initial_epoch" in source_of(Trainer.fit)


def test_install_twice_changes_nothing():
    before = trainer.TFEpochIterator, Trainer.make_train_function, Trainer.train_on_batch
    keras_bridge.install()
    assert (trainer.TFEpochIterator, Trainer.make_train_function, Trainer.train_on_batch) == before


def test_only_fit_tells_the_epoch_iterator_of_class_weights():
    for method, is_fit in ((Trainer.fit, True), (Trainer.evaluate, False), (Trainer.predict, False)):
        calls = [
            node
            for node in ast.walk(ast.parse(inspect.cleandoc(source_of(method))))
            if isinstance(node, ast.Call) and sources.dotted(node.func) == "TFEpochIterator"
        ]
        keywords = [{keyword.arg for keyword in call.keywords} for call in calls]
        assert keywords and all({"x", "distribute_strategy"} <= names for names in keywords)
        assert all(not call.args for call in calls)
        assert sum("class_weight" in names for names in keywords) == is_fit
        if is_fit:
            assert {"x", "y", "sample_weight", "batch_size", "steps_per_epoch", "shuffle", "class_weight"} <= keywords[
                0
            ]


def test_fit_asks_for_the_train_function_at_every_step_and_uses_its_iterator_so():
    text = source_of(Trainer.fit)
    assert "self.make_train_function()" in text and "logs = self.train_function(iterator)" in text
    assert "for begin_step, end_step, iterator in epoch_iterator:" in text
    for name in ("num_batches", "reset()", "catch_stop_iteration()"):
        assert f"epoch_iterator.{name}" in text
    assert "self.train_function = None" in inspect.getsource(keras.Model.compile)


def test_functions_are_attributes_of_these_names():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    assert model.train_function is model.test_function is model.predict_function is None
    model.compile("sgd", "mse")
    for kind in ("train", "test", "predict"):
        getattr(model, f"make_{kind}_function")()
        assert callable(getattr(model, f"{kind}_function"))


def test_a_model_knows_its_strategy_and_its_optimizer_too():
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    with strategy.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    assert model.distribute_strategy is strategy
    assert model.optimizer._distribution_strategy is strategy


def test_optionals_are_converted():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    given = (tf.constant(1.0), tf.experimental.Optional.empty(tf.TensorSpec(())))
    assert model._autoconvert_optionals(lambda data: data)(given)[1] is None


def test_the_loss_is_a_mean_that_a_step_adds_to():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer="zeros")])
    assert model._loss_tracker is None
    model.compile("sgd", "mse")
    assert isinstance(model._loss_tracker, keras.metrics.Mean) and model._loss_tracker in model.metrics
    assert model._loss_tracker.name == "loss"
    model.train_step((tf.ones([3, 2]), 2.0 * tf.ones([3, 1])))
    assert float(model._loss_tracker.total / model._loss_tracker.count) == 4.0


def test_an_optimizer_knows_the_place_of_a_variable_that_its_step_is_given():
    seen = []

    class Watched(keras.optimizers.SGD):
        def update_step(self, gradient, variable, learning_rate):
            seen.append(keras_bridge.place_of(self, variable))

    variables = [keras.Variable([float(i)]) for i in range(3)]
    optimizer = Watched()
    optimizer.build(variables)
    optimizer.apply([tf.zeros([1])] * 3, variables)
    assert seen == [0, 1, 2]


def test_variables_hold_tensorflows_and_say_what_they_are_for():
    layer = keras.layers.Dense(1)
    layer.build((None, 2))
    assert isinstance(layer.kernel.value, tf.Variable) and layer.kernel.path
    assert keras.metrics.Mean().variables[0].value.aggregation == tf.VariableAggregation.SUM
    assert keras.optimizers.SGD().variables[0].value.aggregation == tf.VariableAggregation.ONLY_FIRST_REPLICA
    state = keras.random.SeedGenerator(1).state
    assert state.shape == (2,) and tf.as_dtype(state.dtype).is_integer


# -- data -------------------------------------------------------------------------------------------------------------


def test_arrays_become_rows_that_can_be_sliced():
    x = {"a": np.arange(6.0), "b": [[1], [2], [3], [4], [5], [6]]}
    adapter = data_adapters.get_data_adapter(
        x=x["a"],
        y=np.arange(6),
        sample_weight=None,
        batch_size=2,
        steps_per_epoch=None,
        shuffle=True,
        class_weight={0: 1.0, 1: 2.0, 2: 3.0, 3: 1.0, 4: 1.0, 5: 1.0},
    )
    assert isinstance(adapter, ArrayDataAdapter) and adapter.batch_size == 2
    rows, labels, weights = tree.lists_to_tuples(array_slicing.convert_to_sliceable(adapter._inputs, "tensorflow"))
    np.testing.assert_array_equal(rows, x["a"])
    np.testing.assert_array_equal(labels, np.arange(6))
    np.testing.assert_array_equal(weights, [1.0, 2.0, 3.0, 1.0, 1.0, 1.0])


def test_datasets_stay_datasets():
    dataset = tf.data.Dataset.range(4)
    adapter = data_adapters.get_data_adapter(x=dataset)
    assert isinstance(adapter, TFDatasetAdapter) and adapter.get_tf_dataset() is dataset


def test_trees():
    nested = {"b": [1, 2], "a": (3,)}
    assert sorted(tree.flatten(nested)) == [1, 2, 3]
    assert tree.map_structure(lambda leaf: leaf + 1, nested) == {"b": [2, 3], "a": (4,)}
    assert tree.lists_to_tuples([1, [2]]) == (1, (2,))


@pytest.mark.parametrize("name", ["KERAS_VERSIONS", "install"])
def test_public_names(name):
    assert hasattr(keras_bridge, name)
