"""One factory per method, with the papers' own symbols as parameters; every parameter has a default."""

from __future__ import annotations

import inspect
import sys

from slimdp_tf.methods.adaptive import adaptive_period, event_triggered, loss_weighted
from slimdp_tf.methods.averaging import bmuf, diloco, eamsgd, easgd, fed_avg, local_sgd, post_local_sgd
from slimdp_tf.methods.dropping import (
    dgc,
    local_combine,
    predictive,
    random_k,
    relevance,
    sampled_rows,
    threshold,
    top_k,
)
from slimdp_tf.methods.plump import plump
from slimdp_tf.methods.quant import quant
from slimdp_tf.methods.quantising import adaptive_quant, distribution_quant, half, one_bit, terngrad
from slimdp_tf.methods.quorums import backup_workers, k_sync
from slimdp_tf.methods.slim import rounds, slim, slim_quant

_FACTORIES = (
    plump,
    quant,
    slim,
    slim_quant,
    half,
    one_bit,
    terngrad,
    adaptive_quant,
    distribution_quant,
    top_k,
    local_combine,
    random_k,
    dgc,
    threshold,
    relevance,
    predictive,
    sampled_rows,
    local_sgd,
    post_local_sgd,
    adaptive_period,
    fed_avg,
    easgd,
    eamsgd,
    bmuf,
    diloco,
    loss_weighted,
    event_triggered,
    backup_workers,
    k_sync,
)

__all__ = ["names", "options", "rounds", *(factory.__name__ for factory in _FACTORIES)]


def names() -> list[str]:
    """Names of all methods, in the order in which tables list them."""
    return [factory.__name__ for factory in _FACTORIES]


def options(name: str) -> dict[str, object]:
    """The parameters of a method's factory and their defaults.

    Raises:
        ValueError: `name` is no method.
    """
    if name not in names():
        raise ValueError(f"No such method. Known methods: {', '.join(names())}. Received: {name!r}")
    factory = getattr(sys.modules[__name__], name)
    return {parameter.name: parameter.default for parameter in inspect.signature(factory).parameters.values()}
