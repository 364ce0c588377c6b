"""How long a round will take, and what holds it up.

    round = compute of p steps + push + pull + exchange + chief
    push, pull = the larger of (bytes of a worker / rate, K x bytes of a worker / (ps x rate)) / efficiency

A synchronous round does these one after another. Where all tasks share one machine its cores serve one worker while the
links serve another, and only a worker's own share of the shorter part is not hidden behind the longer one: with work =
compute + exchange, round = max(work, push + pull) + min(work, push + pull) / K + chief.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from slimdp_tf.planning.load import Load

# Of the bits of a link, what is left for tensors after the headers of Ethernet, IP and TCP: 1448 of 1538 bytes.
EFFICIENCY = 1448 / 1538
_LOWEST, _HIGHEST = 1e6, 1e12  # bit/s, between which break-evens are looked for
_EQUAL = 1.0 + 1e-9


@dataclasses.dataclass(frozen=True)
class Site:
    """Where the training runs.

    Attributes:
        workers: K.
        ps: number of servers.
        step_s: seconds of one mini-batch on a worker.
        rate: bit/s of every host's link, in each direction; inf for none that limits.
        chief_s: seconds the chief needs per worker and round.
        is_one_machine: whether all tasks share the cores of one machine.
    """

    workers: int
    ps: int
    step_s: float
    rate: float
    chief_s: float = 0.0
    is_one_machine: bool = False

    def __post_init__(self):
        for name in ("workers", "ps"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be an integer of at least 1. Received: {value!r}")
        if not (self.rate >= 1e6):
            raise ValueError(f"rate must be at least 1 Mbit/s (1e6 bit/s). Received: {self.rate:g}")
        for name in ("step_s", "chief_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be at least 0 seconds. Received: {getattr(self, name)!r}")


@dataclasses.dataclass(frozen=True)
class Forecast:
    """One round.

    Attributes:
        p: steps in it.
        worker_bytes: through the link of a worker, both directions together.
        ps_bytes: through the link of a server.
        compute_s: p steps.
        worker_link_s, ps_link_s: what the links need for their bytes; the larger counts.
        exchange_s: packing, folding, adopting and calls: what an exchange takes where no link limits it.
        chief_s: the chief's own time.
        hidden: the share of the shorter of work and links that goes on behind the longer one, 0..1.
    """

    p: int
    worker_bytes: float
    ps_bytes: float
    compute_s: float
    worker_link_s: float
    ps_link_s: float
    exchange_s: float
    chief_s: float
    hidden: float = 0.0

    @property
    def link_s(self) -> float:
        """Seconds in which the slower kind of link is at work."""
        return max(self.worker_link_s, self.ps_link_s)

    @property
    def round_s(self) -> float:
        """Seconds of the round."""
        work_s = self.compute_s + self.exchange_s
        return work_s + self.link_s - self.hidden * min(work_s, self.link_s) + self.chief_s

    @property
    def step_s(self) -> float:
        """Seconds per step."""
        return self.round_s / self.p

    @property
    def bound(self) -> str:
        """What takes most of the round."""
        parts = {"compute": self.compute_s, "worker link": self.worker_link_s, "ps link": self.ps_link_s}
        parts |= {"exchange": self.exchange_s, "chief": self.chief_s}
        return max(parts, key=parts.get)


def forecast(load: Load, p: int, site: Site, exchange_s: float) -> Forecast:
    """The round of a method.

    Args:
        load: what one worker moves.
        p: steps in a round.
        site: where it runs.
        exchange_s: what the exchange takes where no link limits it.
    """
    crowd = site.workers / site.ps
    seconds = 8 * load.bytes / site.rate / EFFICIENCY
    return Forecast(
        p=p,
        worker_bytes=load.bytes,
        ps_bytes=crowd * load.bytes,
        compute_s=p * site.step_s,
        worker_link_s=seconds,
        ps_link_s=crowd * seconds,
        exchange_s=exchange_s,
        chief_s=site.workers * site.chief_s,
        hidden=1.0 - 1.0 / site.workers if site.is_one_machine else 0.0,
    )


def find_break_even(gain_at: Callable[[float], float]) -> float:
    """The rate in bit/s above which a method is no faster than a dense one, to a thousandth.

    Args:
        gain_at: rate -> how many times as fast it is; the slower the link, the more.

    Returns:
        inf where it is faster at 1 Tbit/s, too, 0 where it is at 1 Mbit/s not.
    """
    low, high = _LOWEST, _HIGHEST
    if gain_at(high) > _EQUAL:
        return math.inf
    if gain_at(low) <= _EQUAL:
        return 0.0
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if gain_at(middle) > _EQUAL else (low, middle)
    return low


def advise(label: str, method: Forecast, dense: Forecast, rate: float, limit: float) -> str:
    """What to do, in one sentence.

    Args:
        label: of the method.
        method, dense: the rounds at `rate`.
        rate: bit/s.
        limit: their break-even.
    """
    gain = dense.step_s / method.step_s
    if limit == 0.0:
        return f"{label}: no gain at any rate: train dense."
    if rate >= limit:
        return f"{label}: no gain above {format_rate(limit)}: train dense."
    until = "at any rate" if math.isinf(limit) else f"up to {format_rate(limit)}"
    if gain < 1.1:
        return f"{label}: {gain:.2f} x as fast, hardly worth it: {method.bound} holds it up (gains {until})."
    return f"{label}: {gain:.1f} x as fast as dense; gains {until}; {method.bound} holds it up."


def format_rate(rate: float) -> str:
    """2.1e9 -> 2.1 Gbit/s."""
    if math.isinf(rate):
        return "no limit"
    return f"{rate / 1e9:.3g} Gbit/s" if rate >= 1e9 else f"{rate / 1e6:.3g} Mbit/s"
