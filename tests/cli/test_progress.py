"""The line of progress: what it says, on a terminal and in a file."""

import io

import pytest

from slimdp_tf.cli.progress import ProgressLine
from tests.training.stand_ins import LocalStrategy


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_says_share_loss_bytes_and_time_left(clock):
    strategy = LocalStrategy(workers=2)
    line = ProgressLine("slim", strategy, steps=8, out=io.StringIO(), clock=clock)
    line.on_train_begin()
    clock.now = 100.0  # the first round takes long and says nothing of the others
    strategy.play()
    assert line.describe() == " 25 %  step 2/8  0.5 MB per worker"
    clock.now = 120.0
    strategy.play()  # 2 steps in 20 s, 4 are left
    text = line.describe({"loss": 0.5, "accuracy": 0.75})
    assert text == " 50 %  step 4/8  loss 0.5000  accuracy 0.7500  1.1 MB per worker  0:40 left"


def test_a_file_gets_a_line_now_and_then(clock):
    out, strategy = io.StringIO(), LocalStrategy()
    line = ProgressLine("slim", strategy, steps=100, out=out, clock=clock)
    line.on_train_begin()
    for second in range(25):
        clock.now = float(second)
        strategy.play()
        line.on_train_batch_end(second, {"loss": 1.0})
    assert len(out.getvalue().splitlines()) == 3  # starting, 10 s, 20 s
    line.on_epoch_end(0, {"val_accuracy": 0.5})
    line.on_train_end()
    assert out.getvalue().splitlines()[-1].endswith("validation 0.5000  done in 0:24")


def test_a_terminal_keeps_one_line(clock):
    out, strategy = Terminal(), LocalStrategy()
    line = ProgressLine("slim", strategy, steps=4, out=out, clock=clock)
    line.on_train_begin()
    for second in range(2):
        clock.now += 0.3
        strategy.play()
        line.on_train_batch_end(second, {"loss": 1.0})
    assert out.getvalue().count("\n") == 0 and out.getvalue().count("\r") == 3
    line.on_train_end()
    assert out.getvalue().endswith("done in 0:01\n")
    for before, after in zip(out.getvalue().split("\r")[1:], out.getvalue().split("\r")[2:], strict=False):
        assert len(after.rstrip("\n")) >= len(before.rstrip())  # filled up: nothing of a longer line stays


def test_hours_are_written_out(clock):
    strategy = LocalStrategy()
    line = ProgressLine("slim", strategy, steps=4, out=io.StringIO(), clock=clock)
    line.on_train_begin()
    strategy.play()
    line = ProgressLine("slim", strategy, steps=6, out=io.StringIO(), clock=clock)
    strategy.play()
    clock.now = 3725.0
    strategy.play()
    assert line.describe().endswith("1:02:05 left")
