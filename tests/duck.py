"""DuckDB as the tests' oracle: one thread, and without the rewrite that gives wrong rows."""

from __future__ import annotations

import duckdb

from dbsp.coordinator.query.statement import UNSOUND_REWRITES


def connect() -> duckdb.DuckDBPyConnection:
    """A database of its own, in memory; close it, or use it as a context manager."""
    return duckdb.connect(config={"threads": 1, "disabled_optimizers": UNSOUND_REWRITES})
