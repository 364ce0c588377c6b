"""tools/sum_tests.py adds up reports."""

from __future__ import annotations

import subprocess
import sys

from tests import sources

REPORT = '<testsuites><testsuite tests="{}" failures="{}" errors="{}" skipped="{}" /></testsuites>'


def sum_reports(*paths) -> str:
    command = [sys.executable, "tools/sum_tests.py", *map(str, paths)]
    return subprocess.run(command, cwd=sources.ROOT, capture_output=True, text=True, timeout=60, check=True).stdout


def test_adds_up_two_reports(tmp_path):
    (tmp_path / "one.xml").write_text(REPORT.format(10, 1, 2, 3), encoding="utf-8")
    (tmp_path / "two.xml").write_text(REPORT.format(5, 0, 0, 0), encoding="utf-8")
    assert sum_reports(tmp_path / "one.xml", tmp_path / "two.xml") == "tests: 9 passed, 3 failed, 3 skipped\n"


def test_a_missing_report_counts_nothing(tmp_path):
    assert sum_reports(tmp_path / "none.xml") == "tests: 0 passed, 0 failed, 0 skipped\n"
