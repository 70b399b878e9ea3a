"""Runs the tests of one mutant, file after file, until one fails: `python -m tools.mutation.trial TESTS RESULT`.

TESTS is a file of JSON: a list of lists of tests, one a file. RESULT gets the tests that failed, and stays empty if none did.
All run in one process, which imports the product once.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

OPTIONS = ("-x", "-q", "--tb=line", "-p", "no:cacheprovider", "-p", "no:tests.seconds", "-o", "timeout=0")


class Failures:
    """Notes the first failure."""

    def __init__(self) -> None:
        """Begin with none."""
        self.first = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failed test."""
        if report.failed:
            self.first = self.first or f"{report.nodeid}: {str(report.longrepr).splitlines()[-1][:200]}"

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that cannot be imported."""
        if report.failed:
            self.first = self.first or f"{report.nodeid}: not collected"


def main(tests: Path, result: Path) -> None:
    """Run them."""
    for group in json.loads(tests.read_text()):
        failures = Failures()
        code = pytest.main([*OPTIONS, *group], plugins=[failures])
        if code != pytest.ExitCode.OK:
            result.write_text(failures.first or f"{group[0]}: pytest ended with {code!r}")
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
