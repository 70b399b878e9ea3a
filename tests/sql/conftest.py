"""What the tests of SQL share: the oracle."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from tests import duck


@pytest.fixture(scope="session")
def oracle() -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB that takes queries as they are written: it is asked what they mean, not to be fast."""
    with duck.connect() as connection:
        connection.execute("pragma disable_optimizer")
        yield connection
