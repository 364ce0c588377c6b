"""docs/extending.md as it is written: its files, its test, its program and its command."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import pytest

from tests import sources
from tests.training.stand_ins import write_fashion_mnist

PAGE = sources.read("docs/extending.md")
FILES = dict(re.findall(r"^```python (\S+)\n(.*?)^```$", PAGE, re.M | re.S))
COMMANDS = [line for block in re.findall(r"^```bash\n(.*?)^```$", PAGE, re.M | re.S) for line in block.splitlines()]
PROGRAMS = {"python": [sys.executable], "tools/train": [sys.executable, "-m", "slimdp_tf.cli.train"]}


@pytest.fixture
def run(tmp_path):
    """Runs a command of the page in a folder with its files."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    places = os.pathsep.join(p for p in (str(sources.ROOT), os.environ.get("PYTHONPATH")) if p)

    def run_there(command: str, *more: str) -> str:
        program, *arguments = shlex.split(command)
        done = subprocess.run(
            [*PROGRAMS[program], *arguments, *more],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": places, "KERAS_HOME": str(tmp_path), "TF_CPP_MIN_LOG_LEVEL": "3"},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run_there


def test_every_block_is_run():
    assert sorted(FILES) == ["my_method.py", "run_my_method.py", "test_my_method.py"]
    assert [command.split()[0] for command in COMMANDS] == ["python", "tools/train"]
    assert PAGE.count("\n```") == 2 * (len(FILES) + len(COMMANDS))


@pytest.mark.slow
def test_the_rule_keeps_its_contract(run):
    assert re.search(r"\d+ passed", run(COMMANDS[0], "-p", "no:cacheprovider"))


@pytest.mark.cluster
def test_the_method_trains_by_its_dotted_name_and_in_a_program(run, tmp_path):
    write_fashion_mnist(tmp_path / "datasets" / "fashion-mnist", train=64, test=16)
    sizes = ["--config.workers=2", "--config.ps=1", "--config.batch_size=4"]
    output = run(COMMANDS[1], f"--workdir={tmp_path / 'runs'}", *sizes)
    assert "fashion_mnist_mlp with sign_mean" in output and "MB per worker" in output
    assert re.search(r"loss 0\.\d+, \d+ bytes pushed", run("python run_my_method.py"))
