"""One factory per method, with the papers' own symbols as parameters; every parameter has a default."""

from __future__ import annotations

import inspect
import sys

from slimdp_tf.methods.plump import plump
from slimdp_tf.methods.quant import quant
from slimdp_tf.methods.slim import rounds, slim, slim_quant

__all__ = ["names", "plump", "quant", "rounds", "slim", "slim_quant"]

_FACTORIES = ("plump", "quant", "slim", "slim_quant")


def names() -> list[str]:
    """Names of all methods, in the order in which tables list them."""
    return list(_FACTORIES)


def options(name: str) -> dict[str, object]:
    """The parameters of a method's factory and their defaults.

    Raises:
        ValueError: `name` is no method.
    """
    if name not in _FACTORIES:
        raise ValueError(f"No such method. Known methods: {', '.join(_FACTORIES)}. Received: {name!r}")
    factory = getattr(sys.modules[__name__], name)
    return {parameter.name: parameter.default for parameter in inspect.signature(factory).parameters.values()}
