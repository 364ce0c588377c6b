"""What TensorFlow asks of a strategy's inside: variables are local, a replica is a worker, nothing is reduced here."""

import gc

import numpy as np
import pytest
import tensorflow as tf

from slimdp_tf.distribute.local_variable import LocalVariable
from tests.cluster import strategy as make_strategy

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def strategy():
    return make_strategy(workers=2, ps=1)


@pytest.fixture(scope="module")
def variable(strategy):
    with strategy.scope():
        return tf.Variable([1.0, 2.0], name="weights")


def test_variables_under_the_scope_are_local(variable):
    assert isinstance(variable, LocalVariable)
    assert isinstance(variable, tf.Variable)
    np.testing.assert_array_equal(variable, [1, 2])
    assert (variable.trainable, variable.dtype, variable.shape.as_list()) == (True, tf.float32, [2])
    assert not isinstance(tf.Variable(1.0), LocalVariable)


def test_variables_keep_what_they_were_made_with(strategy):
    with strategy.scope():
        made = tf.Variable(
            lambda: tf.constant(3, tf.int64),
            trainable=False,
            name="count",
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            synchronization=tf.VariableSynchronization.ON_READ,
        )
    assert (made.numpy(), made.trainable, made.dtype) == (3, False, tf.int64)
    assert made.name.startswith("count")
    assert made.aggregation == tf.VariableAggregation.ONLY_FIRST_REPLICA


def test_the_strategy_knows_its_variables(strategy, variable):
    assert strategy.extended.variable_created_in_scope(variable)


def test_a_variable_colocated_with_another_is_a_slot(strategy, variable):
    with strategy.scope():
        with strategy.extended.colocate_vars_with(variable):
            slot = tf.Variable(tf.zeros([2]))
        after = tf.Variable(tf.zeros([2]))
    assert (slot.is_slot, after.is_slot, variable.is_slot) == (True, False, False)


def test_a_variable_made_by_a_function_is_made_once_outside(strategy):
    made = []

    @tf.function(autograph=False)
    def first_use():
        if not made:
            made.append(tf.Variable(4.0))
        return made[0].value()

    with strategy.scope():
        assert first_use().numpy() == 4.0
    assert isinstance(made[0], LocalVariable)


def test_one_replica_per_worker_so_losses_are_not_scaled_down(strategy):
    assert strategy.num_replicas_in_sync == 1
    seen = []
    with strategy.scope():
        strategy.extended.call_for_each_replica(
            lambda x: seen.append((x, tf.distribute.get_replica_context().num_replicas_in_sync)), (7,)
        )
    assert seen == [(7, 1)]


def test_nothing_is_reduced_within_a_replica(strategy):
    def step():
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(3.0))

    with strategy.scope():
        assert strategy.extended.call_for_each_replica(step, ()).numpy() == 3.0


def test_updates_run_as_they_are(strategy, variable):
    with strategy.scope():
        strategy.extended.update(variable, lambda v, x: v.assign_add(x), args=([1.0, 1.0],))
    np.testing.assert_array_equal(variable, [2, 3])
    variable.assign([1.0, 2.0])


def test_local_results_are_those_of_every_worker(strategy):
    assert strategy.experimental_local_results(5) == (5,)


def test_finds_the_variables_of_a_function(strategy, variable):
    with strategy.scope():
        other, unused = tf.Variable(1.0), tf.Variable(1.0)
    graph = tf.function(lambda: variable.value() + other.value()).get_concrete_function().graph
    used = strategy.extended.used_in([graph])
    assert [v is variable or v is other for v in used] == [True, True]
    assert all(v is not unused for v in used)


def test_refuses_a_function_with_variables_from_elsewhere(strategy, variable):
    stranger = tf.Variable(1.0, name="stranger")
    graph = tf.function(lambda: variable.value() + stranger).get_concrete_function().graph
    with pytest.raises(ValueError, match="not made under strategy.scope.*stranger"):
        strategy.extended.used_in([graph])


def test_holds_no_variable_that_nobody_else_holds(strategy):
    def pass_by() -> int:
        with strategy.scope():
            passing = tf.Variable(1.0)
        graph = tf.function(lambda: passing.value()).get_concrete_function().graph
        assert len(strategy.extended.used_in([graph])) == 1
        return len(strategy.extended._variables)

    while_it_lived = pass_by()
    gc.collect()
    assert len(strategy.extended._variables) < while_it_lived
