"""Reads of a service beside its steps: leases are shared, bounded in number and time, and end with everything else."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from dbsp.coordinator.query import process
from dbsp.coordinator.query.statement import QueryLimits, run_query
from dbsp.coordinator.service import Service
from dbsp.coordinator.serving import queries, reads
from dbsp.coordinator.serving.queries import QueryReads
from dbsp.errors import ConfigError, OverloadedError, UnavailableError
from tests.coordinator.shop import ORDERS, settings
from tests.spark.waiting import until


def pushed(service: Service, rows: Any = ORDERS) -> None:
    service.wait_until_processed(service.push("orders", rows), 60)


def order(number: int, customer: str = "c") -> pa.Table:
    return pa.table({"id": [number], "customer": [customer], "amount": [700]})


@pytest.fixture
def short(folder: Path) -> Iterator[Service]:
    """A service whose leases are short and few."""
    made = Service(settings(folder, "query.lease_s=0.3", "query.leases_max=2"))
    made.start(timeout_s=60)
    yield made
    made.stop(quiet=True)


def test_a_read_is_of_one_step_while_further_steps_run(service: Service) -> None:
    pushed(service)
    with service.leases.taken(("per_customer", "large"), 60) as leased:
        for number in range(10, 20):
            pushed(service, order(number))
        assert service.snapshot.step > leased.step
        tables = {view: pa.concat_tables(leased.read(view)).to_pylist() for view in ("per_customer", "large")}
    assert {row["customer"]: row["orders"] for row in tables["per_customer"]} == {"a": 1, "b": 2}
    assert [row["id"] for row in tables["large"]] == [2]
    assert service.leases.count == 0  # its step is over, so it serves no other reader
    assert len(service.read_view("large").table) == 11
    until(lambda: service.leases.count == 0, "the lease ends")


def test_readers_of_one_step_share_a_lease_and_a_read(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    pushed(service)
    reads, may_go = [], threading.Event()
    shared = service.leases.take(("large",), 60)
    original = shared.leased.read

    def read(view: str, *wanted: Any) -> Iterator[pa.Table]:
        reads.append(view)
        may_go.wait(60)
        yield from original(view, *wanted)

    shared.leased.read = read  # type: ignore[method-assign]
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(service.read_view("large", 60))) for _ in range(3)]
    for thread in threads:
        thread.start()
    until(lambda: shared.users == 4, "all readers share the lease")
    may_go.set()
    for thread in threads:
        thread.join()
    service.leases.give_back(shared)
    assert reads == ["large"]
    assert len({id(rows) for rows in found}) == 1
    until(lambda: service.leases.count == 0, "the lease ends")


def test_a_lease_ends_after_its_time(short: Service) -> None:
    pushed(short)
    with short.leases.taken(("large",), 60) as leased:
        until(lambda: short.leases.count == 0, "the lease ends")
        with pytest.raises(UnavailableError, match="lease has ended"):
            list(leased.read("large"))
    pushed(short, order(10))
    assert len(short.read_view("large").table) == 2


def test_so_many_steps_are_leased_and_no_more(folder: Path) -> None:
    with Service(settings(folder, "query.leases_max=2")) as service:
        held = []
        for number in range(2):
            pushed(service, order(number))
            held.append(service.leases.take(("large",), 60))
        pushed(service, order(7))
        with pytest.raises(OverloadedError, match="leases_max=2"):
            service.read_view("large")
        service.leases.give_back(held.pop())
        assert len(service.read_view("large").table) == 3
        service.leases.give_back(held.pop())


def test_a_reader_that_did_not_wait_leaves_no_lease(service: Service) -> None:
    pushed(service)
    may_go = threading.Event()
    service._loop.ask(lambda *_: may_go.wait(60))
    with pytest.raises(UnavailableError, match="no answer in time"):
        service.leases.take(("large",), 0.01)
    may_go.set()
    service._loop.ask(lambda *_: None).result(60)
    until(lambda: service.leases.count == 0, "the lease ends")


def test_a_rescale_ends_a_lease_without_harm(service: Service) -> None:
    pushed(service)
    shared = service.leases.take(("per_customer",), 60)
    service.rescale(3)
    pushed(service, order(9))
    with pytest.raises(UnavailableError):
        list(shared.leased.read("per_customer"))
    assert {row["customer"]: row["orders"] for row in service.read_view("per_customer").table.to_pylist()} == {
        "a": 1, "b": 2, "c": 1,
    }  # fmt: skip
    service.leases.give_back(shared)
    until(lambda: service.leases.count == 0, "the lease ends")


def test_a_stopped_service_holds_no_lease(folder: Path) -> None:
    with Service(settings(folder)) as service:
        pushed(service)
        shared = service.leases.take(("large",), 60)
    assert shared.over
    gc.collect()
    with Service(settings(folder)) as again:
        assert len(again.read_view("large").table) == 1


def test_rows_by_key_and_columns(service: Service) -> None:
    pushed(service)
    assert service.read_view("large", key={"id": 2}).table.to_pylist() == [
        {"id": 2, "customer": "b", "amount": 600, "weight": 1}
    ]
    assert len(service.read_view("large", key={"id": 1}).table) == 0
    found = service.read_view("per_customer", key={"customer": "b", "orders": 2}, columns=["amount"]).table
    assert found.to_pylist() == [{"amount": 601, "weight": 1}]
    assert len(service.read_view("per_customer", key={"customer": "b", "orders": 1}).table) == 0
    for key in ({"nothing": 1}, {"orders": "two"}):
        with pytest.raises(ConfigError, match=next(iter(key))):
            service.read_view("per_customer", key=key)
    with pytest.raises(ConfigError, match="nothing"):
        service.read_view("per_customer", columns=["nothing"])


ALL, CUSTOMER = "all columns", "columns customer"
PARTS = [
    ("select amount from large where id = 2", ["rows where id = 2, columns id, amount"]),
    ("select l.amount from large l where 2 = l.id and customer = 'b'", ["rows where id = 2 and customer = 'b', all columns"]),
    ("select count(*) from (select * from large where id = 2) x", [f"rows where id = 2, {ALL}"]),
    ("select amount from large where id in (2, 11, 2)", ["rows where id in (2, 11), columns id, amount"]),
    ("select amount from large where id in (2) and amount in (600, 700)",
     ["rows where id = 2 and amount in (600, 700), columns id, amount"]),
    ("select amount from large where id in (2, null)", ["all rows, columns id, amount"]),
    ("select amount from large where id in (2, amount)", ["all rows, columns id, amount"]),
    ("select amount from large where id not in (2, 11)", ["all rows, columns id, amount"]),
    ("select customer from large where id = 2 or id = 10", ["all rows, columns id, customer"]),
    ("select a.id from large a, large b where a.id = 2", ["all rows, columns id"]),
    ("select amount as id from large where id = 2", ["all rows, columns id, amount"]),
    ("select id from large where not (id = 2)", ["all rows, columns id"]),
    ("select id from large where id = '2'", ["all rows, columns id"]),
    ("select x.a from large as x(a, b, c) where x.a = 2", [f"all rows, {ALL}"]),
    ("with large as (select * from large) select id from large where id = 2", [f"all rows, {ALL}"]),
    ("select id from large where id = 99999999999999999999", ["all rows, columns id"]),
    ("select count(*) from per_customer p left join (select * from large where id = 10) l on l.customer = p.customer",
     [f"all rows, {ALL}", f"rows where id = 10, {ALL}"]),
    ("select p.orders, l.ID from per_customer p join large l using (customer)",
     ["all rows, columns customer, orders", "all rows, columns id, customer"]),
    ("select p.orders from per_customer p natural join large l", [f"all rows, {ALL}", f"all rows, {ALL}"]),
    ("select count(*) from large", ["all rows, columns id"]),
    ("select large from large", [f"all rows, {ALL}"]),
    ("select #2 from large", [f"all rows, {ALL}"]),
    ("select columns('a.*') from large", [f"all rows, {ALL}"]),
    ("select sum(z) from (select amount + 1 as z from large) x", ["all rows, columns amount"]),
    ("with c(z) as (select amount from large) select max(z) from c", ["all rows, columns amount"]),
    ("select customer, row_number() over (partition by customer order by id) from large", ["all rows, columns id, customer"]),
    ("select id from large order by amount desc limit 1", ["all rows, columns id, amount"]),
    ("select distinct customer from large limit 1", [f"all rows, {CUSTOMER}"]),
    ("select count(*) from large limit 1", ["all rows, columns id"]),
    ("select customer from large where amount > 600 limit 1", ["rows where amount > 600, columns customer, amount"]),
    ("select id from large where 600 <= amount and id < 12 and amount < 800.5",
     ["rows where amount >= 600 and amount <= 801 and id < 12, columns id, amount"]),
    ("select id from large where id between 3 and 11 and customer > 'a'",
     ["rows where id >= 3 and id <= 11 and customer > 'a', columns id, customer"]),
    ("select id from large where id in (10, 11) and id > 10", ["rows where id in (10, 11), columns id"]),
    ("select id from large where id > 3 or amount > 1", ["all rows, columns id, amount"]),
    ("select id from large where id not between 3 and 11", ["all rows, columns id"]),
    ("select id from large where amount > 1e2 and customer < 5::text", ["all rows, all columns"]),
    ("select a.id from large a, large b where a.id > 2", ["all rows, columns id"]),
    ("select customer from large limit 2", [f"the first 2 rows, {CUSTOMER}"]),
    ("select * from large limit 1 offset 1", [f"the first 2 rows, {ALL}"]),
    ("select customer from large limit 50%", [f"all rows, {CUSTOMER}"]),
    ("select customer from large limit (select 1)", [f"all rows, {CUSTOMER}"]),
    ("select list_transform([1], lambda x: x + id)[1] from large", [f"all rows, {ALL}"]),
]  # fmt: skip


def test_a_query_reads_the_part_that_it_needs(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer over the part is that over the whole views."""
    pushed(service)
    pushed(service, pa.table({"id": [10, 11, 12], "customer": ["b", None, "a"], "amount": [700, 800, 600]}))
    views = {view: service.read_view(view).table for view in service.views()}
    monkeypatch.setattr(reads, "KEPT_VIEW_BYTES_MAX", -1)  # as if the views were large
    monkeypatch.setattr(service, "_kept_views", {})
    asked: list[str] = []
    original = QueryReads._read_part
    monkeypatch.setattr(
        QueryReads, "_read_part", lambda own, *given: (asked.append(given[1].described()), original(own, *given))[1]
    )
    for sql, parts in PARTS:
        asked.clear()
        found = service.query(sql, 60)[1].to_pylist()
        assert found == run_query(sql, views, QueryLimits()).to_pylist(), sql
        assert sorted(asked) == sorted(parts), sql


def test_a_limit_reads_no_further(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [{"id": number, "customer": "c", "amount": 900} for number in range(50_000)]
    pushed(service, pa.Table.from_pylist(many))
    monkeypatch.setattr(reads, "KEPT_VIEW_BYTES_MAX", -1)
    seen: list[int] = []
    original = QueryReads._read_part

    def read(own: QueryReads, leased: Any, part: Any) -> Any:
        found = original(own, leased, part)
        seen.append(len(found))
        return found

    monkeypatch.setattr(QueryReads, "_read_part", read)
    assert len(service.query("select id from large limit 10", 60)[1]) == 10
    assert len(service.query("select id from large", 60)[1]) == 50_000
    assert 10 <= seen[0] < 50_000 == seen[1]


def test_a_limit_after_where_or_order_holds_no_more_than_it_needs(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are read in pieces until there are enough, or none is left; the answer is that over the whole view."""
    many = [{"id": number, "customer": f"c{number % 7}", "amount": 900 + number % 100} for number in range(50_000)]
    pushed(service, pa.Table.from_pylist(many))
    whole = {"large": service.read_view("large").table}
    monkeypatch.setattr(reads, "KEPT_VIEW_BYTES_MAX", -1)
    monkeypatch.setattr(queries, "PIECE_ROWS", 5_000)
    monkeypatch.setattr(service, "_kept_views", {})
    sent: list[int] = []
    original = process.put_table
    monkeypatch.setattr(process, "put_table", lambda sink, table: (sent.append(len(table)), original(sink, table))[1])
    for sql, rows in (
        ("select id from large where customer like '%3' limit 10", 5_000),
        (
            "select id, upper(customer) as c from large where customer = 'c2' or amount > 998 limit 700 offset 300",
            10_000,
        ),
        ("select id from large where length(customer) > 2 limit 1", 50_000),
        ("select id, amount from large order by amount desc, id limit 3 offset 2", 50_000),
        ("select count(*) from (select * from large where lower(customer) in ('c1', 'c2')) x", 50_000),
    ):
        sent.clear()
        ((_, found), expected) = service.query(sql, 60), run_query(sql, whole, QueryLimits())
        assert len(found) == len(expected), sql
        if "order by" in sql or "count" in sql:
            assert found.to_pylist() == expected.to_pylist(), sql
        assert sum(sent) == rows, sql
        assert max(sent) <= 5_000, sql
        analyzed = service.query(f"explain analyze {sql}", 60)[1].column(0).to_pylist()[1]
        assert analyzed.endswith(f"; rows read: {rows}"), sql
        assert 'each piece is filtered: FROM "large"' in analyzed


def test_a_small_view_is_read_whole_once_for_all_queries_of_a_step(service: Service) -> None:
    pushed(service)
    service.query("select customer from large", 60)
    kept = service.kept("large")
    assert kept is not None
    assert kept.table.column_names == ["id", "customer", "amount", "weight"]


def test_an_error_names_columns_like_a_misspelled_one(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    pushed(service)
    monkeypatch.setattr(reads, "KEPT_VIEW_BYTES_MAX", -1)
    with pytest.raises(ConfigError, match='Candidate bindings: "amount"'):
        service.query("select amout from large", 60)


def test_rows_by_key_over_http(client: httpx.Client, service: Service) -> None:
    pushed(service)
    found = client.get("/v1/views/large", params={"key": '{"id": 2}'}).json()
    assert (found["rows"], found["weights"]) == ([{"id": 2, "customer": "b", "amount": 600}], [1])
    assert client.get("/v1/views/large", params={"key": '{"customer": null}'}).json()["rows"] == []
    for wrong in ("2", "{}", '{"nothing": 1}', '{"id": "x"}', "{"):
        answer = client.get("/v1/views/large", params={"key": wrong})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "config"), wrong
