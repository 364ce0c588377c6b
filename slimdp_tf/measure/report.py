"""Runs -> a table: as text, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import pathlib
from collections.abc import Sequence

from slimdp_tf.measure.runs import Run

_NONE = "-"


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        method: the run's label.
        accuracy: after the last epoch, 0..1.
        mb_per_worker: megabytes (1e6 bytes) that each worker sent and received in pushes, pulls and keys.
        ratio: how many times fewer bytes than the baseline; nan without a baseline.
        seconds: of all rounds.
        wait_s: of these, seconds in which the average worker waited.
        step_ms: milliseconds per step, mean.
        staleness: merges of others between a worker's pull and its own, mean; 0 where workers are in step.
    """

    method: str
    accuracy: float
    mb_per_worker: float
    ratio: float
    seconds: float
    wait_s: float
    step_ms: float
    staleness: float = 0.0


_COLUMNS = (  # field, heading, format
    ("method", "method", "{}"),
    ("accuracy", "accuracy", "{:.4f}"),
    ("mb_per_worker", "MB per worker", "{:.2f}"),
    ("ratio", "ratio to {baseline}", "{:.2f}x"),
    ("seconds", "seconds", "{:.1f}"),
    ("wait_s", "waiting", "{:.1f}"),
    ("step_ms", "ms per step", "{:.1f}"),
)
_STALENESS = ("staleness", "staleness", "{:.1f}")  # shown where a run was not in step


def compare_runs(runs: Sequence[Run], baseline: str = "plump") -> list[Row]:
    """Returns one row per run, in their order.

    Args:
        runs: what to compare.
        baseline: name of the method that ratios refer to; its first run counts.
    """
    reference = next((run.mb_per_worker for run in runs if run.method == baseline), math.nan)
    return [
        Row(
            method=run.label,
            accuracy=run.accuracy,
            mb_per_worker=run.mb_per_worker,
            ratio=reference / run.mb_per_worker if run.mb_per_worker else math.nan,
            seconds=run.totals.seconds,
            wait_s=run.totals.wait_s,
            step_ms=run.step_ms,
            staleness=run.staleness,
        )
        for run in runs
    ]


def format_text(rows: Sequence[Row], baseline: str = "plump") -> str:
    """Returns the table in columns, for a terminal."""
    lines = _lines_of(rows, baseline)
    widths = [max(map(len, column)) for column in zip(*lines)]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "  ".join(cell.ljust(widths[i]) if i == 0 else cell.rjust(widths[i]) for i, cell in enumerate(line)).rstrip()
        for line in lines
    )


def format_markdown(rows: Sequence[Row], baseline: str = "plump") -> str:
    """Returns the table in Markdown."""
    lines = _lines_of(rows, baseline)
    lines.insert(1, ["---"] + ["---:"] * (len(lines[0]) - 1))
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def format_csv(rows: Sequence[Row]) -> str:
    """Returns the table as CSV, one column per field of `Row`, numbers in full; unknown ones are empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([field.name for field in dataclasses.fields(Row)])
    for row in rows:
        writer.writerow(["" if _is_unknown(value) else value for value in dataclasses.astuple(row)])
    return text.getvalue()


def format_json(rows: Sequence[Row], runs: Sequence[Run] = ()) -> str:
    """Returns the table as JSON, with the curve of each run when `runs` are given; unknown numbers are null."""
    content = []
    for i, row in enumerate(rows):
        line = {key: None if _is_unknown(value) else value for key, value in dataclasses.asdict(row).items()}
        if runs:
            points = [dataclasses.asdict(point) for point in runs[i].points]
            line["points"] = [{k: None if _is_unknown(v) else v for k, v in point.items()} for point in points]
            line["config"] = runs[i].config
        content.append(line)
    return json.dumps(content, indent=2, default=str) + "\n"


def write_report(runs: Sequence[Run], folder: str | pathlib.Path, baseline: str = "plump") -> list[pathlib.Path]:
    """Writes table.txt, table.md, table.csv and table.json into a folder and returns their paths."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rows = compare_runs(runs, baseline)
    contents = {
        "table.txt": format_text(rows, baseline) + "\n",
        "table.md": format_markdown(rows, baseline) + "\n",
        "table.csv": format_csv(rows),
        "table.json": format_json(rows, runs),
    }
    for name, content in contents.items():
        (folder / name).write_text(content)
    return [folder / name for name in contents]


def _lines_of(rows: Sequence[Row], baseline: str) -> list[list[str]]:
    """The heading and a line per row, as cells."""
    columns = [*_COLUMNS, *([_STALENESS] if any(row.staleness for row in rows) else [])]
    lines = [[heading.format(baseline=baseline) for _, heading, _ in columns]]
    for row in rows:
        values = [(getattr(row, field), form) for field, _, form in columns]
        lines.append([_NONE if _is_unknown(value) else form.format(value) for value, form in values])
    return lines


def _is_unknown(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
