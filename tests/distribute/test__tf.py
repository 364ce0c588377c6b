"""Every name of TensorFlow's inside that _tf.py uses is still there."""

from __future__ import annotations

import ast
import importlib

import pytest
import tensorflow as tf

from slimdp_tf.distribute import _tf, local_variable
from tests import sources

FILE = "slimdp_tf/distribute/_tf.py"
SUPPORTED = ("2.20", "2.21")

# Attributes with a leading underscore, and what has them.
PRIVATE = {
    "_as_cluster_device_filters": "tensorflow.python.training.server_lib.ClusterDeviceFilters",
    "_handle_data": "a resource tensor",
    "_variant_tensor": "a dataset",
}


def imported() -> dict[str, str]:
    """Alias -> dotted name of everything of tensorflow.python that _tf.py imports."""
    found = {}
    for node in ast.walk(sources.parse(FILE)):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("tensorflow.python"):
            found.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    return found


def chains() -> list[str]:
    """The longest name chains in _tf.py that begin with one of these."""
    found = {name for _, name in sources.list_names(FILE) if name.split(".")[0] in imported()}
    return sorted(name for name in found if not any(other.startswith(name + ".") for other in found))


def find(name: str):
    """What a chain stands for; what a call returns is looked up on an object of that kind."""
    alias, *rest = name.split(".")
    module, _, last = imported()[alias].rpartition(".")
    try:
        thing = importlib.import_module(imported()[alias])
    except ModuleNotFoundError:
        thing = getattr(importlib.import_module(module), last)
    for attribute in rest:
        thing = getattr(thing, attribute)
    return thing


def test_the_supported_versions_are_named_and_this_is_one_of_them():
    assert _tf.TF_VERSIONS == SUPPORTED
    assert tf.__version__.rpartition(".")[0] in SUPPORTED


def test_there_are_names_to_look_for():
    assert len(chains()) >= 25


@pytest.mark.parametrize("name", chains())
def test_the_name_is_there(name):
    assert find(name) is not None


def test_every_private_attribute_is_pinned_here():
    used = {
        node.attr
        for node in ast.walk(sources.parse(FILE))
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__")
    }
    assert used == set(PRIVATE)


def test_private_attributes_are_there():
    assert tf.data.Dataset.range(2)._variant_tensor.dtype == tf.variant
    data = tf.Variable(1.0).handle._handle_data
    assert data.is_set and data.shape_and_type
    filters = find("server_lib.ClusterDeviceFilters")()
    filters.set_device_filters("worker", 0, ["/job:ps"])
    assert filters._as_cluster_device_filters().jobs[0].name == "worker"


def test_the_context_has_what_is_asked_of_it():
    context = find("context.context")()
    for name in ("check_alive", "update_server_def"):
        assert callable(getattr(context, name))


def test_handles_are_found_when_a_function_is_called_in_branches_and_inner_functions_too():
    one, two = tf.Variable(1.0), tf.Variable(2.0)
    now = [one]

    def read():
        return local_variable.read_handle(_tf.capture_handle(lambda: now[0].handle, one.handle, "key"), tf.float32, ())

    @tf.function(autograph=False)
    def inner():
        return read()

    @tf.function(autograph=False)
    def outer(flag):
        with tf.GradientTape():
            looped = tf.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, s + inner()), [0, tf.zeros([])])[1]
        return read() + tf.cond(flag, lambda: inner() * 10.0, lambda: read()) + 100.0 * looped

    traced = outer.get_concrete_function(tf.TensorSpec((), tf.bool))
    assert _tf.call_time_keys(traced.graph) == ["key"]
    assert float(traced(tf.constant(True))) == 1 + 10 + 300
    now[0] = two
    assert float(traced(tf.constant(False))) == 2 + 2 + 600


def test_variables_that_are_the_same_wherever_a_function_is_called():
    outside = tf.Variable(1.0, name="outside")
    table = tf.lookup.experimental.DenseHashTable(tf.int64, tf.float32, 0.0, -1, -2)

    @tf.function(autograph=False)
    def step(x):
        return tf.cond(x > 0, lambda: x * outside, lambda: x) + table.lookup(tf.constant([3], tf.int64))[0]

    graph = step.get_concrete_function(tf.TensorSpec(())).graph
    assert _tf.fixed_variables(graph) == ["outside:0"]


def test_vectors_of_any_length():
    handle = local_variable.new_vector_handle(tf.int32)
    for length in (0, 3, 1):
        tf.raw_ops.AssignVariableOp(resource=handle, value=tf.range(length))
        assert local_variable.read_handle(handle, tf.int32, [None]).shape == [length]


def test_datasets_travel_as_graphs():
    dataset = tf.data.Dataset.range(5).map(lambda i: i * i)
    made = _tf.dataset_from_graph(tf.constant(_tf.dataset_to_graph(dataset)), dataset.element_spec)
    assert [int(i) for i in made] == [0, 1, 4, 9, 16]
    handle = _tf.open_iterator(_tf.variant_of(made), made.element_spec)
    take = tf.function(lambda h: _tf.iterator_behind(h, made.element_spec).get_next())
    assert [int(take(handle)) for _ in range(3)] == [0, 1, 4]
