"""Plump-DP: everything is pushed and pulled (Slim-DP, section 2.1; p = 1 is synchronous SGD, p > 1 local SGD)."""

from __future__ import annotations

from slimdp_tf.method import Method
from slimdp_tf.methods.pacing import paced
from slimdp_tf.rules.triggers import Every


@paced
def plump(p: int = 1) -> Method:
    """Plump-DP.

    Args:
        p: mini-batches per round.
    """
    return Method("plump", trigger=Every(p))
