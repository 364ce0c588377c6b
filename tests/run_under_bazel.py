"""Runs one test file with pytest: the main program of every py_test in BUILD.bazel."""

import sys

import pytest

if __name__ == "__main__":
    sys.exit(pytest.main(["-p", "no:cacheprovider", *sys.argv[1:]]))
