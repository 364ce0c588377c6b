"""Model and data of the contenders on TensorFlow: the same as everyone's."""

import json

import numpy as np
import pytest

from slimdp_tf.bench.contenders import tf_tasks
from slimdp_tf.bench.setting import Setting
from slimdp_tf.bench.work import PARAMETERS, Work, draw_weights, list_shapes
from tests.bench.small_bench import make_examiner, write_data


def test_programs_of_all_tasks():
    programs = tf_tasks.start_programs(Setting(2, 1), "a.program", "its argument")
    assert [program.host for program in programs] == ["worker0", "worker1", "ps0", "chief"]
    assert [program.is_reporting for program in programs] == [False, False, False, True]
    assert programs[1].command[-3:-1] == ["worker", "1"]
    assert programs[3].command[-3] == "a.program" and programs[3].command[-1] == "its argument"
    assert set(json.loads(programs[3].command[-2])) == {"chief", "worker", "ps"}


def test_the_chiefs_cluster():
    resolver = tf_tasks.make_cluster(json.dumps({"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}))
    assert (resolver.task_type, resolver.task_id) == ("chief", 0)
    assert resolver.cluster_spec().as_dict()["ps"] == ["c:1"]


def test_the_model_is_the_works(tmp_path):
    model = tf_tasks.make_model()
    assert model.count_params() == PARAMETERS
    assert [tuple(weight.shape) for weight in model.get_weights()] == list_shapes()
    model.set_weights(draw_weights(0))
    np.savez(tmp_path / "w.npz", *model.get_weights())
    examiner = make_examiner()
    predicted = np.argmax(model(examiner._images), axis=1)
    assert examiner.examine(tmp_path / "w.npz") == pytest.approx(np.mean(predicted == examiner._labels), abs=0.021)


def test_datasets_are_the_shards(tmp_path):
    write_data(tmp_path)
    task = Work(workers=2, batch=4).write(tmp_path / "run", tmp_path)
    seen = []
    for worker in range(2):
        batches = list(tf_tasks.make_dataset(task, worker).take(3))  # once round: 12 examples
        images = np.concatenate([images for images, _ in batches])
        labels = np.concatenate([labels for _, labels in batches])
        numbers = np.rint(images[:, 0] * 255).astype(int)
        assert images.shape == (12, 784) and images.dtype == np.float32 and labels.dtype == np.int32
        assert labels.tolist() == (numbers % 10).tolist()
        seen.append(sorted(numbers.tolist()))
    assert seen == [list(range(0, 24, 2)), list(range(1, 24, 2))]
