"""Runs a module of this package in an interpreter that has no TensorFlow: alone.py MODULE ARGUMENT ...

The package's own __init__ imports TensorFlow; an empty package of the same name stands in for it here.
"""

from __future__ import annotations

import pathlib
import runpy
import sys
import types

_PACKAGE = pathlib.Path(__file__).resolve().parents[1]


def main(arguments: list[str]) -> None:
    """Runs the module that the first argument names, with the others as its arguments."""
    package = types.ModuleType(_PACKAGE.name)
    package.__path__ = [str(_PACKAGE)]
    sys.modules[_PACKAGE.name] = package
    sys.argv[:] = arguments
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    sys.path[:] = [path for path in sys.path if path != str(pathlib.Path(__file__).resolve().parent)]
    main(sys.argv[1:])
