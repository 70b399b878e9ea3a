"""Results of queries in portions: the same rows as at once, in memory that does not grow with them; nothing is left behind."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dbsp.coordinator.http.kinds import ARROW, CSV, JSON_LINES
from dbsp.coordinator.service import Service
from dbsp.errors import CapacityError, ConfigError, UnavailableError
from tests.coordinator.shop import ORDERS, answering, settings

ROWS = 40_000
TEXT = "case when range % 3 = 0 then null when range % 3 = 1 then '' else 'a, \"b\"' end"
MANY = f"select range as n, {TEXT} as t from range({ROWS})"


@pytest.fixture
def few(folder: Path) -> Iterator[Service]:
    """A service that runs one query at a time, and whose whole results are small."""
    with Service(settings(folder, "query.at_once_max=1", "query.rows_max=1000", "query.result_mb_max=1")) as made:
        made.wait_until_processed(made.push("orders", ORDERS))
        yield made


def expected() -> list[dict[str, Any]]:
    return [{"n": n, "t": (None, "", 'a, "b"')[n % 3]} for n in range(ROWS)]


def test_any_number_of_rows_over_http(few: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    for large in (False, True):
        if large:
            monkeypatch.setattr("dbsp.coordinator.http.views.KEPT_VIEW_BYTES_MAX", 1000)
        with answering(few) as client:

            def sent(kind: str, sql: str = MANY) -> Any:
                return client.post("/v1/query", json={"sql": sql}, headers={"Accept": kind}, timeout=60)

            assert client.post("/v1/query", json={"sql": MANY}).status_code == 413
            arrow = sent(ARROW)
            assert arrow.headers["Dbsp-Step"] == "1"
            assert pa.ipc.open_stream(arrow.content).read_all().to_pylist() == expected()
            lines = sent(JSON_LINES).text.splitlines()
            assert [json.loads(line) for line in lines] == expected()
            text = sent(CSV).text
            assert text.startswith('"n","t"\n0,\n1,""\n2,"a, ""b"""\n')
            assert len(list(csv.reader(io.StringIO(text)))) == ROWS + 1
            for kind in (ARROW, JSON_LINES, CSV):
                assert sent(kind, "select no from large").status_code == 400
                assert sent(kind, "select * from large where id < 0").status_code == 200
            nested = sent(CSV, "select [1, 2] as l, 1.50::decimal(9, 2) as d, date '2024-01-02' as t").text
            assert nested == '"l","d","t"\n"[1, 2]","1.50","2024-01-02"\n'


def resident_mb() -> float:
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


def test_memory_does_not_grow_with_the_result(few: Service) -> None:
    sql = "select range as n, repeat('x', 200) || range as t from range(1200000)"
    with answering(few) as client:
        client.post("/v1/query", json={"sql": "select 1"})
        before, most, size = resident_mb(), 0.0, 0
        with client.stream("POST", "/v1/query", json={"sql": sql}, headers={"Accept": ARROW}, timeout=120) as answer:
            for piece in answer.iter_raw(1 << 20):
                size += len(piece)
                most = max(most, resident_mb() - before)
    assert size > 240 << 20
    assert most < 125, f"{size >> 20} MiB were sent, and memory grew by {most:.0f} MiB"


def test_a_result_that_is_left_makes_place_for_the_next(few: Service) -> None:
    result = few.open_query(MANY, 10)
    assert result.next() is not None
    with pytest.raises(UnavailableError, match="too many queries"):
        few.query("select 1", 0.2)
    result.close()
    assert few.query("select 1 as a", 10)[1].to_pylist() == [{"a": 1}]
    whole = few.open_query(MANY, 10)
    assert sum(len(table) for table in iter(whole.next, None)) == ROWS
    assert few.query("select 2 as a", 10)[1].to_pylist() == [{"a": 2}]


def test_a_result_that_is_read_too_slowly_ends(folder: Path) -> None:
    with Service(settings(folder, "query.at_once_max=1", "query.lease_s=3")) as service:
        result = service.open_query("select range, repeat('y', 500) from range(1000000)", 10)
        assert service.query("select 1 as a", 10)[1].to_pylist() == [{"a": 1}], "its place was taken back"
        with pytest.raises(CapacityError, match="read too slowly"):
            list(iter(result.next, None))
        result.close()


def test_an_error_after_some_rows_is_raised(few: Service) -> None:
    result = few.open_query(
        f"select case when range < {10 * ROWS} then 1 else error('late') end as e from range({20 * ROWS})", 10
    )
    assert result.next() is not None
    with pytest.raises(ConfigError, match="late"):
        list(iter(result.next, None))
    assert few.query("select 1 as a", 10)[1].to_pylist() == [{"a": 1}]
