"""What becomes of updates that the servers refused because they are not finite."""

from __future__ import annotations

KINDS = ("raise", "skip", "rollback")


class NonFiniteUpdateError(ArithmeticError):
    """A worker's update held a nan or an infinity; the servers refused it and the weights are untouched."""


class Refusals:
    """Keeps the refusal of a round until callbacks have seen the round's logs.

    Args:
        kind: one of `KINDS`.
        names: what errors call each worker.
        can_rest: whether snapshots can be taken, to roll back to.
    """

    def __init__(self, kind: str, names: list[str], can_rest: bool = True):
        if kind == "rollback" and not can_rest:
            raise ValueError(
                "on_nonfinite='rollback' needs snapshots, and so a method with pacing='sync', and overlap=False. "
                "Received: pacing='async' or overlap=True"
            )
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

    def raise_last(self) -> None:
        """Raises what the last round refused, if refusals are to be raised."""
        error, self._error = self._error, None
        if error is not None:
            raise error
