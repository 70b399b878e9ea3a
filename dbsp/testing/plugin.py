"""Plug-in of pytest: the option `--dbsp-seeds`, and a report of differing rows for `==` between views.

A `conftest.py` has to name it: `pytest_plugins = ["dbsp.testing.plugin"]`. It is not registered as an entry point,
because then every run of pytest in an environment with dbsp would import it.
"""

from __future__ import annotations

from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--dbsp-seeds`."""
    group = parser.getgroup("dbsp")
    group.addoption(
        "--dbsp-seeds", type=int, default=None, help="how many random stories dbsp.testing.check plays (20)"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Set the number of random stories from the option; without the option nothing of dbsp is imported."""
    seeds: int | None = config.getoption("--dbsp-seeds")
    if seeds is not None:
        from dbsp.testing import checking  # noqa: PLC0415 - only where the plug-in is used

        checking.DEFAULT["seeds"] = seeds


def pytest_assertrepr_compare(op: str, left: Any, right: Any) -> list[str] | None:
    """Return the rows that differ if one side of a `==` is a view or a change, else None."""
    if op != "==" or "Rowset" not in (type(left).__name__, type(right).__name__):
        return None
    from dbsp.testing.comparing import difference  # noqa: PLC0415 - only where the plug-in is used

    return ["the rows differ: - is missing, + is too many", *difference(left, right).lines()]
