"""Which task is served, and what is refused; and a cluster that is launched, trained on, and ended."""

import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys

import pytest
import tensorflow as tf
from absl import flags
from absl.testing import flagsaver

from slimdp_tf.cli import launch
from tests import sources
from tests.distribute.test_cluster import is_gone, wait_until

SPEC = {"chief": ["c:1"], "worker": ["a:1", "b:1"], "ps": ["p:1"]}


@pytest.fixture
def path(tmp_path):
    (tmp_path / "spec.json").write_text(json.dumps(SPEC))
    return str(tmp_path / "spec.json")


def test_the_task_of_a_file(path):
    assert launch.choose_task(path, "worker", 1, "") == (SPEC, "worker", 1)


def test_the_task_of_tf_config(path, tmp_path):
    text = json.dumps({"cluster": SPEC, "task": {"type": "ps", "index": 0}})
    assert launch.choose_task(None, None, 0, text) == (SPEC, "ps", 0)
    assert launch.choose_task(None, "worker", 1, text) == (SPEC, "worker", 1)
    (tmp_path / "config.json").write_text(text)
    assert launch.choose_task(str(tmp_path / "config.json"), None, 0, "") == (SPEC, "ps", 0)


@pytest.mark.parametrize(
    ("content", "job", "index", "message"),
    [
        (json.dumps(SPEC), None, 0, "job must be one of worker, ps: the chief is your own program.*Received: None"),
        (json.dumps(SPEC), "worker", 2, "index of a worker must be 0 to 1. Received: 2"),
        ("{", "worker", 0, "TF_CONFIG must be JSON"),
        ("[]", "worker", 0, "TF_CONFIG must be a JSON object. Received: list"),
        (json.dumps({**SPEC, "ps": []}), "worker", 0, "Missing: ps"),
        (json.dumps({**SPEC, "ps": "p:1"}), "worker", 0, "must give ps as a list of host:port. Received: 'p:1'"),
        (json.dumps({**SPEC, "ps": ["p"]}), "worker", 0, "must give ps as a list of host:port"),
        (json.dumps({"cluster": 3}), "worker", 0, "must give cluster as a list of host:port. Received: 3"),
        (json.dumps({**SPEC, "evaluator": ["e:1"]}), "worker", 0, "evaluator"),
        (json.dumps({"cluster": SPEC, "task": {"type": "chief", "index": 0}}), None, 0, "Received: 'chief'"),
        ("", None, 0, "Say what to launch"),
    ],
)
def test_refusals(content, job, index, message):
    with pytest.raises(ValueError, match=message):
        launch.choose_task(None, job, index, content)


def test_a_missing_file_is_named():
    with pytest.raises(FileNotFoundError, match="nowhere.json"):
        launch.choose_task("nowhere.json", "worker", 0, "")


def test_a_local_cluster_prints_tf_config_and_ends(monkeypatch, capsys):
    ended = []

    class Cluster:
        def __init__(self, workers, ps):
            self.sizes = (workers, ps)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            ended.append(self.sizes)

        def cluster_spec(self):
            return tf.train.ClusterSpec(SPEC)

    class Event(launch.threading.Event):
        def wait(self, timeout=None):
            return True

    monkeypatch.setattr(launch, "local_cluster", Cluster)
    monkeypatch.setattr(launch.threading, "Event", Event)
    monkeypatch.setattr(launch.signal, "signal", lambda *_: None)
    assert launch.hold_cluster(2, 1) == 0
    output = capsys.readouterr().out
    config = json.loads(output.partition("TF_CONFIG='")[2].partition("'")[0])
    assert config == {"cluster": SPEC, "task": {"type": "chief", "index": 0}}
    assert ended == [(2, 1)]


@pytest.mark.parametrize(
    ("kind", "says"), [("kubernetes", '"kind": "List"'), ("slurm", "#SBATCH --ntasks=6"), ("tf_config", "TF_CONFIG=")]
)
def test_prints_for_schedulers_and_starts_nothing(kind, says, monkeypatch, capsys):
    monkeypatch.setattr(launch, "hold_cluster", lambda workers, ps: pytest.fail("started"))
    flags.FLAGS.mark_as_parsed()
    with flagsaver.flagsaver(print=kind, workers=3, ps=2):
        assert launch.main(["launch"]) == 0
    assert says in capsys.readouterr().out


def test_prints_tf_config_of_a_file(path, capsys):
    flags.FLAGS.mark_as_parsed()
    with flagsaver.flagsaver(print="tf_config", spec=path):
        assert launch.main(["launch"]) == 0
    assert "# ps 0, on p" in capsys.readouterr().out


PROGRAM = """
import keras, numpy, slimdp_tf
strategy = slimdp_tf.SlimDPStrategy()
with strategy.scope():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
x = numpy.ones((4, 2), "float32")
model.fit(x, x[:, :1], batch_size=1, verbose=0)
print(strategy.workers, strategy.ps, len(strategy.records))
"""


def list_children(pid: int) -> list[int]:
    """The processes that a process has started."""
    tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


@pytest.fixture
def launched(tmp_path):
    """The program with a cluster of 1 worker and 1 server, and the line with TF_CONFIG that it printed."""
    command = [sys.executable, "-u", "-m", "slimdp_tf.cli.launch", "--workers=1", "--ps=1"]
    with (tmp_path / "launch.err").open("wb") as errors:
        program = subprocess.Popen(command, cwd=sources.ROOT, stdout=subprocess.PIPE, stderr=errors, text=True)
    with program:
        try:
            line = next((line for line in program.stdout if line.startswith("export ")), None)
            assert line, (tmp_path / "launch.err").read_text()
            yield program, line
        finally:
            program.kill()


@pytest.mark.cluster
def test_a_program_trains_on_a_launched_cluster_which_ends_at_sigterm(launched, tmp_path):
    program, line = launched
    name, _, config = shlex.split(line)[1].partition("=")
    children = list_children(program.pid)
    assert name == "TF_CONFIG" and len(children) == 2 and not any(map(is_gone, children))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=sources.ROOT,
        env={**os.environ, "TF_CONFIG": config},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "1", "4"]
    assert not any(map(is_gone, children))  # it holds the cluster for the next program
    program.send_signal(signal.SIGTERM)
    assert program.wait(timeout=30) == 0, (tmp_path / "launch.err").read_text()
    assert wait_until(lambda: all(map(is_gone, children)), 5)
