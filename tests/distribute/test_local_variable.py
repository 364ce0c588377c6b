"""LocalVariable, Vector and Shelf: "the copy here", in one trace for the chief and all workers."""

import threading

import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf.distribute.local_variable import LocalVariable, Shelf, Vector, standing_on, worker_here, write_handle
from slimdp_tf.types import Entries


class Cache:
    """The owner's value is always 7; counts how often it is fetched."""

    def __init__(self):
        self.fetched = 0

    def fetch(self, variable: LocalVariable) -> None:
        self.fetched += 1
        variable.assign_cache(tf.fill(variable.shape, tf.cast(7, variable.dtype)))


@pytest.fixture
def cache():
    return Cache()


def make(cache, value=(1.0, 2.0), workers: int = 2, **arguments) -> LocalVariable:
    """A variable whose copy on worker k is filled with 10 * (k + 1)."""
    variable = LocalVariable(cache=cache, initial_value=tf.constant(value), **arguments)
    variable.copies = [tf.Variable(tf.fill(variable.shape, 10.0 * (k + 1))) for k in range(workers)]
    return variable


# -- where one stands -------------------------------------------------------------------------------------------------


def test_stands_on_the_chief_unless_told_otherwise():
    assert worker_here() is None
    with standing_on(3):
        assert worker_here() == 3
    assert worker_here() is None


def test_every_thread_stands_where_it_stands():
    seen = []
    with standing_on(1):
        thread = threading.Thread(target=lambda: seen.append(worker_here()))
        thread.start()
        thread.join()
    assert seen == [None]


def test_leaves_the_worker_after_an_error():
    with pytest.raises(KeyError), standing_on(1):
        raise KeyError
    assert worker_here() is None


# -- on the chief -----------------------------------------------------------------------------------------------------


def test_reads_its_own_copy_while_it_is_fresh(cache):
    variable = make(cache)
    np.testing.assert_array_equal(variable.numpy(), [1, 2])
    np.testing.assert_array_equal(variable + 1.0, [2, 3])
    assert cache.fetched == 0
    assert not variable.is_dirty


@pytest.mark.parametrize("read", [lambda v: v.numpy(), lambda v: v.value().numpy(), lambda v: tf.identity(v).numpy()])
def test_a_stale_copy_is_fetched_once_before_it_is_read(cache, read):
    variable = make(cache)
    variable.is_stale = True
    for _ in range(2):
        np.testing.assert_array_equal(read(variable), [7, 7])
    assert cache.fetched == 1
    assert not variable.is_dirty


def test_an_assignment_makes_it_dirty_and_fetches_nothing(cache):
    variable = make(cache)
    variable.is_stale = True
    variable.assign([3.0, 4.0])
    np.testing.assert_array_equal(variable.numpy(), [3, 4])
    assert (variable.is_stale, variable.is_dirty, cache.fetched) == (False, True, 0)


EDITS = {
    "assign_add": (lambda v: v.assign_add([1.0, 1.0]), [8, 8]),
    "assign_sub": (lambda v: v.assign_sub([1.0, 1.0]), [6, 6]),
    "scatter_add": (lambda v: v.scatter_add(tf.IndexedSlices(tf.constant([1.0]), tf.constant([0]))), [8, 7]),
    "scatter_sub": (lambda v: v.scatter_sub(tf.IndexedSlices(tf.constant([1.0]), tf.constant([0]))), [6, 7]),
    "scatter_update": (lambda v: v.scatter_update(tf.IndexedSlices(tf.constant([1.0]), tf.constant([1]))), [7, 1]),
    "scatter_max": (lambda v: v.scatter_max(tf.IndexedSlices(tf.constant([9.0]), tf.constant([1]))), [7, 9]),
    "scatter_nd_update": (lambda v: v.scatter_nd_update([[1]], [3.0]), [7, 3]),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_starts_from_the_owners_value(cache, name):
    edit, expected = EDITS[name]
    variable = make(cache)
    variable.is_stale = True
    edit(variable)
    np.testing.assert_array_equal(variable.numpy(), expected)
    assert (variable.is_dirty, cache.fetched) == (True, 1)


def test_assign_cache_leaves_it_clean(cache):
    variable = make(cache)
    variable.is_stale = variable.is_dirty = True
    variable.assign_cache(tf.constant([5.0, 6.0]))
    assert (variable.is_stale, variable.is_dirty) == (False, False)
    np.testing.assert_array_equal(variable.read_cache(), [5, 6])


def test_read_cache_fetches_nothing(cache):
    variable = make(cache)
    variable.is_stale = True
    np.testing.assert_array_equal(variable.read_cache(), [1, 2])
    assert cache.fetched == 0


# -- in functions -----------------------------------------------------------------------------------------------------


def test_one_trace_finds_the_copy_of_whoever_calls(cache):
    variable, traces = make(cache), []

    @tf.function(autograph=False)
    def double():
        traces.append(1)
        return variable.value() * 2.0

    function = double.get_concrete_function()
    np.testing.assert_array_equal(function(), [2, 4])
    for worker, expected in ((0, [20, 20]), (1, [40, 40]), (0, [20, 20])):
        with standing_on(worker):
            np.testing.assert_array_equal(function(), expected)
    assert len(traces) == 1


def test_a_function_on_a_worker_writes_that_workers_copy_only(cache):
    variable = make(cache)
    function = tf.function(lambda: variable.assign_add([1.0, 2.0]), autograph=False).get_concrete_function()
    with standing_on(1):
        function()
    assert [copy.numpy().tolist() for copy in variable.copies] == [[10, 10], [21, 22]]
    np.testing.assert_array_equal(variable.numpy(), [1, 2])
    assert not variable.is_dirty


def test_a_function_on_the_chief_that_writes_makes_it_dirty(cache):
    variable = make(cache)
    read = tf.function(lambda: variable.value() + 0.0, autograph=False).get_concrete_function()
    write = tf.function(lambda: variable.assign_add([1.0, 1.0]), autograph=False).get_concrete_function()
    read()
    assert not variable.is_dirty
    variable.is_stale = True
    write()
    assert variable.is_dirty
    np.testing.assert_array_equal(variable.numpy(), [8, 8])


def test_knows_which_functions_write_it(cache):
    variable, other = make(cache), make(cache)
    reads = tf.function(lambda: variable.value() + 0.0, autograph=False).get_concrete_function()
    writes = tf.function(lambda: variable.assign_add(other.value()), autograph=False).get_concrete_function()
    assert not variable.is_written_in(reads.graph)
    assert variable.is_written_in(writes.graph)
    assert not other.is_written_in(writes.graph)


def test_a_write_in_a_branch_a_loop_or_a_function_inside_counts(cache):
    for inside in (
        lambda v: tf.cond(tf.constant(True), lambda: v.assign([5.0, 5.0]), lambda: v.value()),
        lambda v: tf.while_loop(lambda i: i < 2, lambda i: (i + tf.size(v.assign([5.0, 5.0])),), [0]),
        lambda v: tf.function(lambda: v.assign([5.0, 5.0]))(),
    ):
        variable = make(cache)
        function = tf.function(lambda v=variable, inside=inside: inside(v), autograph=False).get_concrete_function()
        assert variable.is_written_in(function.graph)
        with standing_on(0):
            function()
        np.testing.assert_array_equal(variable.copies[0], [5, 5])
        np.testing.assert_array_equal(variable.copies[1], [20, 20])


def test_gradients_reach_it_in_functions_branches_and_loops(cache):
    variable = make(cache)

    @tf.function(autograph=False)
    def gradients():
        with tf.GradientTape() as tape:
            inside = tf.cond(tf.constant(True), lambda: tf.reduce_sum(variable * variable), lambda: 0.0)
            loss = inside + tf.reduce_sum(variable)
        return tape.gradient(loss, variable)

    function = gradients.get_concrete_function()
    assert variable.trainable
    np.testing.assert_array_equal(function(), [3, 5])
    with standing_on(1):
        np.testing.assert_array_equal(function(), [41, 41])


def test_reads_after_writes_in_one_function_see_them(cache):
    variable = make(cache)

    @tf.function(autograph=False)
    def twice():
        variable.assign_add([1.0, 1.0])
        variable.assign(variable * 2.0)
        return variable.value()

    with standing_on(0):
        np.testing.assert_array_equal(twice.get_concrete_function()(), [22, 22])


def test_every_variable_has_a_name_of_its_own_in_functions(cache):
    first, second = make(cache, name="same"), make(cache, name="same")
    function = tf.function(lambda: first.value() - second.value(), autograph=False).get_concrete_function()
    second.assign([0.0, 0.0])
    np.testing.assert_array_equal(function(), [1, 2])


# -- vectors and shelves ----------------------------------------------------------------------------------------------


def trace_write(target: Vector | Shelf, spec: tf.TensorSpec):
    def write(value):
        target.write(value)

    return tf.function(write, autograph=False).get_concrete_function(spec)


@pytest.mark.parametrize("dtype", [tf.float32, tf.int32, tf.int8])
def test_a_vector_takes_any_length(dtype):
    vector = Vector(dtype)
    read = tf.function(vector.read, autograph=False).get_concrete_function()
    write = trace_write(vector, tf.TensorSpec([None], dtype))
    assert read().shape == [0]
    for length in (3, 0, 1000):
        value = tf.cast(tf.range(length) % 100, dtype)
        write(value)
        np.testing.assert_array_equal(read(), value)


@pytest.mark.parametrize("kind", ["variable", "vector"])
def test_a_shelf_is_read_and_written_per_worker(kind):
    shelf = Shelf([Vector(tf.float32) if kind == "vector" else tf.Variable(tf.zeros([2])) for _ in range(3)])
    read = tf.function(shelf.read, autograph=False).get_concrete_function()
    write = trace_write(shelf, tf.TensorSpec([2]))
    for worker in range(3):
        with standing_on(worker):
            write(tf.fill([2], float(worker)))
    for worker in range(3):
        with standing_on(worker):
            np.testing.assert_array_equal(read(), [worker, worker])


def test_a_shelf_follows_a_variable_that_was_made_anew():
    shelf = Shelf([tf.Variable([1.0]), tf.Variable([2.0])])
    read = tf.function(shelf.read, autograph=False).get_concrete_function()
    shelf.variables[1] = tf.Variable([9.0])
    with standing_on(1):
        np.testing.assert_array_equal(read(), [9])


def test_an_edit_overwrites_all_or_the_entries_named():
    variable = tf.Variable([1.0, 2.0, 3.0])
    write_handle(variable.handle, Entries(tf.constant([2, 0]), tf.constant([30.0, 10.0])))
    np.testing.assert_array_equal(variable, [10, 2, 30])
    write_handle(variable.handle, Entries(None, tf.constant([4.0, 5.0, 6.0])))
    np.testing.assert_array_equal(variable, [4, 5, 6])
    write_handle(variable.handle, tf.constant([7.0, 8.0, 9.0]))
    np.testing.assert_array_equal(variable, [7, 8, 9])
    write_handle(variable.handle, Entries(tf.zeros([0], tf.int32), tf.zeros([0])))
    np.testing.assert_array_equal(variable, [7, 8, 9])
