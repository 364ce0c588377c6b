"""What becomes of updates that the servers refused: one that is not finite is the user's, any other the transport's."""

from __future__ import annotations

import tensorflow as tf

KINDS = ("raise", "skip", "rollback")


class NonFiniteUpdateError(ArithmeticError):
    """A worker's update held a nan or an infinity; the servers refused it and the weights are untouched."""


class Refusals:
    """Keeps the refusal of a round until callbacks have seen the round's logs.

    Args:
        kind: one of `KINDS`.
        names: what errors call each worker.
    """

    def __init__(self, kind: str, names: list[str]):
        self.kind, self.names = kind, names
        self._error: NonFiniteUpdateError | None = None
        self.wants_rollback = False

    def begin(self, has_snapshots: bool) -> None:
        """A new round begins.

        Raises:
            ValueError: there is nothing to roll back to.
        """
        if self.kind == "rollback" and not has_snapshots:
            raise ValueError(
                "on_nonfinite='rollback' needs snapshots to go back to: slimdp_tf.Snapshots(directory) among the "
                "callbacks of fit, or strategy.checkpoint(directory, every_rounds=...). Received: neither."
            )
        self._error, self.wants_rollback = None, False

    def note(self, round_number: int, workers: list[int]) -> None:
        """Takes down that updates of `workers` were not finite."""
        self.wants_rollback = self.kind == "rollback"
        if self.kind == "raise":
            names = ", ".join(self.names[w] for w in workers)
            self._error = NonFiniteUpdateError(
                f"The update of round {round_number} from {names} is not finite; the servers refused it and it did not "
                "touch the weights. on_nonfinite='skip' would go on without it."
            )

    def take_rollback(self) -> bool:
        """Whether the rounds are to go back to the last snapshot; asked once."""
        wanted, self.wants_rollback = self.wants_rollback, False
        return wanted

    def raise_last(self) -> None:
        """Raises what the last round refused, if refusals are to be raised."""
        error, self._error = self._error, None
        if error is not None:
            raise error


def warn_of(name: str, round_number: int, faults: list[str]) -> None:
    """Says that the servers refused what a worker pushed, and why."""
    message = "%s: the servers refused its push of round %d; it did not touch the weights and %s pulls everything. %s"
    tf.get_logger().warning(message, name, round_number, name.partition(" at ")[0], " ".join(faults))
