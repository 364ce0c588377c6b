"""Which kind of rounds a method runs in."""

from __future__ import annotations

from slimdp_tf.distribute.arrivals import Arrivals
from slimdp_tf.distribute.overlapped import Overlapped
from slimdp_tf.distribute.quorum import Quorum
from slimdp_tf.distribute.rounds import Rounds
from slimdp_tf.method import Method


def rounds_for(method: Method, overlap: bool) -> type[Rounds]:
    """The class of a method's rounds.

    Raises:
        ValueError: `overlap` with a method whose workers do not all keep in step.
    """
    if overlap and (method.pacing != "sync" or method.spare):
        raise ValueError(
            "overlap=True needs a method whose workers all keep in step: pacing='sync', and none that are not waited "
            f"for. Received: {method.name} with pacing={method.pacing!r}, spare={method.spare}"
        )
    if method.pacing == "async":
        return Arrivals
    return Quorum if method.spare else Overlapped if overlap else Rounds
