"""The whole recipe of a data-parallel method, as data."""

from __future__ import annotations

import dataclasses

from slimdp_tf.channel import Channel
from slimdp_tf.rules.adoptions import Replace
from slimdp_tf.rules.agreements import Nothing
from slimdp_tf.rules.merges import Average
from slimdp_tf.rules.triggers import Every
from slimdp_tf.types import Adopt, Agreement, Codec, Memory, Merge, Selector, Trigger


@dataclasses.dataclass(frozen=True)
class Method:
    """One rule per question; nothing else in the package knows which method runs.

    Args:
        name: what it is called in tables and on TensorBoard.
        up: worker to server; carries updates.
        down: server to worker.
        merge: how the server folds the updates.
        adopt: what a worker makes of the pulled values.
        trigger: when a worker exchanges.
        agreement: what both ends hold and do not send again.
        pacing: "sync": a round is merged when every live worker has pushed; "async": every push by itself, on arrival.
        staleness: with "async", how many rounds a worker may be ahead of the slowest live one, at least 0.
        spare: with "sync", so many workers a round is not waited for; at least one is.
    """

    name: str
    up: Channel = Channel()
    down: Channel = Channel(carries="weights")
    merge: Merge = Average()
    adopt: Adopt = Replace()
    trigger: Trigger = Every(1)
    agreement: Agreement = Nothing()
    pacing: str = "sync"
    staleness: int = 4
    spare: int = 0

    def __post_init__(self):
        expected = {"merge": Merge, "adopt": Adopt, "trigger": Trigger, "agreement": Agreement}
        for field, protocol in expected.items():
            _check_kind(field, getattr(self, field), protocol)
        for field, channel in (("up", self.up), ("down", self.down)):
            if not isinstance(channel, Channel):
                raise TypeError(f"{field} must be a Channel, as in slimdp_tf.channel. Received: {channel!r}")
            _check_kind("codec", channel.codec, Codec)
            _check_kind("memory", channel.memory, Memory)
            for selector in channel.selectors:
                _check_kind("selector", selector, Selector)
        if self.up.carries != "update":
            raise ValueError(f"The up channel carries 'update'. Received: {self.up.carries!r}")
        if self.down.memory.returns:
            raise ValueError(
                "The down channel's memory must leave the server's block as it is, such as Carry(). "
                f"Received: {self.down.memory}"
            )
        self._check_pacing()

    def _check_pacing(self) -> None:
        if self.pacing not in ("sync", "async"):
            raise ValueError(f"pacing must be 'sync' or 'async'. Received: {self.pacing!r}")
        if isinstance(self.staleness, bool) or not isinstance(self.staleness, int) or self.staleness < 0:
            raise ValueError(f"staleness, in rounds, must be an integer of at least 0. Received: {self.staleness!r}")
        if isinstance(self.spare, bool) or not isinstance(self.spare, int) or self.spare < 0:
            raise ValueError(f"spare, in workers, must be an integer of at least 0. Received: {self.spare!r}")
        if self.spare and self.pacing != "sync":
            raise ValueError(
                f"pacing must be 'sync' for {self.name}: it has rounds that spare={self.spare} workers may miss. "
                "Received: 'async'"
            )
        if hasattr(self.trigger, "is_due") and self.pacing != "async":
            raise ValueError(
                f"pacing must be 'async' for {self.name}: by {type(self.trigger).__name__} each worker sees for itself "
                f"when to push. Received: {self.pacing!r}"
            )
        for rule in (*layers_of(self.merge), self.adopt, self.trigger, self.agreement, self.up.memory):
            if self.pacing == "async" and hasattr(rule, "needs_all"):
                raise ValueError(
                    f"pacing must be 'sync' for {self.name}: {type(rule).__name__} {rule.needs_all}, and with 'async' "
                    "every push is merged by itself. Received: 'async'"
                )

    @property
    def p(self) -> int:
        """Local mini-batches of the first round, and of every other unless the trigger plans otherwise."""
        return self.trigger.period

    @property
    def shares_answer(self) -> bool:
        """Whether one answer is for all workers: they are in step, and none is told of its own entries."""
        return self.pacing == "sync" and self.down.is_shared

    def refreshes(self, round_number: int) -> bool:
        """Whether the agreement is made anew after this round: after round 0, and when (t + 1) % q == 0."""
        period = self.agreement.period
        return period > 0 and (round_number == 0 or (round_number + 1) % period == 0)

    def pushes_whole(self, round_number: int) -> bool:
        """Whether every entry is pushed in this round."""
        return self.agreement.whole and self.refreshes(round_number)

    def pulls_whole(self, round_number: int) -> bool:
        """Whether every entry is pulled after this round: in step, round 0 of a method that has no agreement yet."""
        return self.pacing == "sync" and self.agreement.whole and self.agreement.period > 0 and round_number == 0


def layers_of(merge: Merge) -> list[Merge]:
    """A rule that folds, after those that are wrapped around it."""
    layers = [merge]
    while hasattr(layers[-1], "fold"):
        layers.append(layers[-1].fold)
    return layers


def _check_kind(field: str, rule: object, protocol: type) -> None:
    if isinstance(rule, type) or not isinstance(rule, protocol):
        raise TypeError(f"{field} must be a {protocol.__name__}, as in slimdp_tf.types. Received: {rule!r}")
