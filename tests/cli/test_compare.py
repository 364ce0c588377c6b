"""The comparison, from the list of methods to table and pictures; its runs train in this process."""

import contextlib
import csv
import json
import os
import subprocess
import sys
import types

import pytest
from tensorboard.backend.event_processing import event_accumulator

from slimdp_tf.cli import compare, config_flag
from slimdp_tf.cli.method_list import read_methods
from slimdp_tf.training import experiment as experiments
from tests import sources
from tests.training.stand_ins import LocalStrategy, make_feed, write_fashion_mnist


class PlayingLine(compare.ProgressLine):
    """Progress that also makes the rounds, which no workers make here."""

    def __init__(self, heading, strategy, steps):
        super().__init__(heading, strategy, steps)
        self._played = strategy

    def on_train_batch_begin(self, batch, logs=None):
        self._played.play()


@pytest.fixture
def experiments_of(monkeypatch):
    """A list of methods -> prepared experiments, on 16 random images."""

    def prepare(text, **overrides):
        small = {"model.hidden": (4,), "batch_size": 4, "epochs": 1, "workers": 2, **overrides}
        path = config_flag.CONFIGS / "fashion_mnist_mlp.py"
        monkeypatch.setattr(config_flag, "read_overrides", lambda: (path, small))
        monkeypatch.setattr(experiments, "build_feed", lambda config: make_feed())
        return compare.prepare(read_methods(text, ["plump", "quant", "slim"]))

    return prepare


@pytest.fixture
def in_this_process(monkeypatch):
    def make_strategy(experiment, cluster):
        if experiment.label == "broken":
            raise RuntimeError("worker 1 at 10.0.0.2:2222 does not answer")
        return LocalStrategy(workers=2, method=experiment.method)

    monkeypatch.setattr(compare, "make_strategy", make_strategy)
    monkeypatch.setattr(compare, "ProgressLine", PlayingLine)
    monkeypatch.setattr(compare, "open_cluster", lambda config: contextlib.nullcontext())


def test_methods_share_the_data_and_keep_their_options(experiments_of):
    plump, mine = experiments_of("plump,mine=slim(alpha=0.1,beta=0.05)", **{"options.p": 4})
    assert plump.feed is mine.feed
    assert (plump.config.options.p, mine.config.options.p, mine.config.options.alpha) == (4, 4, 0.1)
    assert (mine.label, mine.config.model.hidden) == ("mine", (4,))


def test_an_option_of_none_of_them_is_refused(experiments_of):
    with pytest.raises(ValueError, match="--config.options.alpha must be an option of a compared method"):
        experiments_of("plump,quant", **{"options.alpha": 0.1})


def test_a_mistake_in_the_last_method_shows_before_the_first_trains(experiments_of):
    with pytest.raises(ValueError, match="beta"):
        experiments_of("plump,slim(beta=0.9)")


@pytest.mark.slow
def test_runs_all_and_publishes_even_when_one_fails(experiments_of, in_this_process, tmp_path, capsys):
    prepared = experiments_of("plump,broken=quant,slim(alpha=0.2)")
    runs, folders = compare.train_all(prepared, tmp_path, None)
    assert [run.label for run in runs] == list(folders) == ["plump", "slim(alpha=0.2)"]
    compare.publish(runs, tmp_path)
    output = capsys.readouterr()
    assert "10.0.0.2:2222" in output.err and "broken" in output.out
    for text in ("[1/3] plump", "[3/3] slim(alpha=0.2)", "left for the other methods", "ratio to plump", "--logdir"):
        assert text in output.out
    names = {path.name for path in tmp_path.iterdir()}
    assert {"plump", "slim-alpha-0.2", "table.md", "table.csv", "accuracy_by_mb.pdf", "time_split.png"} <= names
    table = json.loads((tmp_path / "table.json").read_text())
    assert [row["ratio"] for row in table] == [1.0, 1.0]
    assert table[1]["config"]["options"]["alpha"] == 0.2


@pytest.mark.slow
def test_ctrl_c_reports_what_is_done(experiments_of, in_this_process, monkeypatch, tmp_path, capsys):
    train = compare.train_in

    def stop_at_slim(folder, experiment, *rest, **fit):
        if experiment.label == "slim":
            raise KeyboardInterrupt
        return train(folder, experiment, *rest, **fit)

    monkeypatch.setattr(compare, "train_in", stop_at_slim)
    runs, _ = compare.train_all(experiments_of("plump,slim,quant"), tmp_path, None)
    assert [run.label for run in runs] == ["plump"]
    assert "what was finished is reported" in capsys.readouterr().out


@pytest.mark.slow
def test_the_program_fails_when_a_method_failed(experiments_of, in_this_process, monkeypatch, tmp_path, capsys):
    prepared = experiments_of("plump,broken=slim", workdir=str(tmp_path))
    monkeypatch.setattr(compare, "prepare", lambda calls: prepared)
    monkeypatch.setattr(compare, "_METHODS", types.SimpleNamespace(value="plump,broken=slim"))
    assert compare.main(["compare"]) == 1
    assert "failed: broken; see above" in capsys.readouterr().out
    reader = event_accumulator.EventAccumulator(str(tmp_path / "plump")).Reload()
    assert "result/ratio_to_baseline" in reader.Tags()["tensors"]


@pytest.mark.cluster
def test_the_program_compares_on_a_cluster_to_the_end(tmp_path):
    write_fashion_mnist(tmp_path / "keras" / "datasets" / "fashion-mnist", train=64, test=16)
    given = [
        "--config=fashion_mnist_cnn",
        "--methods=plump,mine=slim(alpha=0.2,beta=0.1,q=4)",
        *(f"--config.{name}={value}" for name, value in {"workers": 2, "ps": 1, "batch_size": 4, "epochs": 1}.items()),
        f"--workdir={tmp_path / 'runs'}",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "slimdp_tf.cli.compare", *given],
        cwd=sources.ROOT,
        env={**os.environ, "KERAS_HOME": str(tmp_path / "keras"), "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    folder = tmp_path / "runs"
    text = (folder / "table.txt").read_text()
    assert "ratio to plump" in text and text.strip() in done.stdout
    plump, mine = json.loads((folder / "table.json").read_text())
    assert (plump["method"], mine["method"]) == ("plump", "mine")
    assert plump["ratio"] == 1.0 and mine["ratio"] > 1.5
    assert mine["ratio"] == pytest.approx(plump["mb_per_worker"] / mine["mb_per_worker"])
    with (folder / "table.csv").open() as file:
        assert [row["method"] for row in csv.DictReader(file)] == ["plump", "mine"]
    pictures = {path.name for path in folder.iterdir() if path.suffix in (".png", ".pdf")}
    assert {"accuracy_by_mb.png", "accuracy_by_mb.pdf", "time_split.png", "time_split.pdf"} <= pictures
    for label, method in (("plump", "plump"), ("mine", "slim")):
        config = json.loads((folder / label / "config.json").read_text())
        assert (config["method"], config["name"], config["batch_size"]) == (method, "fashion_mnist_cnn", 4)
        totals = json.loads((folder / label / "run.json").read_text())["totals"]
        assert (totals["rounds"], totals["steps"]) == (8, 8)
        events = event_accumulator.EventAccumulator(str(folder / label)).Reload()
        assert {"traffic/push_mb", "by_step/loss", "result/ratio_to_baseline"} <= set(events.Tags()["tensors"])
