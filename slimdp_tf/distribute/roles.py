"""Who owns a variable's value.

| role | which variables | the global value | after an assignment on the chief |
|---|---|---|---|
| WEIGHT | trainable | the servers' block | the block is set, every worker pulls everything |
| AVERAGE | floats of the model that training writes (BatchNorm's averages) | the servers' mean | the same |
| SUM | metrics (aggregation SUM) | sum over workers | the first worker gets it, the others zero |
| FIRST | aggregation ONLY_FIRST_REPLICA, written (`iterations`) | the first live worker's | every worker gets it |
| OWN | optimizer slots, random states, all else that training writes | floats: mean, others: the first's | the same * |
| FIXED | never written by training (learning rate, frozen weights) | the chief's | every worker gets it |

* every worker gets it; random states are shifted by the worker's number.
"""

from __future__ import annotations

import enum

import tensorflow as tf

from slimdp_tf.distribute.local_variable import LocalVariable

Role = enum.Enum("Role", "WEIGHT AVERAGE SUM FIRST OWN FIXED")


def role_of(variable: LocalVariable, graph, is_weight: bool, is_private: bool) -> Role:
    """The role of a variable in a training function.

    Args:
        variable: any variable made under the strategy's scope.
        graph: the graph of the training function.
        is_weight: whether it is one of the weights that are trained.
        is_private: whether it is known to belong to a worker alone (an optimizer's variable).
    """
    if is_weight:
        return Role.WEIGHT
    if not variable.is_written_in(graph):
        return Role.FIXED
    if variable.aggregation == tf.VariableAggregation.SUM:
        return Role.SUM
    if variable.aggregation == tf.VariableAggregation.ONLY_FIRST_REPLICA:
        return Role.FIRST
    if variable.is_slot or is_private or not variable.dtype.is_floating:
        return Role.OWN
    return Role.AVERAGE
