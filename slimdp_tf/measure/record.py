"""What one round of training moved and how long it took, as plain numbers.

The strategy makes one `RoundRecord` per round from what really crossed the wire; everything that shows traffic or
time (tables, plots, TensorBoard) is fed from these records and from nothing else.
"""

from __future__ import annotations

import dataclasses

_MB = 1e6


@dataclasses.dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of tensors that crossed the network; sums over all workers.

    Attributes:
        push_bytes: values of updates, worker to PS (keys not included).
        pull_bytes: values of weights, PS to worker (keys not included).
        keys_bytes: keys in either direction: explorer keys, core lists, signatures.
        chief_bytes: weights and other variables moved to or from the chief (reading, saving, setting weights).
        ps_bytes: for each PS, the sum of all of these that it sent or received.
    """

    push_bytes: int = 0
    pull_bytes: int = 0
    keys_bytes: int = 0
    chief_bytes: int = 0
    ps_bytes: tuple[int, ...] = ()

    def __add__(self, other: Traffic) -> Traffic:
        width = max(len(self.ps_bytes), len(other.ps_bytes))
        padded = [tuple(t.ps_bytes) + (0,) * (width - len(t.ps_bytes)) for t in (self, other)]
        return Traffic(
            self.push_bytes + other.push_bytes,
            self.pull_bytes + other.pull_bytes,
            self.keys_bytes + other.keys_bytes,
            self.chief_bytes + other.chief_bytes,
            tuple(a + b for a, b in zip(*padded)),
        )

    @property
    def exchange_bytes(self) -> int:
        """Push, pull and keys together: what the training itself moved."""
        return self.push_bytes + self.pull_bytes + self.keys_bytes

    @property
    def push_mb(self) -> float:
        return self.push_bytes / _MB

    @property
    def pull_mb(self) -> float:
        return self.pull_bytes / _MB

    @property
    def keys_mb(self) -> float:
        return self.keys_bytes / _MB

    @property
    def exchange_mb(self) -> float:
        return self.exchange_bytes / _MB


@dataclasses.dataclass(frozen=True, slots=True)
class RoundRecord:
    """One round: p local steps on every live worker and one exchange.

    Attributes:
        round: number of the round, counted from 0 over the life of the model.
        steps: mini-batches per worker done so far, this round included.
        steps_in_round: mini-batches per worker in this round.
        workers: how many workers took part; where they are not in step, how many rounds of workers these are.
        round_s: seconds from the round's start to the end of its merge, on the chief.
        compute_s: seconds of local training, mean over workers.
        exchange_s: seconds of packing, pushing, pulling and adopting (mean over workers), and of the merge.
        wait_s: seconds in which the average worker had nothing to do (waiting for others and for the chief).
        traffic: bytes of this round.
        core_entries: size of the core, in entries, over all PS.
        explorer_entries: entries explored per worker in this round, mean over workers.
        cache_hits: signatures that matched (one per worker and block), so that no keys were sent.
        cache_misses: signatures that did not match and were answered by a full key list.
        cache_mismatches: those of them that no older core explains: a key cache that went bad.
        refused: updates the server refused (not finite, or with lengths, keys or a signature that cannot be).
        staleness_mean, staleness_max: merges of others between a worker's pull and its merge, over this round's merges.
        late: pushes merged in this round of workers that had been given up.
        missed: workers that this round was merged without, because they were late; their pushes are dropped.
        loss: training loss as Keras shows it, nan where unknown.
    """

    round: int
    steps: int
    steps_in_round: int
    workers: int
    round_s: float
    compute_s: float
    exchange_s: float
    wait_s: float
    traffic: Traffic
    core_entries: int = 0
    explorer_entries: float = 0.0
    cache_hits: int = 0
    cache_misses: int = 0
    cache_mismatches: int = 0
    refused: int = 0
    staleness_mean: float = 0.0
    staleness_max: int = 0
    late: int = 0
    missed: int = 0
    loss: float = float("nan")
