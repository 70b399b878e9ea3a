"""The SQL of the benchmarks and of the gallery, made circuits: DuckDB's answer to the same text at every step."""

from __future__ import annotations

import pytest

import dbsp
from benchmarks.nexmark import tables as nexmark_tables
from benchmarks.nexmark.queries import QUERIES as NEXMARK
from benchmarks.nexmark.queries import side
from benchmarks.tpch import tables as tpch_tables
from benchmarks.tpch.queries import QUERIES as TPCH
from examples.queries.gallery import Query
from tests.examples import test_queries as gallery
from tests.nexmark import test_queries as nexmark
from tests.pace import few, rotating
from tests.tpch import test_queries as tpch

REFUSED = {
    "nexmark q14": "no such function: function=regexp_extract_all",
    "gallery training_rows": "a scalar subquery can compare with the outer query only by equality",
    "gallery last_touch": "a scalar subquery can compare with the outer query only by equality",
    "gallery carried_forward": "last_value over only a part of the partition is not supported",
    "gallery drifts": "no such aggregate: aggregate=regr_sxx",
}
"""Texts that the dialect does not have, with what it says."""

TPCH_TABLES = {name: table for name, table in vars(tpch_tables).items() if isinstance(table, dbsp.Stream)}
NEXMARK_TABLES = {name: getattr(nexmark_tables, name) for name in ("person", "auction", "bid")} | {"side": side}


def gallery_tables(name: str) -> dict[str, dbsp.Stream]:
    return {table.name: dbsp.Stream(table) for table in gallery.QUERIES[name].circuit().tables}


def texts() -> dict[str, tuple[str, dict[str, dbsp.Stream]]]:
    return (
        {f"tpch {name}": (query.sql, TPCH_TABLES) for name, query in TPCH.items()}
        | {f"nexmark {name}": (query.sql, NEXMARK_TABLES) for name, query in NEXMARK.items()}
        | {f"gallery {name}": (query.sql, gallery_tables(name)) for name, query in gallery.QUERIES.items()}
    )


def there(suite: str, names: object) -> list[str]:
    return [name for name in names if f"{suite} {name}" not in REFUSED]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", texts())
def test_what_is_refused_is_listed(name: str) -> None:
    text, tables = texts()[name]
    if name not in REFUSED:
        dbsp.sql(text, **tables)
        return
    with pytest.raises(dbsp.CircuitError) as error:
        dbsp.sql(text, **tables)
    assert error.value.message.startswith(REFUSED[name])


@pytest.mark.parametrize("workers", [3] if few() else rotating([1, 3], 2))
@pytest.mark.parametrize("name", there("tpch", TPCH))
def test_tpch(name: str, workers: int) -> None:
    circuit = dbsp.circuit(name, {"v": dbsp.sql(TPCH[name].sql, **TPCH_TABLES)})
    tables = {table.name for table in circuit.tables}
    with dbsp.open(circuit, workers=workers, partitions=2) as run:
        for table in tables:
            run.push(table, tpch.stages()[0][table])
        run.step()
        assert tpch.rows(run.view("v").to_arrow()) == tpch.expected(name, 0)
        for number, (new, gone) in enumerate(tpch.changes(), 1):
            for table in tables & new.keys():
                run.push(table, new[table])
                run.delete(table, gone[table])
            run.step()
            assert tpch.rows(run.view("v").to_arrow()) == tpch.expected(name, number)
        assert not run.dead_letters()
    assert any(value is not None for row in tpch.expected(name, 0) for value in row)


@pytest.mark.parametrize("name", there("nexmark", NEXMARK))
def test_nexmark(name: str) -> None:
    circuit = dbsp.circuit(name, {"v": dbsp.sql(NEXMARK[name].sql, **NEXMARK_TABLES)})
    tables = {table.name for table in circuit.tables}
    with dbsp.open(circuit, workers=2, partitions=2) as run:
        if "side" in tables:
            run.push("side", nexmark.SIDE)
        for number, step in enumerate(nexmark.events()):
            for table in tables - {"side"}:
                run.push(table, step[table])
            run.step()
            if number == 1:
                run.checkpoint()
                run.restart()
        assert not run.dead_letters()
        found = nexmark.rows(run.view("v").to_arrow())
    assert found == nexmark.rows(nexmark.database().sql(NEXMARK[name].sql).to_arrow_table())


@pytest.mark.parametrize("name", rotating(there("gallery", gallery.QUERIES), 2))
def test_gallery(name: str) -> None:
    query = gallery.QUERIES[name]
    same = Query(name, query.question, query.sql, dbsp.sql(query.sql, **gallery_tables(name)))
    assert sum(gallery.compared(same.circuit(), {name: same}, 2, seed=3))
