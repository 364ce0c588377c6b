"""Snapshots of a run between two rounds, and how a run goes on from one.

A snapshot is taken when every worker has adopted what the last merge made ready, so that nothing is under way: it
holds what the servers hold, what every worker holds, and the chief's counters. The round that follows is the same, bit
for bit, whether the run was interrupted or not.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from slimdp_tf.distribute.held import Held
from slimdp_tf.distribute.joining import Arrays, within
from slimdp_tf.distribute.roles import Role
from slimdp_tf.distribute.rounds import Rounds
from slimdp_tf.distribute.snapshot_file import SnapshotFile

_FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """What was saved.

    Attributes:
        about: counters, names and settings.
        arrays: all that is held, by name.
    """

    about: dict
    arrays: Arrays

    @property
    def workers(self) -> dict[int, Arrays]:
        """What every worker held that was live."""
        return {w: within(self.arrays, f"workers/{w}") for w in self.about["live"]}


class Keeper:
    """Takes snapshots of the rounds of a strategy, and restores them.

    Args:
        rounds: the rounds.
        directory: where snapshots are.
        every_rounds, every_s: how far apart they are, in rounds or in seconds; None is not at all. In seconds the first
            is due after the first round: there is always one to go back to, and what saving traces is traced early.
        max_to_keep: how many stay.
    """

    def __init__(
        self,
        rounds: Rounds,
        directory: str | pathlib.Path,
        every_rounds: int | None = None,
        every_s: float | None = None,
        max_to_keep: int = 3,
    ):
        check_schedule(every_rounds, every_s, max_to_keep)
        self.rounds, self.file = rounds, SnapshotFile(directory, max_to_keep)
        self.every_rounds, self.every_s = every_rounds, every_s
        self.saved_round, self._due_at = rounds.round, -math.inf
        self._held: Held | None = None
        self._is_saving = False

    @property
    def is_due(self) -> bool:
        """Whether it is time for the next."""
        if self._is_saving:  # what coming to rest merges is told to listeners, too
            return False
        rounds = self.rounds.begun - self.saved_round
        by_rounds = self.every_rounds is not None and rounds >= self.every_rounds
        by_time = self.every_s is not None and rounds > 0 and time.monotonic() >= self._due_at
        return by_rounds or by_time

    def save(self, position: Callable[[int], dict] | None = None) -> None:
        """Takes a snapshot now; it is written in the background. A server that is lost meanwhile is restored instead.

        Args:
            position: where epochs and data are, for whoever goes on from it, when workers have done so many steps more
                than was asked for: without a barrier they may be ahead of `fit`, all by the same.
        """
        self._is_saving = True
        try:
            self.rounds.recovery.watch(lambda: self._take(position), is_repeated=False)
        finally:
            self._is_saving = False

    def _take(self, position: Callable[[int], dict] | None) -> None:
        self.rounds.rest()
        if self.rounds.go_back_if_refused():
            return
        held, rounds = self._bound(), self.rounds
        arrays = {f"servers/{name}": array for name, array in held.read_servers().items()}
        workers = held.read_workers()
        if not workers:  # all were lost just now: it stays due
            return
        for worker, own in workers.items():
            arrays.update({f"workers/{worker}/{name}": array for name, array in own.items()})
        fixed = rounds.cache.of_role(Role.FIXED)
        arrays.update({f"chief/{name}": v.numpy() for name, v in zip(held.names(fixed), fixed)})
        place = rounds.tell_place()
        about = {
            "format": _FORMAT,
            **place,
            "live": sorted(workers),
            "workers": len(rounds.workers),
            "ps": len(rounds.servers.devices),
            "position": position and position(place["lead"]),
            **self._identity(),
        }
        self.file.write(about, arrays)
        self.saved_round, self._due_at = place["round"], time.monotonic() + (self.every_s or 0.0)

    def last(self) -> Snapshot | None:
        """The last snapshot, None if there is none."""
        self.file.finish()
        found = self.file.read_last()
        return None if found is None else Snapshot(*found)

    def restore_fixed(self, snapshot: Snapshot) -> None:
        """Sets what training never writes, such as the learning rate, on the chief; the next round sends it."""
        self._check(snapshot)
        fixed = self.rounds.cache.of_role(Role.FIXED)
        for name, variable in zip(self._bound().names(fixed), fixed):
            variable.assign(tf.constant(snapshot.arrays[f"chief/{name}"], variable.dtype))

    def restore(self, snapshot: Snapshot, is_rewinding: bool = False) -> None:
        """Goes on from a snapshot; says in a warning what could not be kept.

        Args:
            snapshot: of the same model and method; workers and servers may be other ones, and more or fewer.
            is_rewinding: whether the run itself goes on: then metrics go on, too.
        """
        self._check(snapshot)
        rounds, held, about = self.rounds, self._bound(), snapshot.about
        cache, sums = rounds.cache, None
        rounds.abandon()
        roles = {Role.WEIGHT, Role.AVERAGE, Role.FIRST, Role.OWN} | (set() if is_rewinding else {Role.SUM})
        anew = held.write_servers(within(snapshot.arrays, "servers"), about["round"] - 1)
        saved = snapshot.workers
        known = {worker: dict(saved[worker]) for worker in sorted(rounds.workers.live & set(saved))}
        for variable in [v for v in cache.of_role(Role.SUM) if Role.SUM in roles and known]:
            name = f"variables/{held.names([variable])[0]}"
            gone = [saved[w][name] for w in saved if w not in known]
            first = known[min(known)]
            first[name] = (first[name] + sum(gone)).astype(first[name].dtype)
        if Role.SUM in roles:
            sums = {w: _flat(own, held.names(cache.of_role(Role.SUM))) for w, own in known.items()}
        anew += held.write_workers(known, roles)
        for role in roles:
            variables = cache.of_role(role)
            values = {w: [own[f"variables/{n}"] for n in held.names(variables)] for w, own in saved.items()}
            cache.assume(role, values)
        others = rounds.workers.live - set(known)
        if others:
            cache.furnish(sorted(others), None if known else min(others))
        rounds.rewind(about, others, sums)
        self.saved_round = about["round"]
        _warn(snapshot, len(rounds.workers), len(rounds.servers.devices), anew)

    def _bound(self) -> Held:
        if self._held is None or self._held.shared != self.rounds.cache.shared:
            self._held = self.rounds.make_held(self.rounds.cache)
        return self._held

    def _identity(self) -> dict:
        """What must be the same for a snapshot to fit."""
        cache = self.rounds.cache
        kinds = [f"{v.dtype.name}{v.shape.as_list()} {cache.roles[id(v)].name}" for v in cache.variables]
        names = self._bound().names(cache.variables)
        return {"method": str(self.rounds.method), "variables": dict(zip(names, kinds))}

    def _check(self, snapshot: Snapshot) -> None:
        where, about, own = f"The snapshot in {self.file.directory}", snapshot.about, self._identity()
        if about["format"] != _FORMAT:
            raise ValueError(f"{where} must have format {_FORMAT}. Received: {about['format']}")
        if about["method"] != own["method"]:
            raise ValueError(f"{where} was taken with another method: {about['method']}. Received: {own['method']}")
        saved, now = list(about["variables"].items()), list(own["variables"].items())
        if saved != now:
            odd = next((pair for pair in zip(saved, now) if pair[0] != pair[1]), (len(saved), len(now)))
            raise ValueError(f"{where} was taken of another model: it has {odd[0]}. Received: {odd[1]}")


def _flat(worker: Arrays, names: list[str]) -> np.ndarray:
    """Some of the variables of a worker, flattened, f64."""
    return np.concatenate([np.zeros(0), *(worker[f"variables/{name}"].ravel() for name in names)])


def _warn(snapshot: Snapshot, workers: int, servers: int, anew: list[str]) -> None:
    """Says what of a snapshot could not be kept."""
    about, said = snapshot.about, []
    if anew:
        said.append(f"with {servers} ps instead of {about['ps']}, {', '.join(sorted(set(anew)))} begin anew")
    strangers = [w for w in range(workers) if w not in about["live"]]
    if strangers:
        said.append(f"workers {strangers} have no state in it and begin with the servers' weights and mean slots")
    gone = [w for w in about["live"] if w >= workers]
    if gone:
        said.append(f"what workers {gone} had not sent yet is lost")
    if workers != about["workers"]:
        said.append("the data is dealt out anew")
    if said:
        tf.get_logger().warning("Going on from the snapshot of round %d: %s.", about["round"], "; ".join(said))


def check_schedule(every_rounds: int | None, every_s: float | None, max_to_keep: int) -> None:
    """Raises ValueError unless snapshots can be taken so often and so many be kept."""
    for name, value, least in (("every_rounds", every_rounds, 1), ("max_to_keep", max_to_keep, 1)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise ValueError(f"{name} must be an integer of at least {least}. Received: {value!r}")
    if every_s is not None and not (np.isscalar(every_s) and every_s > 0):
        raise ValueError(f"every_s must be a number of seconds above 0. Received: {every_s!r}")
