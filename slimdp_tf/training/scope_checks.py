"""Refuses, in words, what was made outside `strategy.scope()` and would not train where it seems to."""

from __future__ import annotations

import tensorflow as tf

from slimdp_tf.distribute.local_variable import LocalVariable
from slimdp_tf.distribute.strategy import SlimDPStrategy


def own_variables(variables) -> list[LocalVariable]:
    """The variables behind Keras's, once each.

    Raises:
        ValueError: one was not made under the strategy's scope.
    """
    found = {}
    for variable in variables:
        if not isinstance(variable.value, LocalVariable):
            raise ValueError(
                f"Variable {variable.path!r} was not made under strategy.scope(). Build the model, its metrics and its "
                "optimizer inside `with strategy.scope():`."
            )
        found[id(variable.value)] = variable.value
    return list(found.values())


def check_is_not_half_ours(ours: object) -> None:
    """Refuses a model that would train as if there were no cluster although a SlimDPStrategy is in use.

    Args:
        ours: the strategy under which its optimizer was made; None where there is none.
    """
    if isinstance(ours, SlimDPStrategy) or isinstance(tf.distribute.get_strategy(), SlimDPStrategy):
        raise ValueError(
            "The model was built outside strategy.scope() but is used with a SlimDPStrategy: it would train on the "
            "chief alone. Build and compile it inside `with strategy.scope():`."
        )
