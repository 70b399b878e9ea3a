"""Nexmark's queries give DuckDB's answers, in any number of steps, on any number of workers, after a restart and a rescale."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import dbsp
from benchmarks.nexmark.generator import BIDS, Generator
from benchmarks.nexmark.queries import QUERIES, SIDE_KEYS
from benchmarks.nexmark.tables import COLUMNS
from tests import duck

EVENTS = 20_000
SIDE = pa.table({"key": range(SIDE_KEYS), "value": [f"value {number}" for number in range(SIDE_KEYS)]})


@cache
def events() -> list[dict[str, pa.Table]]:
    """Four steps."""
    return list(Generator(seed=7).batches(EVENTS, EVENTS // 4))


@cache
def database() -> duckdb.DuckDBPyConnection:
    connection = duck.connect()
    for name in COLUMNS:
        connection.register(name, pa.concat_tables([step[name] for step in events()]))
    connection.register("side", SIDE)
    return connection


def rows(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("workers", [1, 3])
def test_equals_duckdb(name: str, workers: int) -> None:
    circuit = dbsp.circuit(name, {"v": QUERIES[name].build()})
    tables = {table.name for table in circuit.tables}
    with dbsp.open(circuit, workers=workers, partitions=2) as run:
        if "side" in tables:
            run.push("side", SIDE)
        for number, step in enumerate(events()):
            for table in tables & COLUMNS.keys():
                run.push(table, step[table])
            run.step()
            if number == 1:
                run.checkpoint()
                run.restart()
            if number == 2:
                run.rescale(workers % 3 + 1)
        found = rows(run.view("v").to_arrow())
        assert not run.dead_letters()
    expected = rows(database().sql(QUERIES[name].sql).to_arrow_table())
    assert found == expected
    assert expected


@pytest.mark.parametrize("name", ["q4", "q9", "q18", "q19"])
def test_taken_back_bids_leave_nothing(name: str) -> None:
    """All events, then a half of the bids deleted again: as if they had never been."""
    circuit = dbsp.circuit(name, {"v": QUERIES[name].build()})
    tables = {table.name for table in circuit.tables}
    kept = events()[0]
    with dbsp.open(circuit, workers=2) as run, dbsp.open(circuit) as plain:
        for table in tables:
            run.push(table, kept[table])
            plain.push(table, kept[table])
        gone = events()[1]["bid"].slice(0, BIDS * 50)
        run.push("bid", gone)
        run.step()
        run.delete("bid", gone)
        run.step()
        plain.step()
        assert rows(run.view("v").to_arrow()) == rows(plain.view("v").to_arrow())


def test_the_generator_is_the_same_however_it_is_asked() -> None:
    """Steps of any size give the same events."""
    one = list(Generator(seed=3).batches(100_000, 100_000))
    many = list(Generator(seed=3).batches(100_000, 5_000))
    for name in COLUMNS:
        assert pa.concat_tables([step[name] for step in one]).equals(pa.concat_tables([step[name] for step in many]))
    assert sum(table.num_rows for table in one[0].values()) == 100_000
