"""Pictures: what is drawn is what was measured, and nothing covers anything."""

import itertools

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from slimdp_tf.measure import plots
from slimdp_tf.measure.record import Traffic
from slimdp_tf.measure.runs import Point, Run, Totals


def make_run(label, method="slim", mb=1.0, validation=True):
    name = "val_accuracy" if validation else "accuracy"
    points = tuple(Point(e, 10 * e, mb * e, 2.0 * e, **{name: 0.5 + 0.1 * e}) for e in (1, 2, 3))
    totals = Totals(30, 30, 6.0, 3.0, 1.5, 0.9, Traffic(int(3e6 * mb), 0, 0))
    return Run(label, method, 1, 1, points, totals)


@pytest.fixture
def runs():
    labels = ("plump", "quant", "slim", "slim(memory=carry, average=contributors)")
    return [make_run(label, label.split("(")[0], 10 / (i + 1)) for i, label in enumerate(labels)]


def test_curves_are_the_points(runs):
    axes = plots.draw_accuracy_by_mb(runs).axes[0]
    assert axes.get_xscale() == "log"
    for run, line in zip(runs, axes.lines, strict=True):
        assert line.get_xdata().tolist() == [point.mb for point in run.points]
        assert line.get_ydata() == pytest.approx([60, 70, 80])
    axes = plots.draw_accuracy_by_seconds(runs).axes[0]
    assert axes.get_xscale() == "linear" and axes.get_xlim()[0] == 0
    assert axes.lines[0].get_xdata().tolist() == [2, 4, 6]
    assert axes.get_ylabel() == "validation accuracy (%)"


def test_training_accuracy_is_called_so():
    axes = plots.draw_accuracy_by_seconds([make_run("plump", validation=False)]).axes[0]
    assert axes.get_ylabel() == "training accuracy (%)"
    assert axes.lines[0].get_ydata() == pytest.approx([60, 70, 80])


def test_time_split_is_milliseconds_per_step(runs):
    axes = plots.draw_time_split(runs).axes[0]
    widths = [bar.get_width() for bar in axes.patches if bar.get_y() < 0.5]  # of the first run
    assert widths == pytest.approx([100, 50, 30])
    assert [text.get_text() for text in axes.texts] == ["180.0"] * 4


def test_a_method_keeps_its_look_and_all_looks_differ(runs):
    alone = plots.choose_looks(runs[2:3])[0]
    assert alone == plots.choose_looks(runs)[2] == plots.choose_looks(runs[::-1][1:])[0]
    many = [make_run(f"m{i}", f"m{i}") for i in range(24)] + runs
    looks = [tuple(look.values()) for look in plots.choose_looks(many)]
    assert len(set(looks)) == len(looks)


@pytest.mark.parametrize("draw", [plots.draw_accuracy_by_mb, plots.draw_accuracy_by_seconds, plots.draw_time_split])
@pytest.mark.parametrize("count", [1, 4, 22])
def test_nothing_overlaps_and_nothing_is_cut_off(draw, count, runs):
    runs = (runs + [make_run(f"method_{i}", f"m{i}") for i in range(22)])[:count]
    figure = draw(runs)
    FigureCanvasAgg(figure).draw()
    renderer = figure.canvas.get_renderer()
    axes, legend = figure.axes[0], figure.legends[0]
    assert legend.get_window_extent(renderer).y0 >= axes.get_window_extent(renderer).y1
    drawn, (width, height) = figure.get_tightbbox(renderer), figure.get_size_inches()
    assert drawn.x0 >= 0 and drawn.y0 >= 0 and drawn.x1 <= width + 0.01 and drawn.y1 <= height + 0.01
    for texts in (legend.get_texts(), axes.get_yticklabels(), [*axes.texts]):
        boxes = [text.get_window_extent(renderer) for text in texts]
        assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


@pytest.mark.slow
def test_writes_pdf_and_png(tmp_path, runs):
    paths = plots.write_pictures(runs, tmp_path / "new")
    assert len(paths) == 6
    for path in paths:
        assert path.read_bytes().startswith(b"%PDF" if path.suffix == ".pdf" else b"\x89PNG")


def test_no_run_is_refused(tmp_path):
    with pytest.raises(ValueError, match="at least one run. Received: none"):
        plots.write_pictures([], tmp_path)
