"""Programs answer mistakes in words, with exit code 2."""

import os
import subprocess
import sys

import pytest
from absl import flags

from slimdp_tf.cli.program import check_no_arguments, explaining, refuse
from slimdp_tf.distribute.calls import ClusterError
from tests import sources


@pytest.mark.parametrize("kind", [ValueError, TypeError, FileNotFoundError, ClusterError, flags.Error])
def test_errors_about_the_input_are_explained(kind, capsys):
    with pytest.raises(SystemExit) as stopped, explaining():
        raise kind("x must be y. Received: z.")
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "error: x must be y. Received: z.\n"


def test_errors_of_the_program_are_not():
    with pytest.raises(KeyError), explaining():
        raise KeyError("bug")


def test_arguments_that_are_no_flags_are_refused(capsys):
    check_no_arguments(["program"])
    with pytest.raises(SystemExit):
        check_no_arguments(["program", "epochs=3"])
    assert "Received: epochs=3" in capsys.readouterr().err


def test_refuse_goes_to_stderr(capsys):
    with pytest.raises(SystemExit):
        refuse("no")
    assert capsys.readouterr() == ("", "error: no\n")


@pytest.mark.slow
def test_a_whole_program_shows_no_traceback():
    done = subprocess.run(
        [sys.executable, "-m", "slimdp_tf.cli.compare", "--config=fashion_mnist_mlp", "--methods=plump,slim(alpha=2)"],
        cwd=sources.ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    assert "error: alpha must be" in done.stderr
    assert "Traceback" not in done.stderr + done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("question", ["--help", "--helpfull"])
def test_help_beside_other_flags_shows_the_flags(question):
    done = subprocess.run(
        [sys.executable, "-m", "slimdp_tf.cli.compare", "--config=fashion_mnist_mlp", question],
        cwd=sources.ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "Methods to compare: name" in done.stdout and "error:" not in done.stderr.lower()
