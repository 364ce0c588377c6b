"""tools/bench_exchange: every method takes its turns, and the table says what a round of each moved."""

import subprocess
import sys

import pytest

from slimdp_tf import local_cluster, methods
from slimdp_tf.cli import bench_exchange
from tests.sources import ROOT


def test_a_line_gives_the_ratio_to_the_first():
    first = bench_exchange.Cost("plump", 1000, 0.016, 10.0, 1.0, 8.0, 1.0)
    line = bench_exchange.format_line(bench_exchange.Cost("slim", 1000, 0.004, 5.0, 1.0, 3.0, 1.0, 2.0), first)
    assert line.split() == ["slim", "1,000", "0.00", "5.0", "0.50", "1.0", "3.0", "1.0", "2.0"]


@pytest.mark.slow
def test_counts_a_model_before_it_is_built():
    assert bench_exchange.count_entries("vgg16") == 138_357_544


def test_refuses_what_memory_has_no_room_for():
    bench_exchange.check_memory(1000, 2, 2, 3)
    with pytest.raises(ValueError, match=r"2,000,000,000 entries on 2 workers and 2 ps, 3 methods at once, need about"):
        bench_exchange.check_memory(2_000_000_000, 2, 2, 3)


@pytest.mark.cluster
def test_measures_a_whole_model_each_method_by_itself():
    chosen = {"plump": methods.plump(), "slim": methods.slim(0.2, 0.1)}
    costs, peaks = bench_exchange.measure_model("fashion_mnist_mlp", chosen, 2, 1, repeats=2)
    assert [cost.entries for cost in costs] == [269_322] * 2
    assert costs[0].mb == pytest.approx(2 * 8 * 0.269322)
    assert costs[1].mb < costs[0].mb / 2 and all(cost.chief_ms > 0 for cost in costs)
    assert sorted(peaks) == ["plump", "slim"] and sorted(peaks["slim"]) == ["ps 0", "worker 0", "worker 1"]


@pytest.mark.cluster
def test_measures_methods_in_turns():
    chosen = {"plump": methods.plump(p=2), "slim": methods.slim(0.2, 0.1)}
    with local_cluster(2, 1) as cluster:
        costs = bench_exchange.measure(cluster, chosen, 64_000, repeats=2, bare=True)
        peaks = bench_exchange.read_memory(cluster)
    assert [cost.method for cost in costs] == ["plump", "slim", bench_exchange._ONE, bench_exchange._PIECES]
    assert costs[0].mb == pytest.approx(2 * 2 * 0.256)
    assert costs[1].mb == pytest.approx(2 * (2 * 0.2 + 0.1) * 0.256, rel=0.01)
    assert all(cost.ms > 0 for cost in costs)
    assert sorted(peaks) == ["ps 0", "worker 0", "worker 1"] and min(peaks.values()) > 100


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("--methods=slimm", "Unknown method 'slimm'"),
        ("--methods=slim(alfa=1)", "Unknown option of the method 'slim' 'alfa'"),
        ("--json=/nowhere/found.json", "The folder of '/nowhere/found.json' does not exist"),
    ],
)
def test_mistakes_are_told_before_a_cluster_is_started(given, says):
    ran = subprocess.run(
        [sys.executable, "-m", "slimdp_tf.cli.bench_exchange", given], capture_output=True, text=True, cwd=ROOT
    )
    assert ran.returncode == 2
    assert ran.stderr.splitlines()[-1].startswith(f"error: {says}")
