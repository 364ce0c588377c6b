"""What processes hold: memory, threads and open files, sampled all along, and whether they stay as they are."""

from __future__ import annotations

import dataclasses
import os
import re
import statistics
from collections.abc import Sequence

MOST_GROWTH = 0.05  # of memory
_MORE = 2  # threads or files
_LEFT_BEHIND = 8  # threads that TensorFlow starts when it connects to a task anew, and never ends
_LEAST = 8  # samples after the warm-up, to say anything of a process


@dataclasses.dataclass(frozen=True)
class Sample:
    """One look at a process.

    Attributes:
        at: seconds since the soak began.
        task: "chief", "worker0", "ps0" ...
        life: 0 for the task's first process, 1 for the one that was started in its place, ...
        age: seconds since this process began.
        rss_mb, threads, files: resident memory, threads, open file descriptors.
    """

    at: float
    task: str
    life: int
    age: float
    rss_mb: float
    threads: int
    files: int


@dataclasses.dataclass(frozen=True)
class Growth:
    """How a process changed after its warm-up: medians of the first and the last quarter of that time.

    Attributes:
        task, life: which process.
        seconds: how long it was watched after the warm-up.
        rss_mb, threads, files: (first, last).
        kills: how often another process was started anew meanwhile.
        is_known: whether it was watched for long enough to say anything.
    """

    task: str
    life: int
    seconds: float
    rss_mb: tuple[float, float]
    threads: tuple[float, float]
    files: tuple[float, float]
    kills: int
    is_known: bool

    @property
    def memory(self) -> float:
        """Growth of the memory as a share of what it was, 0 where it is not known."""
        return self.rss_mb[1] / self.rss_mb[0] - 1.0 if self.is_known else 0.0

    @property
    def is_flat(self) -> bool:
        """Whether nothing grew beyond what is allowed."""
        counts = ((self.threads, _LEFT_BEHIND * self.kills), (self.files, 0))
        is_steady = all(last <= first + max(_MORE, MOST_GROWTH * first) + more for (first, last), more in counts)
        return not self.is_known or (self.memory <= MOST_GROWTH and is_steady)


def read_vitals(pid: int) -> tuple[float, int, int]:
    """Returns resident MB, threads and open files of a process.

    Raises:
        ProcessLookupError: it has ended.
    """
    try:
        with open(f"/proc/{pid}/status") as file:
            status = dict(re.findall(r"^(VmRSS|Threads):\s+(\d+)", file.read(), re.MULTILINE))
        return int(status["VmRSS"]) / 1024, int(status["Threads"]), len(os.listdir(f"/proc/{pid}/fd"))
    except (OSError, KeyError) as error:  # a process that has ended holds no memory
        raise ProcessLookupError(f"There is no process {pid} any more.") from error


def measure_growth(samples: Sequence[Sample], warm_up_s: float, kills: Sequence[float] = ()) -> list[Growth]:
    """Returns the growth of every process, in the order of tasks and lives.

    Args:
        samples: of all of them.
        warm_up_s: how old a process is before its samples count.
        kills: when processes were started anew, in seconds since the soak began.
    """
    lives: dict[tuple[str, int], list[Sample]] = {}
    for sample in samples:
        lives.setdefault((sample.task, sample.life), []).append(sample)
    return [_grow(*key, [s for s in lives[key] if s.age >= warm_up_s], warm_up_s, kills) for key in sorted(lives)]


def _grow(task: str, life: int, samples: Sequence[Sample], warm_up_s: float, kills: Sequence[float]) -> Growth:
    seconds = samples[-1].age - samples[0].age if samples else 0.0
    quarter = max(1, len(samples) // 4)
    ends = samples[:quarter], samples[-quarter:]

    def medians(name: str) -> tuple[float, float]:
        first, last = (statistics.median(getattr(s, name) for s in end) if end else 0.0 for end in ends)
        return float(first), float(last)

    is_known = len(samples) >= _LEAST and seconds >= warm_up_s
    meanwhile = sum(samples[0].at < at < samples[-1].at for at in kills) if samples else 0
    return Growth(task, life, seconds, medians("rss_mb"), medians("threads"), medians("files"), meanwhile, is_known)
