"""The program that trains one config; it trains in this process here."""

import contextlib
import json

import keras
import pytest

from slimdp_tf.cli import config_flag, train
from slimdp_tf.training import experiment as experiments
from slimdp_tf.training.config import save_config
from tests.training.stand_ins import LocalStrategy, Play, make_config, make_feed


@pytest.fixture
def config(monkeypatch, tmp_path):
    config = make_config()
    config.workdir = str(tmp_path)
    monkeypatch.setattr(config_flag, "read_config", lambda: config)
    monkeypatch.setattr(experiments, "build_feed", lambda config: make_feed())
    monkeypatch.setattr(train, "open_cluster", lambda config: contextlib.nullcontext())
    strategy = LocalStrategy()
    monkeypatch.setattr(train, "make_strategy", lambda experiment, cluster: strategy)
    monkeypatch.setattr(train, "Snapshots", lambda folder, every_s: keras.callbacks.Callback())  # no rounds here
    # the program's own callback gives its place to the one that makes the rounds, which no workers make here
    monkeypatch.setattr(keras.callbacks, "TerminateOnNaN", lambda: Play(strategy))
    return config


@pytest.mark.slow
def test_trains_and_says_where_everything_is(config, tmp_path, capsys):
    assert train.main(["train"]) == 0
    output = capsys.readouterr().out
    assert f"into {tmp_path / 'plump'}" in output and "MB per worker" in output and f"--logdir {tmp_path}" in output
    assert json.loads((tmp_path / "plump" / "run.json").read_text())["totals"]["rounds"] == 8


@pytest.mark.slow
def test_the_same_command_goes_on_or_says_that_nothing_is_left(config, tmp_path, capsys, monkeypatch):
    save_config(config, tmp_path / "plump" / "config.json")
    assert train.main(["train"]) == 0
    assert f"going on in {tmp_path / 'plump'}" in capsys.readouterr().out
    monkeypatch.setattr(train, "open_cluster", lambda config: pytest.fail("started"))
    assert train.main(["train"]) == 0
    assert "it is complete: nothing is left to train" in capsys.readouterr().out


def test_another_config_does_not_go_on(config, tmp_path, capsys):
    save_config(config, tmp_path / "plump" / "config.json")
    config.seed = 5
    with pytest.raises(SystemExit):
        train.main(["train"])
    assert "with another config: seed was 0, received 5" in capsys.readouterr().err


def test_mistakes_show_before_the_cluster_starts(config, monkeypatch, capsys):
    monkeypatch.setattr(train, "open_cluster", lambda config: pytest.fail("started"))
    config.epochs = 0
    with pytest.raises(SystemExit):
        train.main(["train"])
    assert "epochs must be at least 1" in capsys.readouterr().err


def test_a_strategy_that_cannot_be_made_is_explained(config, monkeypatch, capsys):
    def fail(experiment, cluster):
        raise ValueError("No evaluator in the cluster.")

    monkeypatch.setattr(train, "make_strategy", fail)
    with pytest.raises(SystemExit):
        train.main(["train"])
    assert capsys.readouterr().err == "error: No evaluator in the cluster.\n"
