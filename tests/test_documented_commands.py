"""Commands as the documentation writes them: the program is there, and has each flag, field and method."""

from __future__ import annotations

import ast
import re

import pytest

from slimdp_tf import methods
from slimdp_tf.cli import config_flag
from slimdp_tf.cli.method_list import read_methods
from tests import sources

PAGES = ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{path.name}" for path in (sources.ROOT / "docs").glob("*.md"))]
WITHOUT_FLAGS = {"setup", "test", "demo"}  # shell scripts: they hand on what they are given, or take nothing
PROGRAMS = {path.name for path in (sources.ROOT / "tools").iterdir() if "." not in path.name} - WITHOUT_FLAGS


def list_commands() -> list[tuple[str, str, str]]:
    """(page, program, what follows it) of every tools/PROGRAM in a line of code or between backticks."""
    found = []
    for page in PAGES:
        text = sources.read(page)
        written = re.findall(r"`(tools/[^`]+)`", text) + re.findall(r"^(?: {4})?(tools/\w.*(?:\\\n.*)*)$", text, re.M)
        found += [(page, *re.fullmatch(r"tools/([\w.]+)(.*)", command, re.S).groups()) for command in written]
    return found


COMMANDS = [command for command in list_commands() if "--" in command[2] and command[1] not in WITHOUT_FLAGS]


def list_flags(program: str) -> set[str]:
    """The flags that a program defines, in its module or in one of cli/ that it imports."""
    found, files = set(), [f"slimdp_tf/cli/{program}.py"]
    for file in files:
        for node in ast.walk(sources.parse(file)):
            if isinstance(node, ast.Call) and sources.dotted(node.func).split(".")[-1].startswith("DEFINE_"):
                found.add(ast.literal_eval(node.args[0]))
        imported = {name.split(".")[2] for _, name in sources.list_imports(file) if name.startswith("slimdp_tf.cli.")}
        more = [f"slimdp_tf/cli/{name}.py" for name in sorted(imported)]
        files += [file for file in more if file not in files and (sources.ROOT / file).is_file()]
    return found


def test_every_program_that_is_written_of_is_there():
    assert {program for _, program, _ in list_commands()} <= {path.name for path in (sources.ROOT / "tools").iterdir()}
    assert {program for _, program, _ in COMMANDS} >= {"train", "compare", "launch", "plan", "bench_network"}


@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_a_program_has_flags(program):
    assert len(list_flags(program)) >= 3


@pytest.mark.parametrize(("page", "program", "rest"), COMMANDS)
def test_flags_fields_and_methods_are_there(page, program, rest):
    flags = re.findall(r"(?<![\w-])--(no)?([a-z_]+)((?:\.[a-z_]+)*)", rest)
    assert flags
    assert {name for _, name, _ in flags} <= list_flags(program), page
    fields = [path.removeprefix(".") for _, name, path in flags if name == "config" and path]
    for field in fields:
        config = re.search(r"--config=(\w+)", rest)
        path = config_flag.find_config(config[1] if config else "fashion_mnist_mlp")
        made = [config_flag.load_get_config(path)(name) for name in methods.names()]
        assert any(_has(config, field) for config in made), f"{page}: --config.{field}"
    for text in re.findall(r'--methods=(?:"([^"]+)"|([\w,]+))', rest):
        for call in read_methods(text[0] or text[1], methods.names()):
            assert call.make(), page


def _has(config, field: str) -> bool:
    for part in field.split("."):
        if part not in config:
            return False
        config = config[part]
    return True
