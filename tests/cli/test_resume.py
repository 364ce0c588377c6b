"""Which folder a run goes into, from what is there."""

import json

import pytest

from slimdp_tf.cli.resume import State, compare_configs, find_run
from slimdp_tf.training.config import format_config, save_config
from tests.training.stand_ins import make_config


def begin(config, folder, is_complete: bool = False) -> None:
    save_config(config, folder / "config.json")
    if is_complete:
        (folder / "run.json").write_text("{}")


def test_nothing_is_there(tmp_path):
    assert find_run(tmp_path, make_config()) == (tmp_path / "plump", State.NEW)


@pytest.mark.parametrize("is_complete", [False, True])
def test_the_run_of_the_same_config(tmp_path, is_complete):
    config = make_config()
    begin(config, tmp_path / "plump", is_complete)
    config.workers, config.ps, config.workdir = 7, 3, "elsewhere"
    assert find_run(tmp_path, config) == (tmp_path / "plump", State.COMPLETE if is_complete else State.BEGUN)


def test_a_complete_run_of_another_config_is_left_alone(tmp_path):
    config = make_config()
    begin(config, tmp_path / "plump", is_complete=True)
    config.epochs += 1
    assert find_run(tmp_path, config) == (tmp_path / "plump-2", State.NEW)
    begin(config, tmp_path / "plump-2")
    assert find_run(tmp_path, config) == (tmp_path / "plump-2", State.BEGUN)


def test_a_run_of_another_config_that_has_not_ended_is_refused_in_words(tmp_path):
    config = make_config()
    begin(config, tmp_path / "plump")
    config.learning_rate, before = 0.25, config.learning_rate
    with pytest.raises(ValueError, match=f"another config: learning_rate was {before}, received 0.25. Start it again"):
        find_run(tmp_path, config)


def test_folders_of_something_else_do_not_count(tmp_path):
    (tmp_path / "plump").mkdir()
    other = make_config()
    with other.unlocked():
        other.method = "plumper"
    begin(other, tmp_path / "plumper")
    assert find_run(tmp_path, make_config()) == (tmp_path / "plump-2", State.NEW)


def test_differences_are_named_with_their_place():
    config = make_config()
    saved = json.loads(format_config(config))
    saved["model"] = {**saved["model"], "name": "vgg16"}
    assert compare_configs(saved, config) == [f"model.name was 'vgg16', received {config.model.name!r}"]
