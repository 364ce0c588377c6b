"""Every name of TensorFlow's inside that _tf.py uses is still there."""

from __future__ import annotations

import ast
import gc
import importlib
import inspect
import subprocess
import threading
import time

import pytest
import tensorflow as tf

import slimdp_tf
from slimdp_tf import methods
from slimdp_tf.distribute import _tf, local_variable
from slimdp_tf.distribute.extended import Extended
from slimdp_tf.distribute.strategy import SlimDPStrategy
from tests import sources

FILE = "slimdp_tf/distribute/_tf.py"
SUPPORTED = ("2.20", "2.21")

# Attributes with a leading underscore, and what has them.
PRIVATE = {
    "_as_cluster_device_filters": "tensorflow.python.training.server_lib.ClusterDeviceFilters",
    "_handle_data": "a resource tensor",
    "_variant_tensor": "a dataset",
}

# Classes that derive from TensorFlow's: the private names of theirs that replace TensorFlow's, and those that do not.
REPLACED = {
    Extended: {
        "_batch_reduce_to",
        "_call_for_each_replica",
        "_create_variable",
        "_local_results",
        "_num_replicas_in_sync",
        "_reduce_to",
        "_resource_creator_scope",
        "_update",
        "_validate_colocate_with_variable",
    },
    local_variable.LocalVariable: {"_variable_call"},
    SlimDPStrategy: set(),
}
OWN = {
    Extended: {"_making_slot"},
    local_variable.LocalVariable: {"_handle", "_handle_here", "_note_write"},  # _handle: see below
    SlimDPStrategy: set(),
}
# What our constructor sets because TensorFlow's, which is not called, would.
SET = {"_cluster_resolver", "_cluster_coordinator", "_is_parameter_server_strategy_v2", "_canonicalize_devices"}
# Private names of TensorFlow's that the rest of distribute/ reads.
READ = {"_container_strategy", "_unique_id"}


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


@pytest.mark.parametrize("kind", REPLACED, ids=lambda kind: kind.__name__)
def test_private_names_of_classes_replace_what_is_there_and_nothing_else(kind):
    above = {name for base in kind.__mro__[1:] for name in vars(base)}
    private = {name for name in vars(kind) if name.startswith("_") and not name.startswith("__")} - {"_abc_impl"}
    assert private == REPLACED[kind] | OWN[kind]
    assert private & above == REPLACED[kind]


@pytest.mark.parametrize("name", sorted(REPLACED[Extended] - {"_num_replicas_in_sync"}))
def test_what_is_replaced_is_called_with_the_same_arguments(name):
    theirs, ours = (inspect.signature(getattr(kind, name)).parameters for kind in (_tf.ExtendedBase, Extended))
    assert list(theirs) == list(ours)


def test_what_the_constructor_sets_is_what_tensorflows_sets():
    own = sources.read("slimdp_tf/distribute/strategy.py")
    theirs = inspect.getsource(_tf.StrategyBase.__init__)
    for name in SET:
        assert f"self.{name}" in own and f"self.{name} = " in theirs


def test_private_names_that_are_read_are_pinned_and_there():
    files = [file for file in sources.list_files("slimdp_tf/distribute") if file != FILE]
    used = {name for file in files for _, name in sources.list_private(file)}
    assert used - sources.list_own(*files) == READ
    variable = tf.Variable(1.0)
    assert isinstance(variable._unique_id, str) and variable._unique_id != tf.Variable(1.0)._unique_id
    assert callable(_tf.ExtendedBase._container_strategy)


def test_a_variable_is_read_by_its_private_handle():
    variable = tf.Variable(1.0)
    assert variable._handle is variable.handle
    assert "_handle" not in {name for base in _tf.VariableBase.__mro__ for name in vars(base)}


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


def test_a_connection_that_comes_late_is_not_taken_for_the_one_that_followed(monkeypatch):
    first = {"chief": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"], "ps": ["127.0.0.1:3", "127.0.0.1:4"]}
    second, begun, go_on, order = {**first, "ps": ["127.0.0.1:3"]}, threading.Event(), threading.Event(), []

    def set_cluster(spec):
        begun.set()
        assert go_on.wait(10.0)
        order.append(spec)

    monkeypatch.setattr(_tf, "_connected", {"chief": first["chief"], "worker": [], "ps": []})
    monkeypatch.setattr(_tf, "_set_cluster", set_cluster)
    monkeypatch.setenv("TF_PS_DISABLE_ASYNC_EXECUTOR_GLOBALLY", "True")
    late = threading.Thread(target=_tf.connect, args=(first, "grpc"), daemon=True)
    late.start()
    assert begun.wait(10.0)
    after = threading.Thread(target=_tf.connect, args=(second, "grpc"), daemon=True)
    after.start()
    after.join(0.2)
    assert after.is_alive() and order == []  # it waits
    go_on.set()
    for thread in (late, after):
        thread.join(10.0)
    assert order == [first] and _tf.is_connected(second)  # the second is part of the first


def test_an_update_that_comes_late_is_one_of_the_cluster_that_followed(monkeypatch):
    first, second = ({"chief": ["127.0.0.1:1"], "worker": [f"127.0.0.1:{port}"], "ps": []} for port in (2, 3))
    updated = []
    monkeypatch.setattr(_tf, "_connected", first)
    monkeypatch.setattr(_tf, "_set_cluster", lambda spec, missing: updated.append(spec))
    with _tf._cluster_lock:  # held by whoever connects
        late = threading.Thread(target=_tf.update_cluster, args=(frozenset(),), daemon=True)
        late.start()
        late.join(0.2)
        monkeypatch.setattr(_tf, "_connected", second)
    late.join(10.0)
    assert updated == [second]


@pytest.mark.cluster
def test_a_task_that_hangs_holds_up_nobody_who_lets_functions_and_tensors_go():
    def trace(number):
        return tf.function(lambda x: x + number).get_concrete_function(tf.TensorSpec(()))

    def run(function, device):
        with _tf.talking(_tf.new_executor()), tf.device(device):
            return function(tf.zeros(()))

    with slimdp_tf.local_cluster(workers=2, ps=1) as made:
        slimdp_tf.SlimDPStrategy(made, methods.plump())
        there, hangs = (f"/job:worker/replica:0/task:{worker}/device:CPU:0" for worker in range(2))
        functions = [trace(float(i)) for i in range(20)]
        kept = [run(function, hangs) for function in functions]
        names = {tf.compat.as_str(function.name) for function in functions}
        made.suspend("worker", 1)
        resumes = subprocess.Popen(["sh", "-c", f"sleep 30; kill -CONT {made._process('worker', 1).pid}"])
        try:
            del functions[10:], kept[10:]
            gc.collect()
            assert [float(run(function, there)) for function in functions] == list(range(10))
            assert _tf.is_alive(there) and resumes.poll() is None
        finally:
            resumes.kill()
            made.resume("worker", 1)
        assert [float(run(function, hangs)) for function in functions] == list(range(10))
        context = find("context.context")()
        assert names <= context.list_function_names()
        _tf.let_go()
        assert names & context.list_function_names() == {tf.compat.as_str(function.name) for function in functions}


@pytest.mark.cluster
def test_tells_a_task_from_another_process_at_its_address():
    device = "/job:ps/replica:0/task:0/device:CPU:0"
    with slimdp_tf.local_cluster(workers=1, ps=1) as made:
        strategy = slimdp_tf.SlimDPStrategy(made, methods.plump())
        assert (_tf.is_alive(device), _tf.is_another(device)) == (True, False)
        made.kill("ps", 0)
        assert (_tf.is_alive(device), _tf.is_another(device)) == (False, False)
        made.restart("ps", 0)
        give_up = time.monotonic() + 30
        while not _tf.is_another(device) and time.monotonic() < give_up:
            time.sleep(0.2)
        assert (_tf.is_alive(device), _tf.is_another(device)) == (False, True)
        strategy.rounds.servers.await_return([], time.monotonic())
        assert (_tf.is_alive(device), _tf.is_another(device)) == (True, False)
