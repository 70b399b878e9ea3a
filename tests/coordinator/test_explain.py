"""The plan of a query: what is read of each view at which step, and DuckDB's part; nothing is read unless it is to run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from dbsp.coordinator.query.explaining import Explained, explained
from dbsp.coordinator.service import Service
from dbsp.coordinator.serving import reads
from dbsp.coordinator.serving.queries import QueryReads
from dbsp.errors import ConfigError
from tests.coordinator.shop import ORDERS, script
from tests.coordinator.test_leased_views import pushed

SMALL = "all rows, all columns (a small view: read once for all queries of a step)"


def plan_of(service: Service, sql: str) -> list[str]:
    step, found = service.query(sql, 60)
    lines = found.column("QUERY PLAN").to_pylist()
    assert lines[0] == f"as of step {step}"
    return [str(line) for line in lines[1:]]


def test_a_plan_says_what_is_read_of_each_view(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    pushed(service)
    read: list[str] = []
    original = QueryReads._read_part
    monkeypatch.setattr(
        QueryReads, "_read_part", lambda own, *given: (read.append(given[1].view), original(own, *given))[1]
    )
    keyed = "explain select amount from large where id in (2, 3)"
    assert plan_of(service, keyed)[0].startswith(
        "large: rows where id in (2, 3), columns id, amount (looked up by id, "
    )
    filtered = "explain select * from large where amount = 600"
    assert plan_of(service, filtered)[0] == f"large: {SMALL}"
    joined = plan_of(
        service, "EXPLAIN (COSTS off) select customer, l.id from per_customer join large l using (customer)"
    )
    assert sorted(joined[:2]) == [f"large: {SMALL}", f"per_customer: {SMALL}"]
    assert joined[2] == "DuckDB:"
    assert "Join" in "".join(joined[3:])
    assert "Seq Scan" in "".join(joined[3:])
    assert "rows" not in "".join(joined[3:]), "a plan over tables without rows knows no numbers"
    monkeypatch.setattr(reads, "KEPT_VIEW_BYTES_MAX", -1)  # as if the views were large
    sieve = '; each piece is filtered: FROM "large" WHERE (amount = 600)'
    assert plan_of(service, filtered)[0].endswith(f"(all rows are read and filtered: the view's key is id){sieve}")
    first = plan_of(
        service,
        "explain select id as n from large where lower(customer) = 'b' or id < 2 order by n desc limit 2 offset 1",
    )
    assert first[0] == (
        'large: all rows, columns id, customer; each piece is filtered: FROM "large"'
        " WHERE ((lower(customer) = 'b') OR (id < 2)) ORDER BY id DESC, the first 3 rows"
    )
    assert plan_of(service, "explain select id from large")[0] == "large: all rows, columns id"
    assert plan_of(service, "explain select id from large limit 3")[0] == "large: the first 3 rows, columns id"
    assert plan_of(service, "explain select 1")[0] == "DuckDB:"
    assert plan_of(service, "explain select * from dead_letters")[0] == "dead_letters: all rows, all columns"
    assert read == []


def test_an_analyzed_query_runs(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    pushed(service)
    monkeypatch.setattr(reads, "KEPT_VIEW_BYTES_MAX", -1)  # as if the view were large
    lines = plan_of(service, "explain analyze select count(*) from large where amount in (600)")
    assert lines[0].startswith("large: rows where amount = 600, columns amount (")
    assert lines[0].endswith("; rows read: 1")
    assert "Total Time" in "".join(lines)


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("select 'explain'", None),
        ("explained", None),
        ("-- why\n /* so */ Explain select 1", Explained(" select 1")),
        ("explain (select 1)", Explained(" (select 1)")),
        ("explain verbose select 1", Explained(" select 1")),
        ("explain (analyze, verbose off) select 1", Explained(" select 1", analyze=True)),
    ],
)
def test_the_head_of_a_statement_is_taken_apart(sql: str, found: Explained | None) -> None:
    assert explained(sql) == found


@pytest.mark.parametrize(
    "sql", ["explain (nothing) select 1", "explain (format json) select 1", "explain (analyze 1 2) select 1"]
)
def test_other_options_are_refused(sql: str) -> None:
    with pytest.raises(ConfigError):
        explained(sql)


def test_only_a_select_has_a_plan(client: httpx.Client) -> None:
    for sql, code in (
        ("insert into large values (1)", 400),
        ("explain select 1", 400),
        ("", 400),
        ("select * from nowhere", 404),
    ):
        answer = client.post("/v1/query", json={"sql": f"explain {sql}"})
        assert answer.status_code == code, answer.text


def test_a_plan_over_http_and_on_the_command_line(client: httpx.Client, service: Service, folder: Path) -> None:
    pushed(service, ORDERS)
    found: dict[str, Any] = client.post(
        "/v1/query", json={"sql": "explain select customer from large where id = 2"}
    ).json()
    assert found["columns"] == ["QUERY PLAN"]
    shown = script(
        "cli",
        "--url",
        str(client.base_url),
        "query",
        "--explain",
        "select customer from large where id = 2",
        folder=folder,
    )
    lines: Sequence[str] = shown.stdout.splitlines()
    assert list(lines) == [line for (line,) in found["rows"]], shown
    ran = script("cli", "--url", str(client.base_url), "query", "--analyze", "select 1", folder=folder)
    assert "Total Time" in ran.stdout
