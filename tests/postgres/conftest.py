"""A service whose views have every type, answering PostgreSQL's protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dbsp.coordinator.postgres.listen import PostgresServer, bind_postgres
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import load_config
from tests.postgres.kinds import CIRCUIT, ROWS, SETTINGS

psycopg = pytest.importorskip("psycopg", reason="needs psycopg: pip install -e '.[test]'")


@contextmanager
def answering(folder: Path, *overrides: str) -> Iterator[PostgresServer]:
    """A service in a folder, with its server."""
    (folder / "circuit.py").write_text(CIRCUIT)
    (folder / "pipeline.toml").write_text(SETTINGS)
    config = load_config(folder / "pipeline.toml", overrides=overrides, environment={})
    with Service(config) as service:
        service.push("kinds", pa.Table.from_pylist(ROWS, schema=service.table("kinds").schema.to_arrow()))
        service.push("orders", pa.table({"id": [1, 2], "customer": ["a", "b"], "amount": [10, 600]}))
        bound = bind_postgres(config.postgres, has_tokens=config.http.needs_token)
        assert bound is not None
        server = PostgresServer(service, bound)
        service.postgres_status = server.status
        server.start()
        until_processed(service)
        yield server
        server.stop()


def until_processed(service: Service) -> None:
    assert service.live_status.wait_for(lambda _now: service.lag_rows() == 0, 60)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    with answering(tmp_path_factory.mktemp("postgres")) as made:
        yield made


Connect = Callable[..., Any]


@pytest.fixture
def connect(server: PostgresServer) -> Iterator[Connect]:
    """A function that connects by psycopg; all connections end with the test."""
    made: list[Any] = []

    def connected(**more: Any) -> Any:
        host, port = server.address
        given = {"host": host, "port": port, "dbname": "kinds", "user": "me", "autocommit": True, **more}
        made.append(psycopg.connect(**given))
        return made[-1]

    yield connected
    for each in made:
        each.close()


def check_refused(connection: Any, sql: str, sqlstate: str, story: str) -> None:
    """A statement is refused with this code and story, and the session goes on."""
    with pytest.raises(psycopg.Error) as caught:
        connection.execute(sql)
    assert caught.value.sqlstate == sqlstate
    assert story in f"{caught.value.diag.message_primary} {caught.value.diag.message_hint}"
    assert connection.execute("select 1").fetchone() == (1,)
