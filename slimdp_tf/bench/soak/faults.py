"""Which faults a soak tries, one after another, drawn from its seed."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Sequence

KINDS = ("kill", "stop", "cut")
_PAUSE_S = (5.0, 20.0)  # of training before a fault
_AWAY_S = {"kill": (1.0, 4.0), "stop": (2.0, 15.0), "cut": (2.0, 15.0)}


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault that is to be tried.

    Attributes:
        kind: "kill" (SIGKILL, and started anew), "stop" (SIGSTOP, and continued) or "cut" (the link, and mended).
        task: whom it is done to, as "worker1".
        pause_s: seconds of training before it.
        away_s: seconds until the task is started anew, continued, or reached again.
    """

    kind: str
    task: str
    pause_s: float
    away_s: float


def draw(seed: int, kinds: Sequence[str], tasks: Sequence[str], mortal: Sequence[str]) -> Iterator[Fault]:
    """Yields faults without end, the same ones for the same arguments.

    Args:
        seed: of the draws.
        kinds: some of `KINDS`.
        tasks: who may be stopped or cut off.
        mortal: who may be killed, too.
    """
    drawn = random.Random(seed)
    while True:
        kind = drawn.choice(list(kinds))
        task = drawn.choice(list(mortal if kind == "kill" else tasks))
        yield Fault(kind, task, drawn.uniform(*_PAUSE_S), drawn.uniform(*_AWAY_S[kind]))


def check_kinds(kinds: Sequence[str]) -> list[str]:
    """Returns the kinds, each once.

    Raises:
        ValueError: there is none, or one is not known.
    """
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown or not kinds:
        raise ValueError(
            f"faults must be some of {', '.join(KINDS)}, with commas between. Received: {','.join(kinds)!r}."
        )
    return [kind for kind in KINDS if kind in kinds]
