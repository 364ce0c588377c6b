"""Everything the package uses of TensorFlow that TensorFlow does not export. Run with 2.20 and 2.21.

A test imports every name used here, so that a TensorFlow which moved one fails there and not in a user's run.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import functools
import os
import threading

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.data.ops import iterator_ops
from tensorflow.python.data.util import structure
from tensorflow.python.distribute import distribute_lib, values
from tensorflow.python.distribute import parameter_server_strategy_v2 as ps_strategy
from tensorflow.python.distribute.coordinator import values as coordinator_values
from tensorflow.python.eager import context, remote
from tensorflow.python.eager import executor as executor_lib
from tensorflow.python.framework import func_graph as func_graph_lib
from tensorflow.python.framework import ops
from tensorflow.python.ops import control_flow_v2_func_graphs, handle_data_util, resource_variable_ops
from tensorflow.python.saved_model import save_context
from tensorflow.python.training import server_lib
from tensorflow.python.types import distribute as distribute_types

TF_VERSIONS = ("2.20", "2.21")

StrategyBase = ps_strategy.ParameterServerStrategyV2
ExtendedBase = ps_strategy.ParameterServerStrategyV2Extended
VariableBase = resource_variable_ops.ResourceVariable
DistributedDatasetBase = distribute_types.DistributedDatasetInterface
DistributedIteratorBase = distribute_types.DistributedIteratorInterface
PerReplica = values.PerReplica
ReplicaContext = distribute_lib.ReplicaContext
UpdateContext = distribute_lib.UpdateContext

_connected: dict[str, list[str]] | None = None
_cluster_lock = threading.RLock()  # two updates of the cluster at once end the process


# -- the cluster ------------------------------------------------------------------------------------------------------


def connect(spec: dict[str, list[str]], protocol: str) -> None:
    """Makes this process the chief of a cluster. The chief's address stays the same as long as the process lives."""
    global _connected
    os.environ["TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE"] = "False"  # one request per worker at a time
    os.environ["TF_PS_DISABLE_ASYNC_EXECUTOR_GLOBALLY"] = "True"  # executors here are synchronous
    with _cluster_lock:  # a connection that was given up may still be made, and changes the cluster when it is
        if _connected is None:
            remote.connect_to_cluster(
                tf.train.ClusterSpec(spec), job_name="chief", protocol=protocol, cluster_device_filters=_filters(spec)
            )
            context.ensure_initialized()
            _keep_functions()
            _probe()
        elif not is_connected(spec):
            _set_cluster(spec)
        if not is_connected(spec):
            _connected = spec


def disconnect(spec: dict[str, list[str]]) -> None:
    """Forgets the tasks of `spec`, which are about to end, so that nothing is sent to them any more."""
    global _connected
    with _cluster_lock:
        if is_connected(spec):
            _connected = {"chief": spec["chief"], "worker": [], "ps": []}
            _set_cluster(_connected)


def chief_address() -> str | None:
    """host:port at which this process is a chief, None if it is not one."""
    return _connected["chief"][0] if _connected else None


def addresses() -> list[str]:
    """host:port of every worker and ps of the cluster."""
    return [address for job in ("worker", "ps") for address in (_connected or {}).get(job, [])]


def address_of(device: str) -> str | None:
    """host:port of the task of `device`, None if it is not part of the cluster."""
    spec = tf.DeviceSpec.from_string(device)
    return dict(enumerate((_connected or {}).get(spec.job, []))).get(spec.task)


def is_connected(spec: dict[str, list[str]]) -> bool:
    """Whether this process is the chief of a cluster that has all tasks of `spec`."""
    return _connected is not None and all(_connected[job][: len(spec[job])] == spec[job] for job in _connected)


def _set_cluster(spec: dict[str, list[str]], missing: frozenset[str] = frozenset()) -> None:
    server = copy.deepcopy(context.get_server_def())
    there = {job: {i: a for i, a in enumerate(t) if a not in missing} for job, t in spec.items() if set(t) - missing}
    server.cluster.CopyFrom(tf.train.ClusterSpec(there).as_cluster_def())
    server.cluster_device_filters.CopyFrom(_filters(spec)._as_cluster_device_filters())
    with _cluster_lock:
        context.context().update_server_def(server)


def _filters(spec: dict[str, list[str]]) -> server_lib.ClusterDeviceFilters:
    """A worker sees the servers and the chief; a server sees everything (the core is chosen over all of them)."""
    filters = server_lib.ClusterDeviceFilters()
    for job, others in (("worker", ["/job:ps", "/job:chief"]), ("ps", ["/job:ps", "/job:worker", "/job:chief"])):
        for index in range(len(spec[job])):
            filters.set_device_filters(job, index, others)
    return filters


def update_cluster(missing: frozenset[str]) -> None:
    """Connects again to tasks that were restarted, and forgets those at the addresses `missing` until they are back."""
    with _cluster_lock:  # before it is read which cluster that is
        _set_cluster(_connected, missing)


# -- calls of tasks ---------------------------------------------------------------------------------------------------

_unused: collections.deque = collections.deque()  # names of functions that Python has collected
_here = threading.local()  # .executor: what `talking` gave this thread


def _keep_functions() -> None:
    """Functions that Python collects are taken back from the tasks by `let_go` only.

    TensorFlow asks one task after another to forget one, and holds all of Python's threads until each has answered.
    Python collects at any time: a single task that hangs would hold up the chief.
    """
    before = context.context().list_function_names()  # which no task knows: they stay, here
    context.context().remove_function = lambda name: tf.compat.as_str(name) in before or _unused.append(name)


def has_unused() -> bool:
    """Whether there are functions for `let_go`."""
    return bool(_unused)


def let_go() -> None:
    """Takes functions that nobody uses any more back from the tasks; while all of them answer."""
    while _unused:
        context.Context.remove_function(context.context(), _unused.popleft())


def is_alive(device: str) -> bool:
    """Whether the task of `device` answers and is the one this process connected to."""
    return _fail_to_ask(device) is None


def is_another(device: str) -> bool:
    """Whether the task of `device` answers, but as another process than the one this process connected to."""
    return "Unable to find a context_id" in str(_fail_to_ask(device))


def _fail_to_ask(device: str) -> tf.errors.OpError | None:
    """The error by which the task of `device` could not be asked anything, if there is one."""
    executor = new_executor()
    try:  # TensorFlow's own check holds all threads when a task hangs, and takes a process started anew for the old one
        with talking(executor), tf.device(device):
            tf.identity(_probe())
    except tf.errors.OpError as error:
        executor.clear_error()  # which it would raise again when it goes
        return error
    return None


@functools.cache
def _probe() -> tf.Tensor:
    """Made once: TensorFlow tells every task of the first operation of a kind, and holds all threads meanwhile."""
    with tf.device(None):
        return tf.constant(True)


def new_executor():
    """A synchronous executor of its own for one thread."""
    return _Own(pywrap_tfe.TFE_NewExecutor(False, True, 0))


class _Own(executor_lib.Executor):
    """An executor that goes without a word: whoever asked for what failed by it has been told."""

    __slots__ = ()

    def __del__(self):
        with contextlib.suppress(tf.errors.OpError):
            self.clear_error()
            super().__del__()


@contextlib.contextmanager
def talking(executor):
    """Eager operations and functions under it are asked of tasks by `executor`, apart from those of others.

    TensorFlow's own scope waits at its end until everything is done that was begun by the executor it leaves for a
    while: if a tensor on a task that hangs was let go by it, until that task answers.
    """
    before = getattr(_here, "executor", None) or _default()
    _here.executor = context.context().executor = executor
    try:
        yield
    finally:
        _here.executor = context.context().executor = before


class _Kept(executor_lib.Executor):
    """An executor that stays: whoever lets one go waits for everything that was begun by it."""

    __slots__ = ()

    def __del__(self):
        pass


@functools.cache
def _default() -> _Kept:
    """The executor of threads that have none of their own."""
    return _Kept(pywrap_tfe.TFE_NewExecutor(False, False, 0))


# -- variables whose copy is found when the function is called --------------------------------------------------------


def is_eager() -> bool:
    """Whether operations run at once; False while a function is traced."""
    return context.executing_eagerly()


def is_saving() -> bool:
    """Whether a SavedModel is being written."""
    return save_context.in_save_context()


def function_graph():
    """The graph of the function being traced: branches and loops count as part of the function around them."""
    graph = ops.get_default_graph()
    while isinstance(graph, control_flow_v2_func_graphs.ControlFlowFuncGraph):
        graph = graph.outer_graph
    return graph


def graphs_around() -> list:
    """The function graph being traced and all that are being traced around it."""
    graph, found = ops.get_default_graph(), []
    while isinstance(graph, func_graph_lib.FuncGraph):
        found.append(graph)
        graph = graph.outer_graph
    return found


def capture_handle(closure, example: tf.Tensor | None, key) -> tf.Tensor:
    """A resource handle that is `closure()` each time the traced function is called, one per key and function.

    Args:
        closure: returns the handle to use, in the thread that calls.
        example: a handle with the dtype and shape of all of them, None where the shape is not fixed.
        key: hashable; the same key gives the same tensor within one function.
    """
    graph = function_graph()
    if key not in graph.function_captures.by_ref_internal:
        handle = graph.capture_call_time_value(closure, tf.TensorSpec([], tf.resource), key=key)
        if example is not None:
            handle_data_util.set_handle_data(handle, example._handle_data)
        found = graph.function_captures.by_ref_external[key]

        def find():  # TensorFlow's own would capture it in the branch where this function is called, fed by nothing
            return found() if is_eager() else [capture_handle(closure, example, key)]

        find.output_spec = found.output_spec
        graph.function_captures.by_ref_external[key] = find
    return graph.function_captures.by_ref_internal[key]


def new_copy(variable: tf.Variable, device: str) -> tf.Variable:
    """An uninitialised variable of the same shape and dtype on `device`."""
    with tf.device(device):
        return resource_variable_ops.UninitializedVariable(
            shape=variable.shape, dtype=variable.dtype, trainable=False, name=variable.name.split(":")[0]
        )


def call_time_keys(graph) -> list:
    """The keys of the handles that are found when the function traced in `graph` is called."""
    return list(graph.function_captures.by_ref_internal)


def fixed_variables(graph) -> list[str]:
    """Names of the variables that the function traced in `graph` uses, the same ones wherever it is called."""
    fixed = {id(handle): handle for handle, _ in graph.captures if handle.dtype == tf.resource}
    named = {id(v.handle): v.name for v in graph.variables if type(v) is VariableBase}
    is_variable = {key: handle._handle_data is not None and handle._handle_data.is_set for key, handle in fixed.items()}
    return [named.get(key, "without a name") for key in fixed if is_variable[key]]


# -- data -------------------------------------------------------------------------------------------------------------


def dataset_to_graph(dataset: tf.data.Dataset) -> bytes:
    """A serialized GraphDef that builds `dataset`; tensors it holds are in it as constants."""
    return coordinator_values.serialize_dataset_to_graph(dataset).numpy()


def dataset_from_graph(graph: tf.Tensor, element_spec) -> tf.data.Dataset:
    """The dataset that a serialized GraphDef (string[]) builds, made where this is executed."""
    return coordinator_values.deserialize_dataset_from_graph(graph, element_spec)


def open_iterator(variant: tf.Tensor, element_spec, taken: tf.Tensor | None = None) -> tf.Tensor:
    """Handle of a new iterator over the dataset behind `variant`, here, past its first `taken` elements, i64[]."""
    types, shapes = structure.get_flat_tensor_types(element_spec), structure.get_flat_tensor_shapes(element_spec)
    handle = tf.raw_ops.AnonymousIteratorV3(output_types=types, output_shapes=shapes)
    if taken is not None:
        variant = tf.raw_ops.SkipDataset(input_dataset=variant, count=taken, output_types=types, output_shapes=shapes)
    tf.raw_ops.MakeIterator(dataset=variant, iterator=handle)
    return handle


def iterator_behind(handle: tf.Tensor, element_spec) -> tf.data.Iterator:
    """The iterator behind a handle, for use inside a function."""
    return iterator_ops.OwnedIterator(components=[handle], element_spec=element_spec)


def variant_of(dataset: tf.data.Dataset) -> tf.Tensor:
    """The variant tensor that stands for `dataset`."""
    return dataset._variant_tensor


def renewed(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """`dataset`, made again if it was made before this process became a chief and its devices got other names."""
    if "/job:localhost" not in (dataset._variant_tensor.device or "") or _connected is None:
        return dataset
    return dataset_from_graph(tf.constant(dataset_to_graph(dataset)), dataset.element_spec)
