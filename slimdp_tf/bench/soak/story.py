"""What the chief of a soak has written so far."""

from __future__ import annotations

import json
import pathlib
from typing import Any


class Story:
    """The lines of JSON that a program writes into a file, read as they come.

    Args:
        path: of the file; it may not be there yet.

    Attributes:
        rounds: (moment on the monotonic clock, workers that took part) of every round.
        epochs: what was written of every epoch.
    """

    def __init__(self, path: pathlib.Path):
        self._path, self._place = path, 0
        self.rounds: list[tuple[float, int]] = []
        self.epochs: list[dict[str, Any]] = []

    def read_on(self) -> None:
        """Takes in the whole lines that are new."""
        if not self._path.exists():
            return
        with open(self._path, "rb") as file:
            file.seek(self._place)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._place += len(whole)
        for line in map(json.loads, whole.splitlines()):
            if "round" in line:
                self.rounds.append((line["at"], line["workers"]))
            else:
                self.epochs.append(line)

    def first_whole(self, since: float, workers: int) -> float | None:
        """When the first round after `since` ended in which all workers took part, None if there is none yet."""
        found = None
        for at, took_part in reversed(self.rounds):
            if at <= since:
                break
            found = at if took_part == workers else found
        return found

    def count_missing(self, begun: float, ended: float, workers: int) -> int:
        """How many updates of workers rounds between two moments were merged without."""
        return sum(workers - took_part for at, took_part in self.rounds if begun < at <= ended)
