"""BUILD.bazel lists every module and every test, and is what tools/update_build.py writes."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests import sources

RULES = ("py_library", "py_binary", "py_test")


def list_rules() -> list[tuple[str, str, list[str]]]:
    """(rule, name, srcs) of every Python rule in BUILD.bazel, whose syntax is Python's."""
    rules = []
    for node in ast.walk(ast.parse(sources.read("BUILD.bazel"))):
        if isinstance(node, ast.Call) and sources.dotted(node.func) in RULES:
            values = {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.keywords}
            rules.append((sources.dotted(node.func), values["name"], values.get("srcs", [])))
    return rules


def test_is_up_to_date():
    run = subprocess.run(
        [sys.executable, "tools/update_build.py", "--check"],
        cwd=sources.ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    if run.returncode:
        pytest.fail(f"BUILD.bazel is behind: run tools/update_build.py\n{run.stdout}{run.stderr}", pytrace=False)


@pytest.mark.parametrize(
    ("kind", "folder"),
    [("py_library", "slimdp_tf"), ("py_library", "configs"), ("py_binary", "tools"), (None, "tests")],
)
def test_lists_every_file(kind, folder):
    listed = {file for rule, _, files in list_rules() if kind in (None, rule) for file in files}
    missing = [file for file in sources.list_files(folder) if file not in listed]
    assert not missing, f"not in BUILD.bazel, run tools/update_build.py: {missing}"


def test_every_test_file_is_a_test():
    cases = [file for file in sources.list_files("tests") if file.rpartition("/")[2].startswith("test_")]
    listed = {file for rule, _, files in list_rules() if rule == "py_test" for file in files}
    assert set(cases) <= listed


def test_names_and_files_are_right():
    rules = list_rules()
    names = [name for _, name, _ in rules]
    assert len(names) == len(set(names)), "two rules bear one name"
    gone = [file for _, _, files in rules for file in files if not (sources.ROOT / file).is_file()]
    assert not gone, f"in BUILD.bazel, not on disk: {gone}"
    # A rule may not be named like a file that another rule lists: Bazel takes both for one target.
    assert not set(names) & {file for _, _, files in rules for file in files}
