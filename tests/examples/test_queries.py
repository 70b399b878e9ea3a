"""The gallery of queries against its SQL in DuckDB, through random insertions, replacements and deletions."""

from __future__ import annotations

import datetime as dt
import math
import random
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import dbsp
from examples.queries import fraud, goods, graphs, history, market, money, operations, sensors, shops, stays, visitors
from examples.queries.gallery import Query
from tests import duck
from tests.pace import anew, few, in_turn

Row = dict[str, Any]
Chance = random.Random

QUERIES = {
    name: query
    for module in (fraud, goods, graphs, history, market, money, operations, sensors, shops, stays, visitors)
    for name, query in vars(module).items()
    if isinstance(query, Query)
}
BEGIN = dt.datetime(2024, 1, 1)
PARTITIONS = 2
STEPS, CHECKPOINT, RESTART = 6, 2, 4


def minute(chance: Chance, minutes: int = 300) -> dt.datetime:
    return BEGIN + dt.timedelta(minutes=chance.randrange(minutes))


def maybe(chance: Chance, value: Any) -> Any:
    return None if chance.random() < 0.15 else value


def log_line(chance: Chance) -> str:
    if chance.random() < 0.1:
        return "-- MARK --"
    path, status = chance.choice(["a", "b?x=1", "c"]), chance.choice([200, 404, 500, 503])
    return f'10.0.0.{chance.randrange(4)} - - [01/Jan/2024] "GET /{path} HTTP/1.1" {status} 12'


def grant(chance: Chance) -> Row:
    user, group = f"user:{chance.choice('abc')}", f"group:{chance.choice('pqr')}"
    document, folder = f"doc:{chance.choice('xy')}", f"dir:{chance.choice('st')}"
    match chance.randrange(4):
        case 0:
            return {
                "object": group,
                "relation": "member",
                "subject": chance.choice([user, f"group:{chance.choice('pqr')}"]),
            }
        case 1:
            return {
                "object": chance.choice([document, folder]),
                "relation": "parent",
                "subject": f"dir:{chance.choice('stu')}",
            }
        case _:
            relation = chance.choice(["viewer", "editor"])
            return {
                "object": chance.choice([document, folder]),
                "relation": relation,
                "subject": chance.choice([user, group]),
            }


def part(chance: Chance) -> Row:
    whole, inner = sorted(chance.sample("abcdef", 2))
    return {"whole": whole, "part": inner, "pieces": chance.randrange(1, 4)}


NEW_ROW: dict[str, Callable[[Chance], Row]] = {
    "accounts": lambda c: {
        "account": c.randrange(16),
        "phone": maybe(c, str(c.randrange(9))),
        "device": maybe(c, str(c.randrange(9))),
    },
    "adverts": lambda c: {
        "visitor": c.choice("abcd"),
        "channel": c.choice(["mail", "search", "site"]),
        "ts": minute(c, 20000),
    },
    "alarms": lambda c: {
        "id": c.randrange(40),
        "sensor": maybe(c, c.choice("abc")),
        "ts": maybe(c, minute(c)),
    },
    "baskets": lambda c: {
        "basket": c.randrange(9),
        "item": c.choice("abcde"),
    },
    "book": lambda c: {
        "id": c.randrange(50),
        "share": c.choice("AB"),
        "side": c.choice(["bid", "ask"]),
        "cents": c.randrange(95, 106),
        "pieces": c.randrange(1, 9),
    },
    "branches": lambda c: {
        "shop": c.choice("uvwxyz"),
        "north": maybe(c, c.randrange(400, 600) / 10),
        "east": c.randrange(0, 150) / 10,
    },
    "booked": lambda c: {
        "reference": maybe(c, c.choice("pqrstuvw")),
        "day": (BEGIN + dt.timedelta(days=c.randrange(12))).date(),
        "cents": c.choice([100, 200]),
    },
    "bought": lambda c: {
        "lot": c.randrange(30),
        "sku": c.choice("ab"),
        "ts": minute(c),
        "pieces": c.randrange(1, 9),
        "cents": c.randrange(100),
    },
    "changes": lambda c: {
        "key": c.randrange(9),
        "version": c.randrange(20),
        "op": c.choice(["insert", "update", "delete"]),
        "name": maybe(c, c.choice("xyz")),
    },
    "clicks": lambda c: {
        "visitor": c.choice("abcdef"),
        "kind": c.choice(["view", "cart", "buy"]),
        "ts": minute(c, 9000),
    },
    "contracts": lambda c: {
        "id": c.randrange(40),
        "customer": c.randrange(12),
        "since": (BEGIN + dt.timedelta(days=c.randrange(300))).date(),
        "until": maybe(c, (BEGIN + dt.timedelta(days=c.randrange(400))).date()),
        "cents": maybe(c, c.randrange(900)),
    },
    "corrections": lambda c: {
        "seq": c.randrange(60),
        "trade": c.randrange(200),
        "busted": c.random() < 0.3,
        "price": maybe(c, c.randrange(900, 1100) / 8),
        "pieces": maybe(c, c.randrange(1, 50)),
    },
    "entries": lambda c: {
        "id": c.randrange(90),
        "account": c.choice("abc"),
        "ts": minute(c),
        "cents": maybe(c, c.randrange(-90, 100)),
    },
    "friends": lambda c: {
        "a": maybe(c, c.randrange(7)),
        "b": c.randrange(7),
    },
    "grants": grant,
    "homes": lambda c: {
        "customer": c.randrange(30),
        "north": c.randrange(400, 600) / 10,
        "east": maybe(c, c.randrange(0, 150) / 10),
    },
    "items": lambda c: {
        "item": c.randrange(8),
        "kind": maybe(c, c.choice("ab")),
        "brand": maybe(c, c.choice("xy")),
    },
    "jobs": lambda c: {
        "id": c.randrange(40),
        "began": minute(c),
        "ended": maybe(c, minute(c)),
    },
    "labels": lambda c: {
        "id": c.randrange(40),
        "customer": c.randrange(5),
        "ts": minute(c, 9000),
        "fraud": c.random() < 0.5,
    },
    "lines": lambda c: {
        "line": log_line(c),
    },
    "links": lambda c: {
        "source": maybe(c, c.choice("abcdef")),
        "target": c.choice("abcdef"),
    },
    "logins": lambda c: {
        "member": c.choice("ab"),
        "day": (BEGIN + dt.timedelta(days=c.randrange(30))).date(),
    },
    "members": lambda c: {
        "id": maybe(c, c.randrange(20)),
        "mail": maybe(c, c.choice(["a@b.de", "x@y.com", "nope", ""])),
        "age": maybe(c, c.randrange(-5, 130)),
    },
    "months": lambda c: {"month": dt.date(2024, c.randrange(1, 13), 1)},
    "moves": lambda c: {
        "sku": c.choice("abcde"),
        "pieces": c.randrange(-5, 8),
    },
    "orders": lambda c: {
        "id": c.randrange(60),
        "visitor": c.choice("abcde"),
        "ts": minute(c, 20000),
        "euros": c.randrange(99),
    },
    "ours": lambda c: {
        "id": maybe(c, c.randrange(3)),
        "name": maybe(c, c.choice("xy")),
    },
    "paid": lambda c: {
        "reference": maybe(c, c.choice("pqrstuvw")),
        "day": (BEGIN + dt.timedelta(days=c.randrange(12))).date(),
        "cents": c.choice([100, 200]),
    },
    "pages": lambda c: {
        "id": c.randrange(90),
        "visitor": c.choice("abc"),
        "page": c.choice(["/", "/a", "/b"]),
        "ts": minute(c, 900),
    },
    "parts": part,
    "payments": lambda c: {
        "id": c.randrange(90),
        "card": c.choice("ab"),
        "shop": c.choice("xyz"),
        "ts": minute(c, 60),
        "cents": c.choice([50, 90, 500, 20000]),
    },
    "products": lambda c: {
        "sku": c.choice("abcdef"),
        "name": c.choice(["tea", "oil"]),
        "least": c.randrange(1, 12),
    },
    "purchases": lambda c: {
        "id": c.randrange(60),
        "customer": c.randrange(6),
        "ts": minute(c, 9000),
        "euros": c.randrange(99),
    },
    "readings": lambda c: {
        "id": c.randrange(90),
        "sensor": maybe(c, c.choice("ab")),
        "ts": maybe(c, minute(c)),
        "value": maybe(c, c.randrange(-40, 60) / 8),
    },
    "replies": lambda c: {
        "ticket": c.randrange(30),
        "ts": minute(c, 500),
    },
    "requests": lambda c: {
        "path": maybe(c, c.choice(["/a", "/a/b", "/a/b/c", "/ab", "/c"])),
    },
    "returns": lambda c: {
        "customer": c.randrange(6),
        "shop": maybe(c, c.choice("uv")),
        "cents": maybe(c, c.randrange(100)),
    },
    "roads": lambda c: {
        "a": c.choice("abcde"),
        "b": c.choice("abcde"),
        "km": c.randrange(1, 9),
    },
    "rules": lambda c: {
        "prefix": c.choice(["/", "/a", "/a/", "/a/b", "/c/d"]),
        "owner": maybe(c, c.choice("xyz")),
    },
    "sales": lambda c: {
        "shop": maybe(c, c.choice("uv")),
        "item": c.randrange(8),
        "day": maybe(c, (BEGIN + dt.timedelta(days=c.randrange(9, 150))).date()),
        "pieces": c.randrange(1, 5),
        "cents": maybe(c, c.randrange(90)),
    },
    "snapshots": lambda c: {
        "key": c.randrange(4),
        "ts": minute(c),
        "name": maybe(c, c.choice("xy")),
    },
    "sold": lambda c: {
        "sale": c.randrange(30),
        "sku": c.choice("ab"),
        "ts": minute(c),
        "pieces": c.randrange(1, 9),
    },
    "staff": lambda c: {
        "id": c.randrange(12),
        "boss": maybe(c, c.randrange(12)),
        "pay": maybe(c, c.randrange(9)),
    },
    "states": lambda c: {
        "machine": c.choice("ab"),
        "ts": minute(c, 3000),
        "state": c.choice(["up", "down"]),
    },
    "stays": lambda c: {
        "id": c.randrange(60),
        "room": maybe(c, c.randrange(3)),
        "arrival": maybe(c, (BEGIN + dt.timedelta(days=c.randrange(90))).date()),
        "departure": maybe(c, (BEGIN + dt.timedelta(days=c.randrange(95))).date()),
    },
    "theirs": lambda c: {
        "id": maybe(c, c.randrange(3)),
        "name": maybe(c, c.choice("xy")),
    },
    "tickets": lambda c: {
        "id": c.randrange(30),
        "queue": c.choice(["post", "phone"]),
        "ts": minute(c, 400),
    },
    "tiers": lambda c: {
        "customer": c.randrange(5),
        "since": minute(c, 9000),
        "tier": c.choice(["gold", "none"]),
    },
    "trades": lambda c: {
        "id": c.randrange(200),
        "share": c.choice("AB"),
        "ts": BEGIN + dt.timedelta(seconds=c.randrange(1800)),
        "price": c.randrange(900, 1100) / 8,
        "pieces": c.randrange(1, 50),
    },
}
SQL_TYPES = {
    dbsp.INT64: "bigint", dbsp.STRING: "varchar", dbsp.FLOAT64: "double", dbsp.BOOL: "boolean", dbsp.DATE: "date",
    dbsp.TIMESTAMP: "timestamp",
}  # fmt: skip


class Table:
    """A table of the run, and its rows as they are."""

    def __init__(self, run: dbsp.Run, table: Any) -> None:
        self.run, self.name, self.schema, self.key = run, table.name, table.schema, table.primary_key
        self.rows: list[Row] = []

    def change(self, chance: Chance) -> None:
        """A row comes (and replaces that of its key), or one goes."""
        if self.rows and chance.random() < 0.35:
            row = self.rows.pop(chance.randrange(len(self.rows)))
            self.run.delete(self.name, [row], partition=self.partition(row))
            return
        row = NEW_ROW[self.name](chance)
        if self.key:
            self.rows = [other for other in self.rows if any(other[name] != row[name] for name in self.key)]
        self.rows.append(row)
        self.run.push(self.name, [row], partition=self.partition(row))

    def partition(self, row: Row) -> int | None:
        """The changes of one key come in order: through one partition."""
        if not self.key:
            return None
        return zlib.crc32(repr([row[name] for name in self.key]).encode()) % PARTITIONS

    def fill(self, connection: duckdb.DuckDBPyConnection) -> None:
        columns = ", ".join(f'"{column.name}" {SQL_TYPES[column.type]}' for column in self.schema.columns)
        connection.execute(f"create or replace table {self.name} ({columns})")
        assert all(tuple(row) == self.schema.names for row in self.rows)
        connection.register("rows", pa.Table.from_pylist(self.rows, schema=self.schema.to_arrow()))
        connection.execute(f"insert into {self.name} select * from rows")


def shown(value: Any) -> Any:
    """Floats to nine digits: SQL's sums depend on the order of the rows."""
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.9g}")
    return value


def total(rows: Any) -> Counter[Any]:
    return Counter(tuple(map(shown, row)) for row in rows)


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def compared(circuit: dbsp.Circuit, queries: Mapping[str, Query], workers: int, seed: int) -> tuple[int, int]:
    """Live through random changes and a restart, each view beside its SQL: how many rows there were, and how many went."""
    chance, clock, seen, gone = random.Random(seed), BEGIN, 0, 0
    with (
        dbsp.open(circuit, workers=workers, partitions=PARTITIONS) as run,
        duck.connect() as connection,
    ):
        tables = [Table(run, table) for table in circuit.tables]
        for step in range(STEPS):
            for table in tables:
                for _ in range(chance.randrange(25) + (0 if step else 25)):
                    table.change(chance)
            clock += dt.timedelta(minutes=chance.randrange(120))
            changed = run.step(clock=clock)
            if step == CHECKPOINT:
                run.checkpoint()
            if step == RESTART:
                run.restart()
            for table in tables:
                table.fill(connection)
            for name, query in queries.items():
                wanted = connection.sql(query.sql.replace("now()", f"timestamp '{clock}'"))
                held = run.view(name).to_arrow()
                assert tuple(wanted.columns) == query.view.columns
                assert total(rows_of(held)) == total(wanted.fetchall()), name
                seen += len(held)
                gone += sum(weight < 0 for _, weight in changed[name].to_rows())
        assert not run.dead_letters()
    return seen, gone


LIVES = ((3, 3), (3, 4)) if few() else ((1, 1), (3, 4)) if in_turn(0, 2) else ((3, 4), (1, 1))
"""Workers and seed of each life of a query: the first, and the second where nothing came or went in the first."""


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_says_what_its_sql_says_at_every_step(name: str) -> None:
    query = QUERIES[name]
    seen = gone = 0
    for workers, seed in LIVES:
        rows, retractions = compared(query.circuit(), {name: query}, workers, seed)
        seen, gone = seen + rows, gone + retractions
        if seen and gone and not anew():
            return
    assert min(seen, gone) > 0, "nothing was compared, or nothing was taken back"


def test_all_queries_in_one_circuit_share_their_tables_and_say_the_same() -> None:
    circuit = dbsp.circuit("field", {name: query.view for name, query in QUERIES.items()})
    compared(circuit, QUERIES, 2, seed=7)


def test_the_page_lists_every_query() -> None:
    page = Path("docs/streams.md").read_text()
    assert [name for name in QUERIES if f"`{name}`" not in page] == []
