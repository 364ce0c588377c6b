"""Rates of links as people write them: 100mbit, 1gbit, unshaped."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

UNSHAPED = "unshaped"
_UNITS = {"kbit": 1e-3, "mbit": 1.0, "gbit": 1e3}  # in Mbit/s
_LOWEST_MBIT = 1.0
_HIGHEST_MBIT = 400e3
_FORM = f"{UNSHAPED}, or a number with mbit or gbit from 1mbit to 400gbit, as 100mbit or 2.5gbit"


@dataclasses.dataclass(frozen=True)
class Rate:
    """The rate of every link, in either direction.

    Attributes:
        name: as it was written.
        mbit_s: 1e6 bits per second, None for a link that is not shaped.
    """

    name: str
    mbit_s: float | None

    @property
    def burst_bytes(self) -> int:
        """What a shaped link lets through at once: 5 ms of its rate up to 64 KiB, at least 4 KiB and 0.5 ms."""
        bytes_per_s = (self.mbit_s or 0.0) * 1e6 / 8
        return int(max(4096, 0.5e-3 * bytes_per_s, min(65536, 5e-3 * bytes_per_s)))


def read_rate(text: str) -> Rate:
    """Returns the rate that `text` says.

    Raises:
        ValueError: it is none, or one that cannot be shaped.
    """
    text = text.strip().lower()
    if text == UNSHAPED:
        return Rate(text, None)
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*([kmg]bit)", text)
    mbit_s = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if not _LOWEST_MBIT <= mbit_s <= _HIGHEST_MBIT:
        raise ValueError(f"A rate must be {_FORM}. Received: {text!r}.")
    return Rate(text, mbit_s)


def read_rates(texts: Sequence[str]) -> list[Rate]:
    """Returns the rates of a list; each may stand in it once.

    Raises:
        ValueError: there is none, one is wrong, or one is there twice.
    """
    rates = [read_rate(text) for text in texts if text.strip()]
    if not rates:
        raise ValueError(f"At least one rate is needed: {_FORM}. Received: none.")
    known = [rate.mbit_s for rate in rates]
    twice = [rate.name for i, rate in enumerate(rates) if rate.mbit_s in known[:i]]
    if twice:
        raise ValueError(f"Each rate may be given once. Received twice: {twice[0]}.")
    return rates
