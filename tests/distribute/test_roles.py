"""Who owns a variable's value."""

import pytest
import tensorflow as tf

from slimdp_tf.distribute.roles import Role, role_of
from tests.distribute.one_process import make_variable

SUM, FIRST = tf.VariableAggregation.SUM, tf.VariableAggregation.ONLY_FIRST_REPLICA


def graph_writing(*variables):
    return tf.function(lambda: [v.assign(v.value()) for v in variables], autograph=False).get_concrete_function().graph


ROLES = [  # (role, how the variable is made, is_weight, is_private, is written)
    (Role.WEIGHT, {}, True, False, True),
    (Role.WEIGHT, {}, True, False, False),
    (Role.FIXED, {"trainable": False}, False, False, False),
    (Role.FIXED, {"aggregation": SUM}, False, False, False),
    (Role.SUM, {"aggregation": SUM}, False, False, True),
    (Role.FIRST, {"aggregation": FIRST}, False, False, True),
    (Role.AVERAGE, {"trainable": False}, False, False, True),
    (Role.OWN, {"trainable": False, "is_slot": True}, False, False, True),
    (Role.OWN, {"trainable": False}, False, True, True),
]


@pytest.mark.parametrize(("role", "made", "is_weight", "is_private", "is_written"), ROLES)
def test_roles(role, made, is_weight, is_private, is_written):
    variable, other = make_variable(1.0, **made), make_variable(1.0)
    graph = graph_writing(variable, other) if is_written else graph_writing(other)
    assert role_of(variable, graph, is_weight, is_private) is role


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64, tf.uint32, tf.bool])
def test_what_is_no_float_belongs_to_the_worker(dtype):
    variable = make_variable(tf.zeros([2], dtype), trainable=False)
    assert role_of(variable, graph_writing(variable), False, False) is Role.OWN
