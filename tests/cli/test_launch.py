"""Which task is served, and what is refused; no server is started here."""

import json

import pytest
import tensorflow as tf
from absl import flags
from absl.testing import flagsaver

from slimdp_tf.cli import launch

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
