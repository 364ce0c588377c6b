"""Results -> table as text, Markdown, CSV and JSON, and pictures."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib

from slimdp_tf.bench.rates import read_rate
from slimdp_tf.bench.result import Mark, Result
from slimdp_tf.bench.work import Work
from slimdp_tf.measure.plots import draw_accuracy_by_mb, draw_accuracy_by_seconds, draw_time_split
from slimdp_tf.measure.runs import Point, Run, Totals

_MB = 1e6
_NONE = "-"
_SPLIT = ("compute", "exchange", "wait")
_CLOSE_TO_RATE = 0.85  # a link slower than this part of its rate is pointed out


@dataclasses.dataclass(frozen=True)
class Ratio:
    """How many times sooner than a reference a run reached the target.

    Attributes:
        value: nan when it did not reach it, or without a reference.
        is_at_least: whether the reference had not reached it when it ended, so that the truth is above the value.
    """

    value: float = math.nan
    is_at_least: bool = False

    def __str__(self) -> str:
        return _NONE if math.isnan(self.value) else f"{'>' * self.is_at_least}{self.value:.2f}x"


def compare(result: Result, references: Sequence[Result], target: float) -> Ratio:
    """Returns the ratio of seconds to the target, with the best of the references at the same rate."""
    references = [other for other in references if other.rate == result.rate and not other.has_failed]
    own = result.seconds_to(target)
    if not references or math.isnan(own):
        return Ratio()
    reached = [other.seconds_to(target) for other in references if other.first_at(target)]
    return Ratio(min(reached) / own) if reached else Ratio(min(other.seconds for other in references) / own, True)


def describe_outcome(result: Result, target: float) -> str:
    """Returns in words how a run ended."""
    if result.has_failed:
        return result.outcome.splitlines()[0]
    if result.first_at(target):
        return f"reached {_percent(target)}"
    why = {"time": "time was up", "epochs": "epochs were done"}.get(result.outcome, result.outcome)
    return f"{_percent(target)} NOT REACHED in {result.seconds:.0f} s: {why}"


def make_rows(results: Sequence[Result], work: Work, baseline: str) -> list[dict[str, Any]]:
    """Returns a row of the table per result: heading -> number, text or Ratio.

    Args:
        results: what was run.
        work: whose marks are shown.
        baseline: label of the contender that "x <baseline>" refers to.
    """
    bases = [result for result in results if result.label == baseline]
    outside = [result for result in results if result.is_outside]
    rows = []
    for result in results:
        row: dict[str, Any] = {"rate": result.rate, "contender": result.label}
        row |= {f"s to {_percent(mark)}": result.seconds_to(mark) for mark in work.marks}
        row |= {f"MB to {_percent(mark)}": result.mb_to(mark) for mark in work.marks}
        row |= {"bytes/step/worker": result.step_bytes, "ms/step": result.step_ms}
        row |= {f"{part} ms": _per_step(result, f"{part}_s") for part in _SPLIT}
        row["link ms"] = _link_ms(result)
        row[f"x {baseline}"] = compare(result, bases, work.target)
        row["x best outside"] = compare(result, outside, work.target)
        row["best accuracy"] = result.best_accuracy
        row["outcome"] = describe_outcome(result, work.target)
        rows.append(row)
    return rows


def format_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the table in columns, for a terminal."""
    lines = [list(rows[0]), *([_format(key, value) for key, value in row.items()] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    is_text = [isinstance(value, str) for value in rows[0].values()]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "  ".join(c.ljust(w) if t else c.rjust(w) for c, w, t in zip(line, widths, is_text)).rstrip() for line in lines
    )


def format_markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the table in Markdown."""
    is_text = [isinstance(value, str) for value in rows[0].values()]
    lines = [list(rows[0]), ["---" if text else "---:" for text in is_text]]
    lines += [[_format(key, value).replace("|", "\\|") for key, value in row.items()] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def format_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the table as CSV, numbers in full, unknown ones empty; beside a ratio, whether it is a lower bound."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    flat = [_flatten(row) for row in rows]
    writer.writerow(flat[0])
    writer.writerows(["" if _is_unknown(value) else value for value in row.values()] for row in flat)
    return text.getvalue()


def format_json(rows: Sequence[Mapping[str, Any]], results: Sequence[Result], facts: Mapping[str, Any]) -> str:
    """Returns facts, table and every evaluation as JSON; unknown numbers are null."""
    runs = [dataclasses.asdict(result) for result in results]
    return json.dumps(_clean({**facts, "table": [_flatten(row) for row in rows], "runs": runs}), indent=1) + "\n"


def describe_network(results: Sequence[Result], shaped_mbit_s: Mapping[str, float | None]) -> list[str]:
    """Returns a line per rate: what raw TCP carried, how busy the machine was with other things, and notes.

    Args:
        results: what was run.
        shaped_mbit_s: name of a rate -> what it should carry, None where it is not shaped.
    """
    lines = []
    for rate, wanted in shaped_mbit_s.items():
        facts = [result.network for result in results if result.rate == rate]
        if not facts:
            continue
        speeds, busy = [speed for fact in facts for speed in fact["mbit_s"]], [fact["busy"] for fact in facts]
        line = f"{rate}: raw TCP carried {min(speeds):.1f} to {max(speeds):.1f} Mbit/s"
        line += f"; others used {min(busy):.0%} to {max(busy):.0%} of the processors before a run"
        if wanted and min(speeds) < _CLOSE_TO_RATE * wanted:
            line += "; THE RATE WAS NOT REACHED: this machine was too slow or too busy for it"
        lines.append("; ".join([line, *dict.fromkeys(note for fact in facts for note in fact["notes"])]))
    return lines


def write_pictures(results: Sequence[Result], folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes curves and time splits of every rate as PDF and PNG, and returns the paths."""
    paths = []
    for rate in dict.fromkeys(result.rate for result in results):
        runs = [make_run(result) for result in results if result.rate == rate and result.marks]
        split = [run for run in runs if run.totals.compute_s > 0]
        for draw, drawn in ((draw_accuracy_by_seconds, runs), (draw_accuracy_by_mb, runs), (draw_time_split, split)):
            figure = draw(drawn) if drawn else None
            for ending in ("pdf", "png") if figure else ():
                path = folder / f"{rate}-{draw.__name__.removeprefix('draw_')}.{ending}"
                with matplotlib.rc_context({"pdf.fonttype": 42}):  # fonts are embedded when the file is written
                    figure.savefig(path, dpi=300, metadata={"CreationDate": None} if ending == "pdf" else None)
                paths.append(path)
    return paths


def make_run(result: Result) -> Run:
    """Returns a result as a run that `measure.plots` draws: megabytes are what a worker's link sent and received."""

    def place(mark: Mark) -> Point:
        mb = mark.worker_bytes / _MB / result.workers
        return Point(epoch=0, steps=int(mark.steps), mb=mb, seconds=mark.seconds, val_accuracy=mark.accuracy)

    last = result.marks[-1]
    split = {f"{part}_s": 0.0 if math.isnan(value := getattr(last, f"{part}_s")) else value for part in _SPLIT}
    totals = Totals(rounds=0, steps=int(last.steps), seconds=last.seconds, **split)
    return Run(result.label, result.label, result.workers, 0, tuple(map(place, result.marks)), totals)


def _percent(accuracy: float) -> str:
    return f"{100 * accuracy:g} %"


def _per_step(result: Result, part: str) -> float:
    return 1000 * getattr(result.marks[-1], part) / result.marks[-1].steps if result.marks else math.nan


def _link_ms(result: Result) -> float:
    """Milliseconds per step that the most loaded link needs at its rate, nan where it is not shaped."""
    rate = read_rate(result.rate).mbit_s
    return math.nan if rate is None else 8 * result.busiest_bytes / rate / 1000


def _format(key: str, value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    if math.isnan(value):
        return _NONE
    if key == "best accuracy":
        return f"{value:.4f}"
    return f"{value:.0f}" if key.startswith("bytes") or value >= 1000 else f"{value:.1f}"


def _flatten(row: Mapping[str, Any]) -> dict[str, Any]:
    flat = {}
    for key, value in row.items():
        if isinstance(value, Ratio):
            flat |= {key: value.value, f"{key} is at least": value.is_at_least}
        else:
            flat[key] = value
    return flat


def _is_unknown(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _clean(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    return None if _is_unknown(value) else value
