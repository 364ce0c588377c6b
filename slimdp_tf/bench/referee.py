"""The referee: starts a contender's programs, keeps clock and byte meter, examines the weights, ends the run.

Clock and meter run from the word "go" to the line "quiet", so that neither start-up nor evaluation is in them.
"""

from __future__ import annotations

import collections
import json
import pathlib
import queue
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from slimdp_tf.bench.result import Mark
from slimdp_tf.bench.setting import Program
from slimdp_tf.bench.task import Task
from slimdp_tf.bench.work import Examiner, Work

_POLL_S = 0.5
_LOG_LINES = 12
_SPLIT = ("compute_s", "exchange_s", "wait_s")


class RunFailed(RuntimeError):
    """A contender ended before its run did, or did not answer; the message holds the end of its log."""


class Referee:
    """Conducts one run.

    Args:
        network: where it takes place: a `Network` or a `Loopback`.
        work: its rules.
        examiner: measures the accuracy.
        folder: where the programs' logs go.
        setup_limit_s: seconds within which a contender must be ready.
    """

    def __init__(
        self, network: Any, work: Work, examiner: Examiner, folder: pathlib.Path, setup_limit_s: float = 180.0
    ):
        self._network, self._work, self._examiner, self._folder = network, work, examiner, folder
        self._setup_limit_s = setup_limit_s
        self._programs: list[tuple[str, subprocess.Popen]] = []
        self._logs: dict[str, pathlib.Path] = {}
        self._lines: queue.Queue[tuple[dict[str, Any] | None, float, dict[str, tuple[int, int]]]] = queue.Queue()
        self._reporter: subprocess.Popen | None = None
        self.marks: list[Mark] = []
        self.about: dict[str, Any] = {}
        self.setup_s = float("nan")

    def conduct(self, programs: Sequence[Program], task: Task) -> str:
        """Runs the programs to the end of the run and returns why it ended; `marks` holds what was measured.

        Raises:
            RunFailed: a program ended early, did not answer in time, or handed in what cannot be examined.
        """
        start = time.perf_counter()
        self._folder.mkdir(parents=True, exist_ok=True)
        for number, program in enumerate(programs):
            self._start(number, program, task.write())
        ready, _, _ = self._await("ready", self._setup_limit_s)
        self.about = {key: value for key, value in ready.items() if key != "event"}
        self.setup_s = time.perf_counter() - start
        seconds, sent, at_link = 0.0, 0, collections.Counter()
        while True:
            begin, before = time.perf_counter(), self._network.read_bytes()
            self._say("go")
            line, end, after = self._await("quiet", 2 * self._work.time_limit_s + 60)
            self._await("weights", self._setup_limit_s)
            seconds += end - begin
            sent += sum(after[host][0] - before[host][0] for host in after)
            at_link.update(_count(before, after))
            at_workers = sum(count for host, count in at_link.items() if host.startswith("worker"))
            carried = (sent, at_workers or sent, max(at_link.values()))
            mark = Mark(line["steps"], seconds, *carried, self._examine(task), **_read_split(line))
            self.marks.append(mark)
            if reason := self._work.judge(mark.steps, mark.seconds, mark.accuracy):
                self._say("stop")
                return reason

    def _start(self, number: int, program: Program, task: Mapping[str, str]) -> None:
        name = f"{program.host}-{number}"
        path = self._folder / f"{name}.log"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE} if program.is_reporting else {}
        path.write_text("")
        with open(path, "a") as log:  # the reporting program's lines are written by another hand
            child = self._network.start(
                program.host,
                program.command,
                {**program.environment, **task},
                **{"stdout": log, "stderr": log, **pipes},
            )
        self._programs.append((name, child))
        self._logs[name] = path
        if program.is_reporting:
            self._reporter = child
            threading.Thread(target=self._read, args=(child, path), daemon=True).start()

    def _read(self, reporter: subprocess.Popen, path: pathlib.Path) -> None:
        """Reads the reporter's lines as they come; clock and meter are read at once."""
        with open(path, "a") as log:
            for text in reporter.stdout:
                now, counts = time.perf_counter(), self._network.read_bytes()
                line = parse_line(text)
                if line is None:
                    log.write(text)
                    log.flush()
                else:
                    self._lines.put((line, now, counts))
        self._lines.put((None, time.perf_counter(), {}))

    def _await(self, event: str, limit_s: float) -> tuple[dict[str, Any], float, dict[str, tuple[int, int]]]:
        give_up = time.monotonic() + limit_s
        while True:
            try:
                line, when, counts = self._lines.get(timeout=_POLL_S)
            except queue.Empty:
                ended = {name: child.poll() for name, child in self._programs if child.poll() not in (None, 0)}
                if ended:
                    name, code = next(iter(ended.items()))
                    raise RunFailed(self._describe(f"{name} ended with code {code}", name)) from None
                if time.monotonic() > give_up:
                    raise RunFailed(self._describe(f"no line {event!r} within {limit_s:g} s")) from None
                continue
            if line is None:
                raise RunFailed(self._describe(f"the reporting program ended before the line {event!r}"))
            if line["event"] == event:
                return line, when, counts
            raise RunFailed(self._describe(f"the line {line['event']!r} came where {event!r} was expected"))

    def _say(self, word: str) -> None:
        try:
            self._reporter.stdin.write(f"{word}\n")
            self._reporter.stdin.flush()
        except OSError as error:
            raise RunFailed(self._describe("the reporting program does not listen")) from error

    def _examine(self, task: Task) -> float:
        try:
            return self._examiner.examine(task.weights)
        except (OSError, ValueError, KeyError) as error:
            raise RunFailed(self._describe(str(error))) from error

    def _describe(self, what: str, name: str | None = None) -> str:
        """Adds the end of a program's log: of the one named, else of the reporting one."""
        if name is None:
            name = next((name for name, child in self._programs if child is self._reporter), None)
        path = self._logs.get(name)
        lines = path.read_text(errors="replace").splitlines()[-_LOG_LINES:] if path else []
        return "\n".join([f"{what}. The end of {path}:", *(f"    {line}" for line in lines)]) if path else what


def parse_line(text: str) -> dict[str, Any] | None:
    """Returns the event of a line, None for a line that is none."""
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) and isinstance(line.get("event"), str) else None


def _count(before: Mapping[str, tuple[int, int]], after: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Bytes that each host sent and received. The loopback device, which sends to itself, counts them once."""
    if len(after) == 1:
        return {host: after[host][0] - before[host][0] for host in after}
    return {host: sum(after[host]) - sum(before[host]) for host in after}


def _read_split(line: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(line[name]) for name in _SPLIT if isinstance(line.get(name), int | float)}
