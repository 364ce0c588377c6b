#!/usr/bin/env python3
"""Writes BUILD.bazel: every module, every program and every test, in a fixed order.

tools/update_build.py          writes the file
tools/update_build.py --check  exits with 1 and names what differs, writing nothing
"""

from __future__ import annotations

import difflib
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "BUILD.bazel"
RUNNER = "tests/run_under_bazel.py"

HEADER = """\
# Written by tools/update_build.py: do not edit. A test compares the two.
# pip and pytest are the tested way: CONTRIBUTING.md. Bazel's Python must have the packages that setup.py names.

load("@rules_python//python:defs.bzl", "py_binary", "py_library", "py_test")

package(default_visibility = ["//visibility:public"])
"""


def list_python(folder: str) -> list[str]:
    """Python files under a folder, as sorted paths from the root; programs without an ending included."""
    paths = [path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return sorted(path.relative_to(ROOT).as_posix() for path in paths if _holds_python(path))


def _holds_python(path: pathlib.Path) -> bool:
    if path.suffix:
        return path.suffix == ".py"
    with path.open("rb") as file:
        first = file.readline()
    return first.startswith(b"#!") and b"python" in first


def write_rule(kind: str, **attributes: str | list[str]) -> str:
    """One rule, as buildifier would lay it out."""
    lines = [f"{kind}("]
    for name, value in attributes.items():
        if isinstance(value, str):
            lines.append(f'    {name} = "{value}",')
        elif len(value) == 1:
            lines.append(f'    {name} = ["{value[0]}"],')
        elif value:
            lines += [f"    {name} = [", *[f'        "{item}",' for item in value], "    ],"]
    return "\n".join([*lines, ")"]) + "\n"


def write_test(file: str) -> str:
    """A py_test that hands one file to pytest; tests on clusters run alone."""
    needs_cluster = "mark.cluster" in (ROOT / file).read_text(encoding="utf-8")
    return write_rule(
        "py_test",
        name=file.removesuffix(".py"),
        size="enormous" if needs_cluster else "medium",
        srcs=sorted([file, RUNNER]),
        args=[f"$(rootpath {file})"],
        data=[":project_files"],
        main=RUNNER,
        tags=["cluster", "exclusive"] if needs_cluster else [],
        deps=[":configs", ":slimdp_tf", ":testing"],
    )


def write_build() -> str:
    """The whole text of BUILD.bazel."""
    tests = list_python("tests")
    cases = [file for file in tests if file.rpartition("/")[2].startswith("test_")]
    testing = [file for file in tests if file not in cases and file != RUNNER]
    rules = [
        write_rule("py_library", name="slimdp_tf", srcs=list_python("slimdp_tf"), imports=["."]),
        write_rule("py_library", name="configs", srcs=list_python("configs"), imports=["."], deps=[":slimdp_tf"]),
        write_rule("py_library", name="testing", testonly="1", srcs=testing, imports=["."], deps=[":slimdp_tf"]),
        # Some tests read the sources, the configs and the tools as files.
        'filegroup(\n    name = "project_files",\n    srcs = glob(\n        ["**"],\n        exclude = [\n'
        '            ".git/**",\n            ".venv*/**",\n            "bazel-*/**",\n            "runs/**",\n'
        "        ],\n    ),\n)\n",
    ]
    for file in list_python("tools"):
        name = file.removesuffix(".py")
        rules.append(
            write_rule("py_binary", name=f"{name}_program", srcs=[file], main=file, deps=[":configs", ":slimdp_tf"])
        )
    rules += [write_test(file) for file in cases]
    return "\n".join([HEADER, *rules]).replace('testonly = "1"', "testonly = True")


def main(arguments: list[str]) -> int:
    """Writes BUILD.bazel, or compares with --check."""
    if arguments not in ([], ["--check"]):
        print(f"update_build: takes nothing or --check, got {' '.join(arguments)}", file=sys.stderr)
        return 2
    wanted = write_build()
    current = BUILD.read_text(encoding="utf-8") if BUILD.exists() else ""
    if arguments == ["--check"]:
        differences = difflib.unified_diff(
            current.splitlines(), wanted.splitlines(), "BUILD.bazel", "as it should be", lineterm="", n=1
        )
        print("\n".join(differences))
        return int(current != wanted)
    BUILD.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
