"""The records of rounds, and who is told of them."""

from __future__ import annotations

from collections.abc import Callable

from slimdp_tf.distribute.reports import Report, make_record, sum_traffic
from slimdp_tf.distribute.sync import ChiefCache
from slimdp_tf.measure.record import RoundRecord, Traffic

KEPT = 10_000  # records; what is summed over all rounds is `total`


class Ledger:
    """Takes down what every round moved and how long it took.

    Args:
        cache: knows what is shared, and the bytes of the chief.

    Attributes:
        records: one per round, of the last `KEPT` rounds.
        count: how many there have been.
        total: bytes of all of them.
        listeners: called with each.
        uncounted: reports of workers that came too late for their round; their bytes count with the next one.
    """

    def __init__(self, cache: ChiefCache):
        self.cache = cache
        self.records: list[RoundRecord] = []
        self.count, self.total = 0, Traffic(ps_bytes=(0,) * len(cache.servers.devices))
        self.listeners: list[Callable[[RoundRecord], None]] = []
        self.uncounted: list[Report] = []

    def note_late(self, report: Report | None) -> None:
        """Takes the report of a worker that came too late for its round."""
        if report is not None:
            self.uncounted.append(report)

    def add(self, reports: list[Report], started: float, worked: float, **known) -> None:
        """Adds the record of a round that ends now.

        Args:
            reports, started, worked, known: as in `reports.make_record`.
        """
        widths = [len(shared.blocks) for shared in self.cache.shared.values()]
        moved, self.uncounted = [*reports, *self.uncounted], []
        workers, missed = self.cache.workers, known.pop("missed", 0)
        missed, workers.missed = missed + workers.missed, 0
        traffic = sum_traffic(moved, widths, len(self.cache.servers.devices), self.cache.take_chief_bytes())
        self.records.append(make_record(reports, started, worked, traffic=traffic, missed=missed, **known))
        del self.records[:-KEPT]
        self.count, self.total = self.count + 1, self.total + traffic

    def tell(self, known: int) -> None:
        """Tells the listeners of the records after the first `known` that there have been."""
        for record in self.records[len(self.records) - (self.count - known) :]:
            for listener in self.listeners:
                listener(record)
