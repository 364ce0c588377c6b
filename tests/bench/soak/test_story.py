"""The chief's lines are read as they come, whole ones alone."""

import json

from slimdp_tf.bench.soak.story import Story


def test_reads_on_where_it_was(tmp_path):
    story, path = Story(tmp_path / "chief.jsonl"), tmp_path / "chief.jsonl"
    story.read_on()
    assert (story.rounds, story.epochs) == ([], [])
    lines = [{"at": 1.0, "round": 0, "workers": 2}, {"at": 1.5, "epoch": 0, "loss": 2.0}]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    path.write_text(text + '{"at": 2.0, "rou')
    story.read_on()
    assert (story.rounds, story.epochs) == ([(1.0, 2)], [lines[1]])
    path.write_text(text + '{"at": 2.0, "round": 1, "workers": 1}\n')
    story.read_on()
    story.read_on()
    assert story.rounds == [(1.0, 2), (2.0, 1)]


def test_finds_when_all_train_again_and_who_was_missing(tmp_path):
    story = Story(tmp_path / "chief.jsonl")
    story.rounds = [(1.0, 3), (2.0, 2), (3.0, 1), (4.0, 3), (5.0, 3)]
    assert story.first_whole(1.5, 3) == 4.0
    assert story.first_whole(0.0, 3) == 1.0
    assert story.first_whole(5.0, 3) is None
    assert story.count_missing(1.0, 4.0, 3) == 3
