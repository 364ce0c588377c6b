"""tools/plan: the table by hand, mistakes in words, and what is foretold against what a shaped network shows."""

import json
import math
import os
import subprocess
import sys

import pytest

from slimdp_tf import methods
from slimdp_tf.cli.costs import Costs
from slimdp_tf.cli.method_list import read_methods
from slimdp_tf.cli.plan import dense_of, make_rows, plan, read_model, without_links
from slimdp_tf.planning.forecast import EFFICIENCY, Site
from slimdp_tf.planning.load import Load
from tests.bench.test_network import permitted
from tests.sources import ROOT

__all__ = ["permitted"]


def run_program(module: str, *flags: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-m", f"slimdp_tf.cli.{module}", *flags]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=250)


def test_a_line_by_hand():
    call = read_methods("small=slim(alpha=0.2,beta=0.1,p=4)", methods.names())[0]
    method = call.make()
    dense = dense_of(method)
    assert dense == methods.plump(p=4)
    loads = {method: Load(2e5, 1e5), dense: Load(1e6, 1e6)}
    costs = Costs(dict.fromkeys(loads, 0.01), {method: 0.03, dense: 0.02}, math.inf)
    line = plan(call, "100mbit", Site(4, 2, 0.0, 100e6 / EFFICIENCY), loads, costs)
    assert line.method.round_s == pytest.approx(0.04 + 0.048 + 0.03)
    assert line.dense.round_s == pytest.approx(0.04 + 0.32 + 0.02)
    assert line.limit == pytest.approx(8 * 2 * 1.7e6 / 0.01 / EFFICIENCY, rel=2e-3)
    words = line.format().split()
    assert words[:6] == ["small", "100mbit", "0.300", "0.60", "118.0", "29.50"]


def test_what_links_needed_while_it_was_measured_is_taken_off():
    """2 x 1 MB on two workers per ps at 100 Mbit/s of tensors: 320 ms."""
    dense, small = methods.plump(), methods.slim()
    costs = Costs({}, {dense: 0.4, small: 0.001}, 100e6 / EFFICIENCY)
    left = without_links(costs, {dense: Load(1e6, 1e6), small: Load(1e4, 1e4)}, 4, 2)
    assert left.exchange_s == pytest.approx({dense: 0.08, small: 0.0})


def test_models_by_name_by_file_and_by_size(tmp_path):
    model = read_model("fashion_mnist_mlp")
    model.save(tmp_path / "mine.keras")
    assert read_model(str(tmp_path / "mine.keras")).count_params() == model.count_params() == 269_322
    assert make_rows(6400).count_params() == 6400
    with pytest.raises(ValueError, match="model must be one of fashion_mnist_mlp.*Received: 'nowhere'"):
        read_model("nowhere")


@pytest.mark.slow
def test_tells_when_there_will_be_no_gain(tmp_path):
    flags = ["--entries=1e6", "--step_ms=500", "--rates=10mbit,100gbit", "--methods=slim(alpha=0.2,beta=0.1)"]
    ran = run_program("plan", *flags, f"--json={tmp_path}/plan.json")
    assert ran.returncode == 0, ran.stderr
    advice = [line for line in ran.stdout.splitlines() if ": slim" in line]
    assert "x as fast as dense" in advice[0] and "hardly worth it: compute holds it up" in advice[1]
    slow, fast = json.loads((tmp_path / "plan.json").read_text())
    assert slow["bound"] == "ps link" and fast["bound"] == "compute" and slow["round_s"] > fast["round_s"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--step_ms=1"], "One of --model and --entries is needed"),
        (["--entries=1e6"], "step_ms is needed, or --measure with --model"),
        (["--entries=1e6", "--step_ms=1", "--rates=10kbit"], "A rate must be"),
        (["--entries=1e6", "--step_ms=1", "--methods=slimm"], "Unknown method 'slimm'"),
        (["--entries=1e9", "--step_ms=1", "--measure", "--workers=16"], "1,000,000,000 entries on 16 workers"),
    ],
)
def test_mistakes_are_told_at_once(flags, says):
    ran = run_program("plan", *flags)
    assert ran.returncode == 2
    assert ran.stderr.splitlines()[-1].startswith(f"error: {says}")


@pytest.mark.cluster
@pytest.mark.alone
@pytest.mark.usefixtures("permitted")
def test_what_it_foretells_is_what_a_shaped_network_shows(tmp_path):
    carry = "memory='carry',average='contributors',explorer_keys='derived'"
    given = ["--workers=2", "--ps=1", "--rates=40mbit", f"--methods=plump,sparse=slim(alpha=0.4,beta=0.2,{carry})"]
    ran = run_program("plan", "--model=fashion_mnist_mlp", "--measure", *given, f"--json={tmp_path}/plan.json")
    assert ran.returncode == 0, ran.stderr
    given[-1] = given[-1].replace("--methods", "--contenders")
    bench = run_program("bench_network", *given, "--every=8", "--time_limit_s=8", f"--workdir={tmp_path}/bench")
    assert bench.returncode == 0, bench.stderr
    foretold = {
        line["method"]: 1e3 * line["round_s"] / line["p"] for line in json.loads((tmp_path / "plan.json").read_text())
    }
    rows = json.loads((tmp_path / "bench" / "results.json").read_text())["table"]
    shown = {row["contender"]: row["ms/step"] for row in rows}
    assert shown.keys() == foretold.keys()
    for label, step_ms in shown.items():
        assert foretold[label] == pytest.approx(step_ms, rel=0.2), (foretold, shown)
