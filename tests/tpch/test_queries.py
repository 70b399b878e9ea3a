"""TPC-H's queries give DuckDB's answers after the initial load and after every refresh, which inserts and deletes."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import dbsp
from benchmarks.tpch.generator import Generator, Tables
from benchmarks.tpch.queries import QUERIES
from benchmarks.tpch.tables import COLUMNS, customer, lineitem, nation, orders, part, partsupp, region, supplier
from tests import duck

TABLES = (region, nation, supplier, customer, part, partsupp, orders, lineitem)
SCALE = 0.01
REFRESHES = 2
DIGITS = 10


@cache
def stages() -> list[Tables]:
    """All tables as they are after the load and after each refresh."""
    generator = Generator(scale=SCALE)
    now = generator.fixed() | generator.orders(0)
    found = [now]
    for new, gone in generator.refreshes(REFRESHES):
        now = dict(now)
        for table, keys in gone.items():
            keep = pc.invert(pc.is_in(now[table][orderkey(table)], value_set=keys[orderkey(table)].combine_chunks()))
            now[table] = pa.concat_tables([now[table].filter(keep), new[table]])
        found.append(now)
    return found


def orderkey(table: str) -> str:
    return "o_orderkey" if table == "orders" else "l_orderkey"


@cache
def changes() -> list[tuple[Tables, Tables]]:
    return list(Generator(scale=SCALE).refreshes(REFRESHES))


@cache
def expected(name: str, stage: int) -> Counter[tuple[Any, ...]]:
    with duck.connect() as connection:
        for table in COLUMNS:
            connection.register(table, stages()[stage][table])
        return rows(connection.sql(QUERIES[name].sql).to_arrow_table())


def rows(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """The rows as a multiset; floats to ten digits, decimals without trailing zeros."""
    return Counter(zip(*([plain(value) for value in column.to_pylist()] for column in table.columns), strict=True))


def plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return value.normalize()
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) and math.isfinite(value) else value


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("name", QUERIES)
def test_equals_duckdb(name: str, workers: int) -> None:
    circuit = dbsp.circuit(name, {"v": QUERIES[name].build()})
    tables = {table.name for table in circuit.tables}
    with dbsp.open(circuit, workers=workers, partitions=2) as run:
        for table in tables:
            run.push(table, stages()[0][table])
        run.step()
        assert rows(run.view("v").to_arrow()) == expected(name, 0)
        for number, (new, gone) in enumerate(changes(), 1):
            for table in tables & new.keys():
                run.push(table, new[table])
                run.delete(table, gone[table])
            run.step()
            assert rows(run.view("v").to_arrow()) == expected(name, number)
        assert not run.dead_letters()
    assert any(value is not None for row in expected(name, 0) for value in row)


@pytest.mark.parametrize("workers", [1, 3])
def test_queries_that_are_added_later_equal_duckdb(workers: int) -> None:
    """All of them in place of one after a refresh, filled from the tables that are kept; then another refresh."""
    whole = {f"all_{name}": table for name, table in zip(COLUMNS, TABLES, strict=True)}
    added = whole | {name: query.build() for name, query in QUERIES.items()}
    first = next(iter(QUERIES))
    with dbsp.open(dbsp.circuit("few", whole | {first: added[first]}), workers=workers, partitions=2) as run:
        for table, loaded in stages()[0].items():
            run.push(table, loaded)
        run.step()
        for number, (new, gone) in enumerate(changes(), 1):
            for table, come in new.items():
                run.push(table, come)
                run.delete(table, gone[table])
            run.step()
            if number == 1:
                assert run.evolve(dbsp.circuit("all", added)).views_added == tuple(QUERIES)[1:]
            for name in QUERIES:
                assert rows(run.view(name).to_arrow()) == expected(name, number), name
        assert not run.dead_letters()
