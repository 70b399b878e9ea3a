"""pytest's plug-in: `--dbsp-seeds`, and a `==` between rows that says which rows differ.

A `conftest.py` names it: `pytest_plugins = ["dbsp.testing.plugin"]`. It is not found by itself, as every run of pytest in an
environment that has dbsp would import it.
"""

from __future__ import annotations

from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    group = parser.getgroup("dbsp")
    group.addoption(
        "--dbsp-seeds", type=int, default=None, help="how many random stories dbsp.testing.check plays (20)"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Take the option over; without it nothing of dbsp is imported."""
    seeds: int | None = config.getoption("--dbsp-seeds")
    if seeds is not None:
        from dbsp.testing import checking  # noqa: PLC0415 - only where the plug-in is used

        checking.DEFAULT["seeds"] = seeds


def pytest_assertrepr_compare(op: str, left: Any, right: Any) -> list[str] | None:
    """Return the rows that differ, where one side is a view or a change."""
    if op != "==" or "Rowset" not in (type(left).__name__, type(right).__name__):
        return None
    from dbsp.testing.comparing import difference  # noqa: PLC0415 - only where the plug-in is used

    return ["the rows differ: - is missing, + is too many", *difference(left, right).lines()]
