"""Pytest plug-in that notes for every test which mutants it reaches, and its processor seconds: one line of JSON each.

What a fixture of a module or a package reaches counts for every later test of the file, because later tests judge it too.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

_setups: defaultdict[str, set[int]] = defaultdict(set)


def _seen() -> set[int]:
    """Return the set of the overlay."""
    found: set[int] = sys.modules["sitecustomize"].seen
    return found


def _elsewhere() -> Path:
    """Return the file of other processes."""
    return Path(os.environ["DBSP_REACHED"])


def _seconds() -> float:
    """Return the processor seconds of this process and of its children that ended."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """Note what fixtures reach."""
    yield
    _setups[_file(item)] |= _seen()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
    """Note one test."""
    _seen().clear()
    _elsewhere().write_text("")
    outcomes.clear()
    began = _seconds()
    result = yield
    numbers = _seen() | {int(line) for line in _elsewhere().read_text().split()} | _setups[_file(item)]
    _write(
        test=item.nodeid,
        seconds=round(_seconds() - began, 3),
        passed=outcomes == {"passed"},
        reached=sorted(numbers),
    )
    if nextitem is None or _file(nextitem) != _file(item):
        _write(file=_file(item))
    return result


outcomes: set[str] = set()


def _write(**line: Any) -> None:
    """Add a line; one with `file` says that all tests of the file have run."""
    with Path(os.environ["DBSP_RECORD"]).open("a") as file:
        file.write(json.dumps(line) + "\n")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how each part of a test ended."""
    outcomes.add(report.outcome)


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]
