"""Runs -> pictures for a paper: accuracy against megabytes and against seconds, and where the time went.

Every picture is written as PDF (vectors, fonts embedded) and as PNG. A method has one colour and one marker in all of
them, from the palette of Okabe and Ito, which colour-blind people can tell apart; the marker repeats what the colour
says, for print in grey.
"""

from __future__ import annotations

import math
import pathlib
import textwrap
from collections.abc import Callable, Sequence

import matplotlib
from matplotlib import ticker
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from slimdp_tf.measure.runs import Point, Run

_COLOURS = ("#0072B2", "#E69F00", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#000000", "#8C6D1F")
_MARKERS = ("o", "s", "^", "D", "v", "p", "<", "h")
_LINES = ("-", (0, (5, 1.5)), (0, (1.5, 1.5)), (0, (6, 1.5, 1.5, 1.5)))
_FIRST = ("plump", "quant", "slim")  # keep their colours whatever they are compared with
_SPLIT = (
    ("compute_s", "computing", "#0072B2"),
    ("exchange_s", "exchanging", "#E69F00"),
    ("wait_s", "waiting", "#BBBBBB"),
)
_WIDTH_INCHES = 4.4
_HEIGHT_INCHES = 3.0
_DPI = 300
_LEGEND_LETTERS = 66  # of 8 points in the picture's width
_LABEL_LETTERS = 26  # of a line beside a bar
_KEY_LETTERS = 7  # the width of a line and its marker in the legend
_STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "axes.labelsize": 9,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#E3E3E3",
    "grid.linewidth": 0.6,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.5,
    "pdf.fonttype": 42,
}


def draw_accuracy_by_mb(runs: Sequence[Run]) -> Figure:
    """Returns accuracy (%) against megabytes per worker, on a logarithmic axis."""
    figure = _draw_curves(runs, lambda point: point.mb, "MB sent and received per worker")
    axes = figure.axes[0]
    axes.set_xscale("log")
    places = [point.mb for run in runs for point in run.points if point.mb > 0]
    if places and max(places) / min(places) < 30:  # too few powers of ten to read a value from
        axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda mb, _: f"{mb:g}"))
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())
    return figure


def draw_accuracy_by_seconds(runs: Sequence[Run]) -> Figure:
    """Returns accuracy (%) against seconds of rounds."""
    figure = _draw_curves(runs, lambda point: point.seconds, "seconds of training")
    figure.axes[0].set_xlim(left=0)
    return figure


def draw_time_split(runs: Sequence[Run]) -> Figure:
    """Returns one bar per run: milliseconds per step in which the average worker computed, exchanged, waited."""
    with matplotlib.rc_context(_STYLE):
        figure = _make_figure(0.75 + 0.36 * len(runs))
        axes = figure.add_subplot()
        ends = [0.0] * len(runs)
        for field, name, colour in _SPLIT:
            sizes = [1000 * getattr(run.totals, field) / max(run.totals.steps, 1) for run in runs]
            axes.barh(range(len(runs)), sizes, left=ends, height=0.62, color=colour, label=name, linewidth=0)
            ends = [end + size for end, size in zip(ends, sizes, strict=True)]
        for i, end in enumerate(ends):
            axes.annotate(f"{end:.1f}", (end, i), xytext=(3, 0), textcoords="offset points", va="center", fontsize=8)
        axes.set_yticks(range(len(runs)), [textwrap.fill(run.label, _LABEL_LETTERS) for run in runs])
        axes.set_ylim(len(runs) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)
        axes.set_xlim(0, max(ends, default=1.0) * 1.1 or 1.0)
        axes.set_xlabel("milliseconds per step")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper right", ncols=3, columnspacing=1.2)
    return figure


def write_pictures(runs: Sequence[Run], folder: str | pathlib.Path) -> list[pathlib.Path]:
    """Writes every picture into a folder, as PDF and PNG, and returns the paths.

    Raises:
        ValueError: there is no run.
    """
    if not runs:
        raise ValueError("A picture needs at least one run. Received: none.")
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for draw in (draw_accuracy_by_mb, draw_accuracy_by_seconds, draw_time_split):
        figure = draw(runs)
        for ending in ("pdf", "png"):
            path = folder / f"{draw.__name__.removeprefix('draw_')}.{ending}"
            with matplotlib.rc_context(_STYLE):  # fonts are embedded when the file is written
                figure.savefig(path, dpi=_DPI, metadata={"CreationDate": None} if ending == "pdf" else None)
            paths.append(path)
    return paths


def choose_looks(runs: Sequence[Run]) -> list[dict[str, object]]:
    """Returns colour, marker and line of each run; no two are the same, and `plump` has the same in every picture."""
    taken: set[int] = set()
    looks = []
    for run in runs:
        place = _FIRST.index(run.method) if run.method in _FIRST else len(_FIRST)
        while place in taken:
            place = max(place + 1, len(_FIRST))
        taken.add(place)
        colour, turn = place % len(_COLOURS), place // len(_COLOURS)
        marker = (place + turn) % len(_MARKERS)
        looks.append({"color": _COLOURS[colour], "marker": _MARKERS[marker], "linestyle": _LINES[turn % len(_LINES)]})
    return looks


def _draw_curves(runs: Sequence[Run], place: Callable[[Point], float], label: str) -> Figure:
    with matplotlib.rc_context(_STYLE):
        rows = math.ceil(len(runs) / _count_columns(runs))
        figure = _make_figure(_HEIGHT_INCHES + 0.17 * rows)
        axes = figure.add_subplot()
        for run, look in zip(runs, choose_looks(runs), strict=True):
            x = [place(point) for point in run.points]
            y = [100 * point.best_known_accuracy for point in run.points]
            axes.plot(x, y, label=run.label, markeredgecolor="white", markeredgewidth=0.5, **look)
        axes.set_xlabel(label)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(ticker.MaxNLocator(7, steps=[1, 2, 5, 10]))
        has_validation = any(not math.isnan(point.val_accuracy) for run in runs for point in run.points)
        axes.set_ylabel(f"{'validation' if has_validation else 'training'} accuracy (%)")
        columns = _count_columns(runs)
        figure.legend(loc="outside upper left", ncols=columns, columnspacing=1.2, handlelength=2.4)
    return figure


def _count_columns(runs: Sequence[Run]) -> int:
    widths = [len(run.label) + _KEY_LETTERS for run in runs]
    for columns in range(min(4, len(runs)), 1, -1):
        rows, longer = divmod(len(runs), columns)  # a legend fills its columns from the top, the first ones longer
        starts = [i * rows + min(i, longer) for i in range(columns + 1)]
        if sum(max(widths[a:b]) for a, b in zip(starts, starts[1:], strict=False)) <= _LEGEND_LETTERS:
            return columns
    return 1


def _make_figure(height: float) -> Figure:
    figure = Figure(figsize=(_WIDTH_INCHES, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure
