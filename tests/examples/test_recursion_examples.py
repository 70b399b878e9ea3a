"""The recursive examples against DuckDB's WITH RECURSIVE and plain Python, through random insertions and deletions."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pytest

import dbsp
from examples.recursion.programs import components, points_to, reachability, shortest_paths
from tests import duck

Row = tuple[Any, ...]
Tables = dict[str, list[Row]]

SQL = {
    "paths": """with recursive p(a, b) as (select a, b from edges union
        select p.a, e.b from p join edges e on p.b = e.a) select * from p""",
    "components": """with recursive both_(a, b) as (select a, b from edges union select b, a from edges),
        r(a, c) as (select a, a from both_ union select both_.b, r.c from r join both_ on r.a = both_.a)
        select a, min(c) from r group by a""",
    "distances": """with recursive d(a, far) as (select a, 0::bigint from starts union
        select e.b, d.far + e.length from d join edges e on d.a = e.a where d.far + e.length <= 12)
        select a, min(far) from d group by a""",
}


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duck.connect() as made:
        yield made


def by_duckdb(connection: duckdb.DuckDBPyConnection, view: str, tables: Tables) -> set[Row]:
    for name, columns in (("edges", "a bigint, b bigint, length bigint"), ("starts", "a bigint")):
        connection.execute(f"create or replace table {name} ({columns})")
        if tables.get(name):
            connection.execute(f"insert into {name} values {', '.join(map(literal, tables[name]))}")
    return set(connection.sql(SQL[view]).fetchall())


def literal(row: Row) -> str:
    return f"({', '.join(map(str, row))})"


def andersen(tables: Tables) -> dict[str, set[Row]]:
    """What points where, from nothing."""
    points, heap = set(tables["new"]), set()
    while True:
        held = (len(points), len(heap))
        points |= {(x, cell) for x, y in tables["move"] for v, cell in points if v == y}
        points |= {(x, h) for x, y in tables["load"] for v, c in points if v == y for cell, h in heap if cell == c}
        heap |= {(c, h) for x, y in tables["store"] for v, c in points if v == x for w, h in points if w == y}
        if (len(points), len(heap)) == held:
            return {"points": points, "heap": heap}


def life(circuit: dbsp.Circuit, new_row: Callable[[random.Random, str], Row], seed: int) -> Any:
    """Random changes; after every step, the run and the tables as they are."""
    chance = random.Random(seed)
    names = {table.name: table.schema.names for table in circuit.tables}
    tables: Tables = {name: [] for name in names}
    with dbsp.open(circuit, workers=1 + seed % 4, partitions=2) as run:
        for _ in range(8):
            for _ in range(chance.randrange(1, 8)):
                name = chance.choice(sorted(names))
                if tables[name] and chance.random() < 0.4:
                    row, change = tables[name].pop(chance.randrange(len(tables[name]))), run.delete
                else:
                    row, change = new_row(chance, name), run.push
                    tables[name].append(row)
                change(name, [dict(zip(names[name], row, strict=True))])
            run.step()
            if chance.random() < 0.2:
                run.rescale(chance.randrange(1, 5))
            yield run, tables


def graph_row(chance: random.Random, table: str) -> Row:
    if table == "starts":
        return (chance.randrange(6),)
    return (chance.randrange(6), chance.randrange(6), chance.randrange(1, 5))


def statement(chance: random.Random, table: str) -> Row:
    return (chance.choice("pqrst"), chance.choice(["one", "two", "six"]) if table == "new" else chance.choice("pqrst"))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("circuit", "view"),
    [(reachability(), "paths"), (components(), "components"), (shortest_paths(12), "distances")],
    ids=["paths", "components", "distances"],
)
def test_graphs_are_those_of_duckdb(
    circuit: dbsp.Circuit, view: str, seed: int, connection: duckdb.DuckDBPyConnection
) -> None:
    seen = 0
    for run, tables in life(circuit, graph_row, seed):
        rows = run.view(view).to_rows()
        assert {row for row, _ in rows} == by_duckdb(connection, view, tables)
        assert all(weight == 1 for _, weight in rows)
        seen += len(rows)
    assert seen


@pytest.mark.parametrize("seed", range(12))
def test_pointers_point_where_andersen_says(seed: int) -> None:
    for run, tables in life(points_to(), statement, seed):
        for view, rows in andersen(tables).items():
            assert {row for row, weight in run.view(view).to_rows() if weight == 1} == rows
