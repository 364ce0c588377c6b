"""What was made outside the scope is refused in words."""

import types

import keras
import pytest
import tensorflow as tf

from slimdp_tf.training.scope_checks import check_is_not_half_ours, own_variables
from tests.distribute.one_process import make_variable


def test_variables_of_the_strategy_are_found_once_each():
    inner = make_variable(1.0)
    outer = types.SimpleNamespace(value=inner, path="layer/kernel")
    assert own_variables([outer, outer]) == [inner]


def test_a_variable_from_outside_is_named():
    with pytest.raises(ValueError, match="Variable '.*mine' was not made under strategy.scope"):
        own_variables([keras.Variable(1.0, name="mine")])


def test_a_model_without_a_strategy_is_nobodys_business():
    check_is_not_half_ours(None)
    check_is_not_half_ours(tf.distribute.get_strategy())
