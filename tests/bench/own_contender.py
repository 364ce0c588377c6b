"""A contender as a user would write it: it needs neither TensorFlow nor PyTorch, and learns nothing."""

import sys

from slimdp_tf.bench.setting import Program, Setting
from slimdp_tf.bench.task import Task


def launch(setting: Setting, *, mistake: str = "none") -> list[Program]:
    """Returns a program that reports, and one beside it that only waits."""
    command = setting.run_alone(__name__, mistake)
    waiting = Program("ps0", [sys.executable, "-c", "import time; time.sleep(600)"])
    return [waiting, Program("worker0", command, {"OWN": "1"}, is_reporting=True)]


def main(mistake: str) -> None:
    """Hands the initial weights in again and again."""
    task = Task.from_environment()
    if mistake == "ends":
        sys.exit("no such device")
    print("a line that is no event")
    print(f"on {sys.platform}", file=sys.stderr)
    task.begin(version="own 1")
    if mistake == "early":
        sys.exit(0)
    steps, is_going = 0, True
    while is_going:
        steps += task.every
        weights = task.initial_weights()
        is_going = task.pause(steps, weights[:2] if mistake == "shapes" else lambda: weights, compute_s=0.5 * steps)  # noqa: B023


if __name__ == "__main__":
    main(sys.argv[1])
