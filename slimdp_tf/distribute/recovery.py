"""How a run goes on inside `fit` after a server was lost, or after updates that were not finite."""

from __future__ import annotations

import time
from collections.abc import Callable

import tensorflow as tf

from slimdp_tf.distribute.calls import GONE, ClusterError
from slimdp_tf.distribute.probes import BUSY_S
from slimdp_tf.distribute.refusals import NonFiniteUpdateError
from slimdp_tf.distribute.servers import ServerLost

_ATTEMPTS = 3  # to get past the same snapshot


class Recovery:
    """Goes back to the last snapshot of some rounds.

    Data and epochs go on from where they are: what is lost are the updates since the snapshot.

    Args:
        rounds: the rounds; their `snapshots` are the `Keeper` to ask.

    Attributes:
        count: how often it went back.
        lost: rounds whose updates were lost by it.
    """

    def __init__(self, rounds):
        self.rounds, self.count, self.lost = rounds, 0, 0
        self._last_round, self._attempts, self._is_watching = -1, 0, False

    def watch(self, work: Callable[[], object], is_repeated: bool = True) -> object:
        """Does `work`, in which servers may be lost: then everything is restored, and it is done anew.

        What is done inside other work is done anew with it.

        Args:
            work: what to do.
            is_repeated: whether it is still to be done after a loss.

        Raises:
            ClusterError: as `after_loss`.
        """
        if self._is_watching:
            return work()
        self._is_watching = True
        try:
            while True:
                try:
                    return work()
                except ServerLost as error:
                    self.after_loss(error)
                if not is_repeated:
                    return None
        finally:
            self._is_watching = False

    def after_loss(self, error: ServerLost) -> None:
        """Waits until the servers answer again, and restores all of them; anew if one is lost meanwhile.

        Raises:
            ClusterError: there is no snapshot, or a server stayed away; the message says how to resume.
        """
        keeper = self.rounds.snapshots
        if keeper is None or (snapshot := keeper.last()) is None:
            how = "slimdp_tf.Snapshots(directory) among fit's callbacks, or strategy.checkpoint(directory), takes them"
            raise ClusterError(f"{error} What it held is lost, as there is no snapshot: {how}.") from error
        while error := self._try_to_restore(snapshot, error):
            pass

    def _try_to_restore(self, snapshot, error: ServerLost) -> ServerLost | None:
        """Restores what `error` lost; returns the error by which a server was lost meanwhile, if one was."""
        rounds, number = self.rounds, snapshot.about["round"]
        if self._count_attempt(number) > _ATTEMPTS:
            raise ClusterError(
                f"{error} Going back to the snapshot of round {number} did not help {_ATTEMPTS} times. "
                + self._tell_how_to_resume(snapshot)
            ) from error
        tf.get_logger().warning("%s Waiting up to %g s for it.", error, rounds.servers.deadline_s)
        rounds.abandon()
        try:
            rounds.servers.await_return(rounds.workers.devices, error.since)
            for variable in rounds.cache.variables:
                variable.is_stale = False  # what the chief did not fetch is lost
            rounds.binding.let_go()
            self._free_workers()
            rounds.binding.renew()
            rounds.workers.furnish_again()  # passes over the data begin where the round that failed began
            self._go_back(snapshot, "Every server answers again")
        except ServerLost as again:
            return again
        except GONE as gone:
            return rounds.servers.explain(gone, f"while round {number} was restored")
        except ClusterError as away:
            raise ClusterError(f"{error} {away} {self._tell_how_to_resume(snapshot)}") from error
        return None

    def _free_workers(self) -> None:
        """Workers that do not end what they were asked for are lost, and taken again when they answer, which is soon.

        A call may wait for good for what a server held that was lost between two of its messages.
        """
        workers = self.rounds.workers
        calls, give_up = {w: workers.submit(lambda worker: None, w) for w in workers.live}, time.monotonic() + BUSY_S
        busy = {worker for worker, call in calls.items() if not call.ends_within(give_up - time.monotonic())}
        for worker in busy:
            workers.lose(worker, TimeoutError("it waits for what a server held that was lost"))
        give_up = time.monotonic() + BUSY_S
        while busy and time.monotonic() < give_up:
            time.sleep(0.1)
            busy -= set(workers.take_returned())

    def after_refusal(self) -> None:
        """Goes back because updates were not finite.

        Raises:
            NonFiniteUpdateError: that did not help before, or there is no snapshot yet.
        """
        keeper = self.rounds.snapshots
        snapshot = keeper.last()
        if snapshot is None:
            raise NonFiniteUpdateError(
                f"An update of round {self.rounds.round - 1} is not finite, and there is no snapshot to go back to yet "
                f"in {keeper.file.directory}."
            )
        number = snapshot.about["round"]
        if self._count_attempt(number) > _ATTEMPTS:
            raise NonFiniteUpdateError(
                f"An update of round {self.rounds.round - 1} is not finite, after going back to the snapshot of round "
                f"{number} {_ATTEMPTS} times."
            )
        self._go_back(snapshot, "An update was not finite")

    def _count_attempt(self, number: int) -> int:
        """How often the snapshot of round `number` has been gone back to in a row, with this time."""
        self._attempts = self._attempts + 1 if number == self._last_round else 1
        self._last_round = number
        return self._attempts

    def _tell_how_to_resume(self, snapshot) -> str:
        return (
            "To resume, start the cluster and the same program again: it goes on from the snapshot of round "
            f"{snapshot.about['round']} in {self.rounds.snapshots.file.directory}."
        )

    def _go_back(self, snapshot, why: str) -> None:
        number = snapshot.about["round"]
        lost = max(0, self.rounds.round - number)  # workers without a barrier may have been ahead of it
        self.count, self.lost = self.count + 1, self.lost + lost
        message = "%s: going on from the snapshot of round %d; the updates of %d rounds are lost."
        tf.get_logger().warning(message, why, number, lost)
        self.rounds.snapshots.restore(snapshot, is_rewinding=True)
