"""DuckDB as the tests' oracle: one thread, and without the rewrite that gives wrong rows."""

from __future__ import annotations

from functools import cache
from itertools import count

import duckdb

from dbsp.coordinator.query.statement import UNSOUND_REWRITES

_NUMBERS = count()


@cache
def _instance() -> duckdb.DuckDBPyConnection:
    """One instance for all tests of a process: to start one takes 15 ms of a processor."""
    return duckdb.connect(config={"threads": 1, "disabled_optimizers": UNSOUND_REWRITES})


def connect() -> duckdb.DuckDBPyConnection:
    """A connection with a database of its own, in memory; close it, or use it as a context manager."""
    made, name = _instance().cursor(), f"own{next(_NUMBERS)}"
    made.execute(f"attach ':memory:' as {name}; use {name}")
    return made
