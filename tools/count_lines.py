"""Prints, as a Markdown table, how many lines of code each method takes: its factory, and the rules it is made of.

Lines are those that Python runs: no blank lines, comments or docstrings. Functions that rules call are not counted.
"""

from __future__ import annotations

import ast
import collections
import dataclasses
import inspect
import io
import textwrap
import tokenize
from collections.abc import Iterator

from slimdp_tf import methods
from slimdp_tf.method import Method


def count_code(thing: type | object) -> int:
    """Lines of code of a class or function."""
    source = textwrap.dedent(inspect.getsource(thing))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            docstring = node.body[0]
            lines.difference_update(range(docstring.lineno, docstring.end_lineno + 1))
    return len(lines)


_NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def rules_of(thing: object) -> Iterator[type]:
    """The classes of the rules that a method, a channel or a rule holds, in whatever depth."""
    if type(thing).__module__.startswith("slimdp_tf.rules."):
        yield type(thing)
    if dataclasses.is_dataclass(thing):
        for field in dataclasses.fields(thing):
            yield from rules_of(getattr(thing, field.name))
    elif isinstance(thing, (tuple, list)):
        for element in thing:
            yield from rules_of(element)


def make_all() -> dict[str, Method]:
    """Every method at its defaults."""
    return {name: getattr(methods, name)() for name in methods.names()}


def print_table() -> None:
    """Prints a line per method: its factory, the rules that no other method uses, and those it shares."""
    rules = {name: set(rules_of(method)) for name, method in make_all().items()}
    users = collections.Counter(rule for used in rules.values() for rule in used)
    print("| method | factory | rules of its own | lines of them | rules it shares, lines |")
    print("|---|---|---|---|---|")
    for name, used in rules.items():
        own = sorted((rule for rule in used if users[rule] == 1), key=lambda rule: rule.__name__)
        shared = sum(count_code(rule) for rule in used if users[rule] > 1)
        factory = count_code(inspect.unwrap(getattr(methods, name)))
        names = ", ".join(f"`{rule.__name__}`" for rule in own) or "-"
        print(f"| `{name}` | {factory} | {names} | {sum(map(count_code, own)) or '-'} | {shared} |")


if __name__ == "__main__":
    print_table()
