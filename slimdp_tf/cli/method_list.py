"""Reads lists of methods as people write them: plump, quant, slim(alpha=0.1), carry=slim(memory='carry')."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Sequence
from typing import Any

from slimdp_tf.method import Method
from slimdp_tf.training.config import call, find_method

_FORM = "name, name(option=value, ...) or label=name(option=value, ...)"


@dataclasses.dataclass(frozen=True)
class MethodCall:
    """A method as it was written.

    Attributes:
        label: how tables and pictures call it.
        name: of the factory.
        options: keyword -> value.
    """

    label: str
    name: str
    options: dict[str, Any]

    def make(self) -> Method:
        """Returns the method.

        Raises:
            ValueError: there is no such method or option, or a value is not allowed.
        """
        return call(find_method(self.name), self.options, f"option of the method {self.name!r}")


def read_methods(text: str, known: Sequence[str]) -> list[MethodCall]:
    """Returns the methods of a comma-separated list; nothing in it is run.

    Args:
        text: the list; "all" stands for all known methods.
        known: names of all methods.

    Raises:
        ValueError: something that has not the form of a method, an option whose value is no literal, a label twice.
    """
    calls: list[MethodCall] = []
    for element in _split(text):
        calls += [MethodCall(name, name, {}) for name in known] if element == "all" else [_read(element)]
    if not calls:
        raise ValueError(f"A list of methods must hold at least one {_FORM}. Received: {text!r}.")
    labels = [call.label for call in calls]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise ValueError(f"Each method of a list needs a label of its own, as again=plump. Received twice: {twice[0]}.")
    return calls


def _split(text: str) -> list[str]:
    """Cuts at the commas outside of brackets and quotes."""
    elements, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        else:
            depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0 and not quote:
            elements.append("")
        else:
            elements[-1] += letter
    return [element.strip() for element in elements if element.strip()]


def _read(element: str) -> MethodCall:
    try:
        statement = ast.parse(element).body[0]
    except (SyntaxError, ValueError) as error:
        raise _complain(element) from error
    if isinstance(statement, ast.Assign) and [type(target) for target in statement.targets] == [ast.Name]:
        label, expression = statement.targets[0].id, statement.value
    elif isinstance(statement, ast.Expr):
        label, expression = "", statement.value
    else:
        raise _complain(element)
    function, keywords = expression, []
    if isinstance(expression, ast.Call) and not expression.args:
        function, keywords = expression.func, expression.keywords
    if not all(isinstance(node, (ast.Name, ast.Attribute, ast.Load)) for node in ast.walk(function)):
        raise _complain(element)
    name = ast.unparse(function)
    options = dict(_read_option(element, keyword) for keyword in keywords)
    written = ", ".join(f"{key}={value}" for key, value in options.items())
    return MethodCall(label or (f"{name}({written})" if written else name), name, options)


def _read_option(element: str, keyword: ast.keyword) -> tuple[str, Any]:
    if keyword.arg is None:
        raise _complain(element)
    try:
        return keyword.arg, ast.literal_eval(keyword.value)
    except ValueError as error:
        written = ast.unparse(keyword.value)
        raise ValueError(
            f"The value of {keyword.arg} must be a number, True, False, None or text in quotes. "
            f"Received: {written} in {element!r}. Did you mean {keyword.arg}={written!r}?"
        ) from error


def _complain(element: str) -> ValueError:
    return ValueError(f"A method must be written as {_FORM}. Received: {element!r}.")
