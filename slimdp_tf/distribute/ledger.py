"""The records of rounds, and who is told of them."""

from __future__ import annotations

from collections.abc import Callable

from slimdp_tf.distribute.reports import Report, make_record, sum_traffic
from slimdp_tf.distribute.sync import ChiefCache
from slimdp_tf.measure.record import RoundRecord


class Ledger:
    """Takes down what every round moved and how long it took.

    Args:
        cache: knows what is shared, and the bytes of the chief.

    Attributes:
        records: one per round.
        listeners: called with each.
        uncounted: reports of workers that came too late for their round; their bytes count with the next one.
    """

    def __init__(self, cache: ChiefCache):
        self.cache = cache
        self.records: list[RoundRecord] = []
        self.listeners: list[Callable[[RoundRecord], None]] = []
        self.uncounted: list[Report] = []

    def add(self, reports: list[Report], started: float, worked: float, **known) -> None:
        """Adds the record of a round that ends now.

        Args:
            reports, started, worked, known: as in `reports.make_record`.
        """
        widths = [len(shared.blocks) for shared in self.cache.shared.values()]
        moved, self.uncounted = [*reports, *self.uncounted], []
        traffic = sum_traffic(moved, widths, len(self.cache.servers.devices), self.cache.take_chief_bytes())
        self.records.append(make_record(reports, started, worked, traffic=traffic, **known))

    def tell(self, known: int) -> None:
        """Tells the listeners of the records after the first `known`."""
        for record in self.records[known:]:
            for listener in self.listeners:
                listener(record)
