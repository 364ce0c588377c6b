"""Variables with a copy on the chief and one on each worker; code finds "the copy here", in one trace for all.

The chief's copy is a cache of the global value. Rounds leave it behind (`is_stale`); reading it fetches the global
value first. Assigning it makes it `is_dirty`: the next round begins by sending it to whoever owns the value. So
`get_weights`, callbacks, checkpoints and `optimizer.learning_rate = x` see and set what a user means.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref

import tensorflow as tf

from slimdp_tf.distribute import _tf
from slimdp_tf.types import Edit, Entries

_here = threading.local()


@contextlib.contextmanager
def standing_on(worker: int):
    """In this thread, functions that are called resolve to the copies of `worker`."""
    _here.worker = worker
    try:
        yield
    finally:
        _here.worker = None


def worker_here() -> int | None:
    """Number of the worker this thread calls functions for; None on the chief."""
    return getattr(_here, "worker", None)


class LocalVariable(_tf.VariableBase):
    """A variable as Keras sees it: the chief's copy, which resolves to a worker's copy in a worker's function.

    Args:
        cache: what keeps the chief's copies in step (`sync.ChiefCache` or anything with its `fetch`).
        is_slot: whether it belongs to another variable (an optimizer's slot).
        Everything else is passed on to TensorFlow's ResourceVariable.
    """

    def __init__(self, *, cache, is_slot: bool = False, **kwargs):
        self._cache = cache
        self._written_in = weakref.WeakSet()
        self.is_slot = is_slot
        self.is_stale = self.is_dirty = False
        self.copies: list[tf.Variable] = []
        super().__init__(**kwargs)

    @classmethod
    def _variable_call(cls, *args, **kwargs):
        return None  # TensorFlow's metaclass would make a plain variable of it

    @property
    def _handle(self) -> tf.Tensor:
        """TensorFlow's C++ code reads variables by this name, past `handle`: it must find the global value, too."""
        return self._handle_here(is_written=False) if _tf.is_eager() else self._handle_on_chief

    @_handle.setter
    def _handle(self, handle: tf.Tensor) -> None:
        self._handle_on_chief = handle

    @property
    def handle(self) -> tf.Tensor:
        if _tf.is_saving():
            return self._handle_on_chief
        if _tf.is_eager():
            return self._handle_here(is_written=False)
        graph = weakref.ref(_tf.function_graph())
        return _tf.capture_handle(
            lambda: self._handle_here(graph() in self._written_in), self._handle_on_chief, self.key
        )

    @property
    def key(self) -> tuple[str, str]:
        """What functions know it by."""
        return "local", self._unique_id

    def _handle_here(self, is_written: bool) -> tf.Tensor:
        worker = worker_here()
        if worker is not None:
            return self.copies[worker].handle
        if self.is_stale:
            self._cache.fetch(self)
        if is_written:
            self.is_dirty = True
        return self._handle_on_chief

    def is_written_in(self, graph) -> bool:
        """Whether the function traced in `graph` assigns this variable."""
        return graph in self._written_in

    def assign_cache(self, value: tf.Tensor) -> None:
        """Sets the chief's copy to the global value: it is neither stale nor dirty after it."""
        self.is_stale = self.is_dirty = False
        tf.raw_ops.AssignVariableOp(resource=self._handle_on_chief, value=value)

    def read_cache(self) -> tf.Tensor:
        """The chief's copy as it is."""
        return read_handle(self._handle_on_chief, self.dtype, self.shape)

    def _note_write(self) -> None:
        if _tf.is_eager():
            if self.is_stale:
                self._cache.fetch(self)
            self.is_dirty = True
        for graph in _tf.graphs_around():
            self._written_in.add(graph)

    def assign(self, *args, **kwargs):
        if _tf.is_eager():
            self.is_stale = False  # every entry is about to be replaced
        self._note_write()
        return super().assign(*args, **kwargs)

    def assign_add(self, *args, **kwargs):
        self._note_write()
        return super().assign_add(*args, **kwargs)

    def assign_sub(self, *args, **kwargs):
        self._note_write()
        return super().assign_sub(*args, **kwargs)


def _noted(name: str):
    """`LocalVariable`'s version of a scatter method: the write is noted, then TensorFlow's method runs."""
    original = getattr(_tf.VariableBase, name)

    def write(self, *args, **kwargs):
        self._note_write()
        return original(self, *args, **kwargs)

    write.__name__, write.__doc__ = name, original.__doc__
    return write


for _name in ("add", "sub", "max", "min", "mul", "div", "update", "nd_add", "nd_sub", "nd_update", "nd_max", "nd_min"):
    setattr(LocalVariable, "scatter_" + _name, _noted("scatter_" + _name))
for _name in ("batch_scatter_update",):
    setattr(LocalVariable, _name, _noted(_name))


class Vector:
    """A variable for vectors of any length, on the device it is made under.

    Args:
        dtype: of the entries; the vector is empty at first.
    """

    shape = tf.TensorShape([None])

    def __init__(self, dtype: tf.DType):
        self.dtype, self.handle = dtype, new_vector_handle(dtype)
        write_handle(self.handle, tf.zeros([0], dtype))

    def read(self) -> tf.Tensor:
        """The vector, inside a function."""
        return read_handle(self._captured(), self.dtype, self.shape)

    def write(self, value: tf.Tensor) -> tf.Operation:
        """Assigns the vector, inside a function."""
        return write_handle(self._captured(), value)

    def _captured(self) -> tf.Tensor:
        return _tf.capture_handle(lambda: self.handle, None, ("vector", id(self)))


class Shelf:
    """One variable per worker, on whatever device, that functions address as "the one of the worker here".

    Args:
        variables: a `tf.Variable` or `Vector` per worker, all of one kind and dtype; None for a worker that is away.
    """

    def __init__(self, variables: list[tf.Variable | Vector | None]):
        self.variables = list(variables)

    def put(self, worker: int, variable: tf.Variable | Vector) -> None:
        """Takes the variable of a worker that has just come."""
        self.variables[worker] = variable

    @property
    def _any(self) -> tf.Variable | Vector:
        return next(variable for variable in self.variables if variable is not None)

    def _handle(self) -> tf.Tensor:
        example = None if isinstance(self._any, Vector) else self._any.handle
        return _tf.capture_handle(lambda: self.variables[worker_here() or 0].handle, example, ("shelf", id(self)))

    def read(self) -> tf.Tensor:
        """The value of the worker here."""
        return read_handle(self._handle(), self._any.dtype, self._any.shape)

    def take(self, index: tf.Tensor) -> tf.Tensor:
        """Some entries of a vector, that of the worker here."""
        return tf.raw_ops.ResourceGather(resource=self._handle(), indices=index, dtype=self._any.dtype)

    def write(self, edit: Edit) -> tf.Operation:
        """Assigns the variable of the worker here, or only the entries named."""
        return write_handle(self._handle(), edit)


def write_handle(handle: tf.Tensor, edit: Edit) -> tf.Operation:
    """Assigns the variable behind `handle`, or scatters into it the entries named."""
    if not isinstance(edit, Entries):
        return tf.raw_ops.AssignVariableOp(resource=handle, value=edit)
    if edit.index is None:
        return tf.raw_ops.AssignVariableOp(resource=handle, value=edit.value)
    return tf.raw_ops.ResourceScatterUpdate(resource=handle, indices=edit.index, updates=edit.value)


def reduce_handle(handle: tf.Tensor, entries: Entries) -> tf.Operation:
    """Subtracts `entries`, f32, from the variable behind `handle`, in place."""
    if entries.index is None:
        return tf.raw_ops.AssignSubVariableOp(resource=handle, value=entries.value)
    # TensorFlow's own scatter_sub is slower than a gather and an overwriting scatter.
    value = tf.raw_ops.ResourceGather(resource=handle, indices=entries.index, dtype=entries.value.dtype)
    return tf.raw_ops.ResourceScatterUpdate(resource=handle, indices=entries.index, updates=value - entries.value)


def read_handle(handle: tf.Tensor, dtype: tf.DType, shape) -> tf.Tensor:
    """The value of the variable behind `handle`."""
    value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)
    value.set_shape(shape)
    return value


_ANONYMOUS = "cd2c89b7-88b7-44c8-ad83-06c2a9158347"  # TensorFlow's name for resources that live as long as a handle


@functools.cache
def _vector_maker(dtype: tf.DType, chief: str | None):  # other tasks do not know what was traced without a cluster
    return tf.function(
        lambda: tf.raw_ops.VarHandleOp(dtype=dtype, shape=tf.TensorShape(None), shared_name=_ANONYMOUS),
        autograph=False,
    ).get_concrete_function()


def new_vector_handle(dtype: tf.DType) -> tf.Tensor:
    """Handle of a new variable for vectors of any length, on the device this is called under.

    Made by a function, because a remote handle that TensorFlow knows the shape of must know all of it: a shape known
    in part aborts the server, and an unknown one is taken for a scalar.
    """
    return _vector_maker(dtype, _tf.chief_address())()
