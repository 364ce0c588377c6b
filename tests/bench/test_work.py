"""The work: the same weights for everyone, accuracy, and when a run ends."""

import numpy as np
import pytest

from slimdp_tf.bench import work as works
from slimdp_tf.bench.task import read_weights
from slimdp_tf.bench.work import PARAMETERS, Examiner, Work, draw_weights, list_shapes


def test_the_model_of_the_work():
    assert PARAMETERS == 269_322 == sum(int(np.prod(shape)) for shape in list_shapes())
    weights = draw_weights(3)
    assert [array.shape for array in weights] == list_shapes()
    assert {array.dtype for array in weights} == {np.dtype("float32")}
    assert weights[0].std() == pytest.approx(np.sqrt(2 / 784), rel=0.01)
    assert not weights[1].any()
    assert all((a == b).all() for a, b in zip(weights, draw_weights(3), strict=True))
    assert (weights[0] != draw_weights(4)[0]).any()


def test_writes_what_contenders_read(tmp_path):
    task = Work(seed=3).write(tmp_path / "new", tmp_path)
    assert all((a == b).all() for a, b in zip(task.initial_weights(), draw_weights(3), strict=True))
    assert (task.workers, task.batch, task.learning_rate, task.every, task.seed) == (4, 32, 0.1, 48, 3)


def write_weights(path, **change):
    """Weights that see an image's class in its first pixels: 255 at pixel c is class c."""
    weights = [np.zeros(shape, np.float32) for shape in list_shapes()]
    for kernel in weights[::2]:
        kernel[:10, :10] = np.eye(10)
    for place, value in change.items():
        weights[int(place.removeprefix("w"))][...] = value
    np.savez(path, *weights)


def test_accuracy_by_hand(tmp_path):
    images = np.zeros((4, 28, 28), np.uint8)
    for row, pixel in enumerate((3, 1, 4, 1)):
        images[row, 0, pixel] = 255
    examiner = Examiner(images, np.array([3, 1, 4, 7]))
    path = tmp_path / "w.npz"
    write_weights(path)
    assert examiner.examine(path) == 0.75
    write_weights(path, w5=np.float32("nan"))
    assert np.isnan(examiner.examine(path))
    np.savez(path, *draw_weights(0)[:-1])
    with pytest.raises(ValueError, match="must have the shapes"):
        examiner.examine(path)
    assert len(read_weights(path)) == 5


@pytest.mark.parametrize(
    ("steps", "seconds", "accuracy", "reason"),
    [
        (48, 5.0, 0.5, None),
        (48, 5.0, 0.86, "target"),
        (48, 500.0, 0.86, "target"),
        (48, 150.0, 0.85, "time"),
        (2812, 5.0, 0.85, "epochs"),
        (2811, 5.0, 0.85, None),
        (48, 5.0, float("nan"), "diverged"),
    ],
)
def test_when_a_run_ends(steps, seconds, accuracy, reason):
    assert Work().judge(steps, seconds, accuracy) == reason


def test_marks_end_with_the_target():
    assert Work().marks == (0.84, 0.85, 0.86)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("workers", 0),
        ("ps", 65),
        ("every", 0),
        ("target", 86.0),
        ("epochs", 0.0),
        ("time_limit_s", float("nan")),
        ("seed", -1),
    ],
)
def test_refuses_what_cannot_be(field, value):
    with pytest.raises(ValueError, match=rf"{field} must be .* Received: "):
        Work(**{field: value})


def test_data_must_be_files(monkeypatch):
    monkeypatch.setattr(works, "load_fashion_mnist", lambda folder: (None, (np.zeros((1, 28, 28)), np.zeros(1))))
    monkeypatch.setattr(works, "find_fashion_mnist", lambda folder: None)
    with pytest.raises(FileNotFoundError, match="apt-get install"):
        works.load_examiner(None)
