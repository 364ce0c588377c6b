"""What a soak came to: tables, CSV, JSON and a picture."""

from __future__ import annotations

import collections
import csv
import dataclasses
import io
import json
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from slimdp_tf.bench.soak.run import Outcome, Tried
from slimdp_tf.bench.soak.vitals import Growth

_COLOURS = {"kill": "#D55E00", "stop": "#E69F00", "cut": "#0072B2"}


def list_faults(outcome: Outcome) -> list[list[str]]:
    """Returns a row per kind of fault and job: tried, recovered, seconds to recover, updates missing."""
    rows = [["fault", "of", "tried", "recovered", "median s", "max s", "updates missing"]]
    groups: dict[tuple[str, str], list[Tried]] = collections.defaultdict(list)
    for one in outcome.tried:
        groups[one.fault.kind, one.fault.task.rstrip("0123456789")].append(one)
    for (kind, job), group in sorted(groups.items()):
        seconds = [one.recovered_s for one in group if one.recovered_s is not None]
        median, most = (f"{statistics.median(seconds):.1f}", f"{max(seconds):.1f}") if seconds else ("-", "-")
        missing = sum(one.missing for one in group)
        rows.append([kind, job, str(len(group)), str(len(seconds)), median, most, str(missing)])
    return rows


def list_growth(growth: Sequence[Growth]) -> list[list[str]]:
    """Returns a row per process: memory, threads and files, in the first and the last quarter after its warm-up."""
    rows = [["process", "seconds", "MB", "growth", "threads", "files", "kills", "flat"]]
    for one in growth:
        name, seconds = f"{one.task}.{one.life}", f"{one.seconds:.0f}"
        if not one.is_known:
            rows.append([name, seconds, "-", "-", "-", "-", "-", "too short"])
            continue
        pairs = [f"{first:.0f} to {last:.0f}" for first, last in (one.rss_mb, one.threads, one.files)]
        growth_text = f"{100 * one.memory:+.1f} %"
        rows.append([name, seconds, pairs[0], growth_text, *pairs[1:], str(one.kills), "yes" if one.is_flat else "NO"])
    return rows


def format_text(outcome: Outcome, facts: Mapping[str, Any]) -> str:
    """Returns the tables and the verdict as plain text."""
    losses = [epoch["loss"] for epoch in outcome.epochs]
    training = f"{outcome.rounds} rounds, {outcome.lost_rounds} of them gone back over after a ps was lost"
    if losses:
        training += f"; loss {losses[0]:.4f}, in the end {losses[-1]:.4f}"
    verdict = ["The soak held."] if not outcome.complaints else ["The soak did NOT hold:", *outcome.complaints]
    about = ", ".join(f"{name} {value}" for name, value in facts.items())
    parts = [_align(list_faults(outcome)), _align(list_growth(outcome.growth)), training, about, "\n".join(verdict)]
    return "\n\n".join(parts) + "\n"


def write_all(outcome: Outcome, facts: Mapping[str, Any], folder: pathlib.Path) -> str:
    """Writes soak.txt, soak.json, faults.csv, vitals.csv and soak.png into a folder; returns the text of the first."""
    text = format_text(outcome, facts)
    tried = [{**dataclasses.asdict(one.fault), **_without_fault(one)} for one in outcome.tried]
    content = {
        "facts": dict(facts),
        "held": not outcome.complaints,
        "complaints": list(outcome.complaints),
        "rounds": outcome.rounds,
        "lost_rounds": outcome.lost_rounds,
        "faults": tried,
        "growth": [{**dataclasses.asdict(one), "memory": one.memory, "is_flat": one.is_flat} for one in outcome.growth],
        "epochs": list(outcome.epochs),
    }
    (folder / "soak.txt").write_text(text)
    (folder / "soak.json").write_text(json.dumps(content, indent=1) + "\n")
    (folder / "faults.csv").write_text(_format_csv(tried))
    (folder / "vitals.csv").write_text(_format_csv([dataclasses.asdict(sample) for sample in outcome.samples]))
    figure = draw(outcome)
    FigureCanvasAgg(figure).print_png(folder / "soak.png")
    return text


def draw(outcome: Outcome) -> Figure:
    """Returns the memory of every process over time, with the faults as lines across."""
    figure = Figure(figsize=(8.0, 4.0), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    for task in dict.fromkeys(sample.task for sample in outcome.samples):
        for life in sorted({sample.life for sample in outcome.samples if sample.task == task}):
            seen = [sample for sample in outcome.samples if (sample.task, sample.life) == (task, life)]
            label = task if life == 0 else None
            colour = f"C{list(dict.fromkeys(s.task for s in outcome.samples)).index(task) % 10}"
            axes.plot([s.at / 60 for s in seen], [s.rss_mb for s in seen], color=colour, label=label, linewidth=1.2)
    for one in outcome.tried:
        axes.axvspan(one.begun / 60, one.undone / 60, color=_COLOURS[one.fault.kind], alpha=0.3, linewidth=0.5)
    axes.set_xlabel("minutes (kills red, stops yellow, cuts blue)")
    axes.set_ylabel("resident MB")
    axes.set_ylim(bottom=0)
    if outcome.samples:
        axes.legend(fontsize=7, ncols=4, frameon=False, loc="lower right")
    return figure


def _without_fault(tried: Tried) -> dict[str, Any]:
    return {name: getattr(tried, name) for name in ("begun", "undone", "recovered_s", "missing")}


def _format_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    file = io.StringIO()
    if rows:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return file.getvalue()


def _align(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)
