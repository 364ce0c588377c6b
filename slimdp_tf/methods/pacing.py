"""The two options that every method has: whether workers keep in step, and how far apart they may get if not."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable

from slimdp_tf.method import Method

_OPTIONS = """
    Every method also takes, by name:
        pacing: "sync" (all workers in step) or "async" (every push is merged on arrival, as one of K).
        staleness: with "async", how many rounds a worker may be ahead of the slowest.
    """


def paced(factory: Callable[..., Method]) -> Callable[..., Method]:
    """A method's factory that takes `pacing` and `staleness`, too; what cannot work together is refused."""

    @functools.wraps(factory)
    def make(*arguments, pacing: str = "sync", staleness: int = Method.staleness, **options) -> Method:
        method = factory(*arguments, **options)
        return dataclasses.replace(method, pacing=pacing, staleness=staleness)

    own = [p for p in inspect.signature(make, follow_wrapped=False).parameters.values() if p.kind is p.KEYWORD_ONLY]
    signature = inspect.signature(factory)
    make.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *own])
    make.__doc__ = (factory.__doc__ or "") + _OPTIONS
    return make
