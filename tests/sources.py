"""The project's Python files and what they import, read with ast and never run."""

from __future__ import annotations

import ast
import functools
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent


def list_files(*folders: str) -> list[str]:
    """Python files under these folders, as sorted paths from the root; scripts without an ending included."""
    found = []
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if "__pycache__" not in path.parts and path.is_file() and holds_python(path):
                found.append(path.relative_to(ROOT).as_posix())
    return found


def holds_python(path: pathlib.Path) -> bool:
    """Whether the ending or the first line says Python."""
    if path.suffix:
        return path.suffix == ".py"
    with path.open("rb") as file:
        first = file.readline()
    return first.startswith(b"#!") and b"python" in first


def read(file: str) -> str:
    """The text of a file named from the root."""
    return (ROOT / file).read_text(encoding="utf-8")


@functools.cache
def parse(file: str) -> ast.Module:
    """The syntax tree of a file named from the root."""
    return ast.parse(read(file), filename=file)


def module_name(file: str) -> str:
    """slimdp_tf/rules/codecs.py -> slimdp_tf.rules.codecs; slimdp_tf/rules/__init__.py -> slimdp_tf.rules."""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def list_imports(file: str) -> list[tuple[int, str]]:
    """(line, dotted name) of every import, those inside functions too; `from a import b` gives a.b.

    A name handed to importlib.import_module or __import__ as a literal counts as well.
    """
    found = []
    for node in ast.walk(parse(file)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = _resolve(file, node)
            found += [(node.lineno, origin if alias.name == "*" else f"{origin}.{alias.name}") for alias in node.names]
        elif isinstance(node, ast.Call) and dotted(node.func).split(".")[-1] in ("import_module", "__import__"):
            found += [(node.lineno, arg.value) for arg in node.args[:1] if _is_text(arg)]
    return found


def _resolve(file: str, node: ast.ImportFrom) -> str:
    """The module named by a from-import, dots at its beginning resolved."""
    if not node.level:
        return node.module
    package = module_name(file).split(".")
    if not file.endswith("/__init__.py"):
        package = package[:-1]
    package = package[: len(package) - (node.level - 1)]
    return ".".join(package + ([node.module] if node.module else []))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def dotted(node: ast.AST) -> str:
    """The name chain of an expression: tf.keras.Model -> "tf.keras.Model"; "" at its head for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


def list_names(file: str) -> list[tuple[int, str]]:
    """(line, dotted name) of every import and of every name chain used in expressions."""
    chains = [(node.lineno, dotted(node)) for node in ast.walk(parse(file)) if isinstance(node, ast.Attribute)]
    return list_imports(file) + chains


def list_private(file: str) -> list[tuple[int, str]]:
    """(line, name) of every x._name and getattr(x, "_name"), but for os._exit, which is public."""
    found = []
    for node in ast.walk(parse(file)):
        if isinstance(node, ast.Attribute) and dotted(node) != "os._exit":
            found.append((node.lineno, node.attr))
        elif isinstance(node, ast.Call) and dotted(node.func) in ("getattr", "hasattr", "setattr", "delattr"):
            found += [(node.lineno, argument.value) for argument in node.args[1:2] if _is_text(argument)]
    return [(line, name) for line, name in found if name.startswith("_") and not name.startswith("__")]


def list_own(*files: str) -> set[str]:
    """Names that these files define, as functions, classes or variables, or set on an object."""
    found = set()
    for node in (node for file in files for node in ast.walk(parse(file))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.id if isinstance(node, ast.Name) else node.attr)
    return found


def list_texts(file: str) -> list[tuple[int, str]]:
    """(line, value) of every string literal that is not a docstring or a bare string."""
    tree = parse(file)
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [(node.lineno, node.value) for node in ast.walk(tree) if _is_text(node) and id(node) not in bare]


@functools.cache
def list_modules() -> frozenset[str]:
    """Dotted names of all modules and packages of slimdp_tf and configs."""
    return frozenset(module_name(file) for file in list_files("slimdp_tf", "configs"))
