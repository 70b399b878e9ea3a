"""A service whose views have every type, answering Flight SQL, and a client that others wrote: ADBC's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dbsp.coordinator.flight.listen import bind_flight
from dbsp.coordinator.flight.server import FlightServer
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import load_config
from tests.postgres.conftest import until_processed
from tests.postgres.kinds import CIRCUIT, ROWS, SETTINGS

dbapi: Any = pytest.importorskip(
    "adbc_driver_flightsql.dbapi", reason="needs ADBC's driver: pip install -e '.[test]'", exc_type=ImportError
)


@contextmanager
def answering(folder: Path, *overrides: str) -> Iterator[Any]:
    """A service in a folder, with its server."""
    (folder / "circuit.py").write_text(CIRCUIT)
    (folder / "pipeline.toml").write_text(f"{SETTINGS}\n[flight]\nport = 0\n")
    config = load_config(folder / "pipeline.toml", overrides=overrides, environment={})
    with Service(config) as service:
        service.push("kinds", pa.Table.from_pylist(ROWS, schema=service.table("kinds").schema.to_arrow()))
        service.push("orders", pa.table({"id": [1, 2], "customer": ["a", "b"], "amount": [10, 600]}))
        bound = bind_flight(config.flight, has_tokens=config.http.needs_token)
        assert bound is not None
        server = FlightServer(service, bound)
        service.flight_status = server.status
        server.start()
        until_processed(service)
        try:
            yield server
        finally:
            server.stop()


Connect = Callable[..., Any]


@contextmanager
def connecting() -> Iterator[Connect]:
    """A function that connects to a server; all connections end with the body."""
    with ExitStack() as stack:

        def connected(server: Any, **options: str) -> Any:
            named = {f"adbc.flight.sql.{name}": value for name, value in options.items() if name not in PLAIN}
            plain = {name: value for name, value in options.items() if name in PLAIN}
            return stack.enter_context(dbapi.connect(server.url, db_kwargs=named | plain, autocommit=True))

        yield connected


PLAIN = ("username", "password")


@pytest.fixture
def connect() -> Iterator[Connect]:
    with connecting() as made:
        yield made


def asked(connection: Any, sql: str, values: Any = None) -> pa.Table:
    """The result of a statement."""
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return cursor.fetch_arrow_table()


def check_refused(connection: Any, sql: str, *stories: str) -> None:
    """A statement is refused with these words and no others of ours, and the connection goes on."""
    with pytest.raises(dbapi.Error) as caught:
        asked(connection, sql)
    for story in stories:
        assert story in str(caught.value)
    assert "Traceback" not in str(caught.value)
    assert asked(connection, "select 1 as one").to_pylist() == [{"one": 1}]
