"""tools/soak: its mistakes in words, and three minutes of it."""

import json
import os
import subprocess
import sys
import types

import pytest

from slimdp_tf.bench.network import Network
from slimdp_tf.bench.rates import read_rate
from slimdp_tf.cli import soak
from tests import sources

STANDARD = {"minutes": 3.0, "workers": 4, "ps": 2, "seed": 0, "method": "plump", "faults": None, "loopback": False}


def read(**flags):
    return soak.read_flags(types.SimpleNamespace(**{**STANDARD, **flags}))


def test_without_a_network_nothing_is_cut_off():
    assert read()[1] == ["kill", "stop", "cut"]
    assert read(loopback=True)[1] == ["kill", "stop"]
    assert read(faults=["stop"])[1] == ["stop"]
    assert read(method="slim(alpha=0.2,beta=0.1)")[0].options == {"alpha": 0.2, "beta": 0.1}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"minutes": 0.1}, "--minutes must be a number from 0.5 to 10000. Received: 0.1"),
        ({"workers": 1}, "--workers must be a number from 2"),
        ({"seed": -1}, "--seed must be a number from 0"),
        ({"faults": ["melt"]}, "faults must be some of kill, stop, cut"),
        ({"faults": []}, "faults must be some of kill, stop, cut"),
        ({"faults": ["cut"], "loopback": True}, "--faults=cut needs a network of its own"),
        ({"method": "plump, quant"}, "--method must be one method. Received: 2"),
        ({"method": "plumb"}, "Unknown method 'plumb'"),
        ({"method": "slim(alpha=2)"}, "alpha"),
    ],
)
def test_mistakes_are_named(flags, message):
    with pytest.raises(ValueError, match=message):
        read(**flags)


def test_a_folder_in_use_is_refused(tmp_path):
    assert soak.make_folder(str(tmp_path / "new")).is_dir()
    (tmp_path / "new" / "soak.txt").touch()
    with pytest.raises(ValueError, match="--workdir must be a new or an empty folder"):
        soak.make_folder(str(tmp_path / "new"))


@pytest.mark.cluster
def test_three_minutes_of_faults_hold(tmp_path):
    flags = ["--minutes=3", "--workers=3", "--seed=216", f"--workdir={tmp_path}/soak"]  # one kill of each comes early
    command = [sys.executable, "-m", "slimdp_tf.cli.soak", *flags]
    try:
        with Network(["a"], read_rate("unshaped")):
            pass
    except OSError:
        command.append("--loopback")
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, cwd=sources.ROOT, env=environment, capture_output=True, text=True, timeout=285)
    print(done.stdout[-4000:])
    content = json.loads((tmp_path / "soak" / "soak.json").read_text())
    assert content["complaints"] == [] and done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert len(content["faults"]) >= 4
    killed = {fault["task"].rstrip("0123456789") for fault in content["faults"] if fault["kind"] == "kill"}
    assert killed == {"worker", "ps"}
    assert all(fault["recovered_s"] is not None for fault in content["faults"])
    assert {growth["task"] for growth in content["growth"] if growth["is_flat"]} >= {"chief", "worker0", "ps0"}
    assert (tmp_path / "soak" / "soak.png").stat().st_size > 1000
