"""What `pip install` brings: every module, every config, and programs that are there."""

from __future__ import annotations

import configparser
import importlib
import os
import shutil
import subprocess
import sys
import zipfile

import pytest

from tests import sources

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel of the sources as they are."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("slimdp_tf", "configs"):
        shutil.copytree(sources.ROOT / name, folder / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(sources.ROOT / name, folder / "source")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    made = subprocess.run([*command, "-w", folder, folder / "source"], capture_output=True, text=True, timeout=120)
    assert made.returncode == 0, made.stdout + made.stderr
    (path,) = folder.glob("*.whl")
    return path


def read_programs(wheel) -> dict[str, str]:
    """Console script -> module:function."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
        parser = configparser.ConfigParser()
        parser.read_string(archive.read(name).decode())
    return dict(parser["console_scripts"])


def test_every_module_and_every_config_is_in_it(wheel):
    configs = {f"slimdp_tf/{file}" for file in sources.list_files("configs")}
    wanted = {*sources.list_files("slimdp_tf"), *configs}
    held = {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".py")}
    assert configs and held == wanted


def test_every_program_is_in_it_and_can_be_called(wheel):
    programs, held = read_programs(wheel), zipfile.ZipFile(wheel).namelist()
    assert len(programs) >= 8
    for place in programs.values():
        module, _, function = place.partition(":")
        assert module.replace(".", "/") + ".py" in held
        assert callable(getattr(importlib.import_module(module), function))


def test_a_program_knows_the_configs_where_it_is_installed(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    look = "from slimdp_tf.cli.config_flag import *; print(CONFIGS, *list_configs(), load_get_config(find_config({})))"
    done = subprocess.run(
        [sys.executable, "-c", look.format("'fashion_mnist_mlp'")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    folder, *names = done.stdout.split(" <function get_config")[0].split()
    assert folder == str(tmp_path / "slimdp_tf" / "configs")
    assert names == [path.stem for path in sorted((sources.ROOT / "configs").glob("*.py"))]
