"""A run's folder, the cluster of TF_CONFIG, and what a run leaves behind."""

import json

import pytest

from slimdp_tf.cli import session
from slimdp_tf.measure.runs import load_run
from slimdp_tf.training import config as configs
from slimdp_tf.training.experiment import Experiment
from tests.training.stand_ins import LocalStrategy, Play, make_config, make_feed


def test_slugs_are_names_for_folders():
    assert session.make_slug("slim(alpha=0.1, memory=carry)") == "slim-alpha-0.1-memory-carry"
    assert session.make_slug("../..") == "run"


def test_folders_are_new(tmp_path):
    config = configs.new_config("try", model="fashion_mnist_mlp", data="fashion_mnist")
    assert session.choose_folder(config).parent.name == "runs"
    config.workdir = str(tmp_path)
    assert session.choose_folder(config) == tmp_path
    for expected in ("slim", "slim-2", "slim-3"):
        path = session.choose_run_folder(tmp_path, "slim")
        assert path == tmp_path / expected
        path.mkdir()


def test_tf_config_is_used_instead_of_a_local_cluster(monkeypatch, capsys):
    monkeypatch.setenv("TF_CONFIG", "{}")
    monkeypatch.setattr(session, "local_cluster", lambda **_: pytest.fail("started a cluster"))
    with session.open_cluster(make_config()) as cluster:
        assert cluster is None
    assert "TF_CONFIG" in capsys.readouterr().out


def test_a_cluster_that_cannot_start_is_explained(monkeypatch, capsys):
    def fail(**_):
        raise ValueError("workers must be 1 or more")

    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setattr(session, "local_cluster", fail)
    with pytest.raises(SystemExit), session.open_cluster(make_config()):
        pytest.fail("went on")
    assert "workers must be 1 or more" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_leaves_config_record_and_events(tmp_path):
    experiment = Experiment.prepare(make_config(), "mine", make_feed())
    strategy = LocalStrategy()
    run = session.train_in(tmp_path / "mine", experiment, strategy, [Play(strategy)], verbose=0)
    assert load_run(tmp_path / "mine" / "run.json").totals == run.totals
    assert json.loads((tmp_path / "mine" / "config.json").read_text())["epochs"] == 2
    assert list((tmp_path / "mine").glob("events*"))


def test_the_tensorboard_command_names_the_folder(tmp_path):
    assert session.describe_tensorboard(tmp_path).endswith(f"--logdir {tmp_path}")
