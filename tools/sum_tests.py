"""Adds up pytest's JUnit reports and prints one line: `tests: 120 passed, 0 failed, 3 skipped`."""

from __future__ import annotations

import pathlib
import sys
import xml.etree.ElementTree


def count_tests(paths: list[pathlib.Path]) -> dict[str, int]:
    """Tests passed, failed (errors included) and skipped over all reports; a report that is missing counts nothing."""
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for path in paths:
        if not path.exists():
            continue
        for suite in xml.etree.ElementTree.parse(path).getroot().iter("testsuite"):
            total, failures, errors, skipped = (
                int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")
            )
            counts["failed"] += failures + errors
            counts["skipped"] += skipped
            counts["passed"] += total - failures - errors - skipped
    return counts


def main(arguments: list[str]) -> None:
    """Prints the sum of the reports named by `arguments`."""
    counts = count_tests([pathlib.Path(argument) for argument in arguments])
    print("tests: " + ", ".join(f"{count} {outcome}" for outcome, count in counts.items()))


if __name__ == "__main__":
    main(sys.argv[1:])
