"""tools/setup refuses in words what it cannot work with, and mends what a killed run left; nothing is downloaded."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from tests import sources

# Stands for python3: says its version, makes a "venv" out of copies of itself, and counts what pip was asked to do.
FAKE_PYTHON = """#!/bin/sh
case "$*" in
  *sys.version_info*) echo {version} ;;
  *ensurepip*) exit 0 ;;
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  *find_spec*) exit 1 ;;
  "-m pip --version") exit 0 ;;
  "-m pip install"*) echo "$*" >>"{record}"; {on_install} ;;
  *VERSIONS*) echo "VERSIONS {tensorflow} 3.15.0" ;;
esac
"""


@pytest.fixture
def checkout(tmp_path):
    """A checkout with nothing in it but what tools/setup reads."""
    (tmp_path / "tools").mkdir()
    for file in ("tools/setup", "setup.py", "pyproject.toml"):
        shutil.copy(sources.ROOT / file, tmp_path / file)
    return tmp_path


def write_python(checkout, version="3.12.4", tensorflow="2.21.0", on_install="exit 0") -> str:
    path = checkout / f"python-{version}"
    record = checkout / "installed"
    path.write_text(
        FAKE_PYTHON.format(version=version, tensorflow=tensorflow, on_install=on_install, record=record),
        encoding="utf-8",
    )
    path.chmod(0o755)
    return str(path)


def run_setup(checkout, *arguments, **variables):
    environment = {"PATH": os.environ["PATH"], "HOME": str(checkout), **variables}
    command = ["bash", "tools/setup", *arguments]
    return subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=60)


def list_installs(checkout) -> list[str]:
    path = checkout / "installed"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


@pytest.mark.parametrize("version", ["2.7.18", "3.9.18", "3.14.0"])
def test_refuses_another_python(checkout, version):
    run = run_setup(checkout, PYTHON=write_python(checkout, version))
    assert run.returncode == 1
    assert f"is Python {version}. Name a Python 3.10 to 3.13." in run.stderr
    assert not (checkout / ".venv").exists()


def test_refuses_a_python_that_does_not_run(checkout):
    run = run_setup(checkout, PYTHON="/nowhere/python3")
    assert run.returncode == 1
    assert "PYTHON=/nowhere/python3 does not run" in run.stderr


def test_refuses_arguments(checkout):
    run = run_setup(checkout, "fast")
    assert run.returncode == 1
    assert "takes no arguments, got: fast" in run.stderr


def test_second_run_does_nothing(checkout):
    python = write_python(checkout)
    first = run_setup(checkout, PYTHON=python)
    assert first.returncode == 0, first.stderr
    assert "ready: Python 3.12.4, TensorFlow 2.21.0, Keras 3.15.0" in first.stdout
    second = run_setup(checkout)
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    assert len(list_installs(checkout)) == 1


@pytest.mark.parametrize("file", ["setup.py", "pyproject.toml"])
def test_installs_again_after_a_change(checkout, file):
    python = write_python(checkout)
    run_setup(checkout, PYTHON=python)
    with (checkout / file).open("a", encoding="utf-8") as stream:
        stream.write("# changed\n")
    assert run_setup(checkout).returncode == 0
    assert len(list_installs(checkout)) == 2


def test_another_tensorflow_gets_a_new_venv(checkout):
    python = write_python(checkout)
    run_setup(checkout, PYTHON=python)
    run = run_setup(checkout, PYTHON=python, SLIMDP_TENSORFLOW="tensorflow-cpu==2.20.*")
    assert ".venv holds another TensorFlow: making it anew" in run.stdout
    assert "tensorflow-cpu==2.20.*" in list_installs(checkout)[-1]


def test_another_python_gets_a_new_venv(checkout):
    run_setup(checkout, PYTHON=write_python(checkout))
    run = run_setup(checkout, PYTHON=write_python(checkout, "3.10.13"))
    assert ".venv holds Python 3.12.4: making it anew" in run.stdout
    assert "ready: Python 3.10.13" in run.stdout


def test_a_half_made_venv_is_made_anew(checkout):
    failed = run_setup(checkout, PYTHON=write_python(checkout, on_install="echo no such wheel; exit 1"))
    assert failed.returncode == 1
    assert "FAILED: installing" in failed.stderr
    assert "no such wheel" in failed.stderr
    run = run_setup(checkout, PYTHON=write_python(checkout))
    assert ".venv was left half-made: making it anew" in run.stdout
    assert run.returncode == 0


def test_an_empty_venv_is_made_anew(checkout):
    (checkout / ".venv").mkdir()
    run = run_setup(checkout, PYTHON=write_python(checkout))
    assert ".venv does not run: making it anew" in run.stdout
    assert run.returncode == 0


def test_refuses_a_tensorflow_out_of_range(checkout):
    run = run_setup(checkout, PYTHON=write_python(checkout, tensorflow="2.19.1"))
    assert run.returncode == 1
    assert "TensorFlow 2.19.1 is in .venv" in run.stderr
