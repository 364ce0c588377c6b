"""The program: its flags, its mistakes in words, its output."""

import os
import subprocess
import sys
import types

import pytest

from slimdp_tf.bench import probe
from slimdp_tf.bench.network import Network
from slimdp_tf.cli import bench_network
from tests import sources
from tests.bench.small_bench import OWN, make_bench, make_examiner, make_result


@pytest.fixture
def given(monkeypatch, tmp_path):
    """Flags at their defaults."""
    monkeypatch.setattr(bench_network, "load_examiner", lambda data_dir: (tmp_path, make_examiner()))
    standard = {"contenders": None, "contender": [], "rates": None, "loopback": False, "workers": 4, "ps": 2, "seed": 0}
    standard |= {"target": 0.86, "epochs": 6.0, "time_limit_s": 150.0, "every": 48, "baseline": "plump"}
    standard |= {"torch_python": sys.executable, "data_dir": None, "workdir": str(tmp_path)}
    return types.SimpleNamespace(**standard)


def test_the_defaults_are_everything(given, monkeypatch, capsys):
    monkeypatch.setattr(bench_network, "has_torch", lambda python: False)
    bench = bench_network.prepare(given)
    assert [rate.name for rate in bench.rates] == ["100mbit", "1gbit", "unshaped"]
    assert {"plump", "slim", "tf_ps"} <= {contender.label for contender in bench.contenders}
    assert bench.network is Network
    assert "without torch_ddp" in capsys.readouterr().out


def test_ones_own_alone_and_loopback(given):
    given.contender, given.loopback = [OWN], True
    bench = bench_network.prepare(given)
    assert [contender.label for contender in bench.contenders] == ["launch"]
    assert [rate.name for rate in bench.rates] == ["unshaped"]


@pytest.mark.slow
def test_publishes_what_was_run(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(probe, "_UNSHAPED_BYTES", 5_000_000)
    bench = make_bench(tmp_path)
    results = bench_network.run_all(bench, "launch")
    bench_network.publish(results, bench, "launch")
    output = capsys.readouterr().out
    for text in ("[1/1] launch at unshaped: 86 % NOT REACHED", "x launch", "machine: ", "raw TCP", f"launch: {OWN}"):
        assert text in output
    assert {"table.txt", "table.md", "table.csv", "results.json"} <= {path.name for path in tmp_path.iterdir()}


def test_ctrl_c_reports_what_is_done(monkeypatch, tmp_path, capsys):
    played = iter([make_result("first")])

    def play(self, contender, rate):
        if (result := next(played, None)) is None:
            raise KeyboardInterrupt
        return result

    bench = make_bench(tmp_path, own=[f"first={OWN}", f"second={OWN}"])
    monkeypatch.setattr(type(bench), "run_one", play)
    assert [result.label for result in bench_network.run_all(bench, "first")] == ["first"]
    assert "what was finished is reported" in capsys.readouterr().out
    assert "reached 86 %" in (tmp_path / "table.txt").read_text()  # there even if a kill follows


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"rates": ["0.5mbit"]}, "A rate must be .* Received: '0.5mbit'"),
        ({"contenders": "plumb"}, "Unknown contender 'plumb'"),
        ({"baseline": "plumb"}, "--baseline must be a label: .* Received: 'plumb'"),
        ({"workers": 0}, "workers must be an integer from 1"),
        ({"torch_python": "/no/python"}, "--torch_python must be"),
    ],
)
def test_mistakes_are_named(given, flags, message):
    with pytest.raises((ValueError, OSError), match=message):
        bench_network.prepare(types.SimpleNamespace(**{**vars(given), **flags}))


@pytest.mark.slow
def test_a_whole_program_shows_no_traceback():
    done = subprocess.run(
        [sys.executable, "-m", "slimdp_tf.cli.bench_network", "--loopback", "--rates=100mbit", "--contenders=plump"],
        cwd=sources.ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "error: --loopback cannot shape links" in done.stderr and done.returncode == 2
    assert "Traceback" not in done.stderr + done.stdout
