"""The law of SQL, played: a view kept step by step is DuckDB's answer over what is there, whatever befalls the pipeline."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import duckdb
import pyarrow as pa

import dbsp
from dbsp.errors import CircuitError
from dbsp.zset.hashing import narrow_hash
from tests.as_if_large import as_if_large

Row = tuple[Any, ...]
FULL_HASH = 64
_DIGITS = Context(prec=60)


@dataclass(frozen=True, slots=True)
class Step:
    """What comes (true) and goes (false); then "checkpoint", "restart", so many workers, or nothing befalls the pipeline."""

    changes: tuple[tuple[str, Row, bool], ...]
    then: str | int = ""


@dataclass(frozen=True, slots=True)
class Life:
    """What happens to tables, and how the pipeline runs: with few bits of hashes, with what is for large data alone, or not."""

    steps: tuple[Step, ...]
    workers: int = 1
    partitions: int = 1
    narrow: int = FULL_HASH
    large: bool = False


@contextmanager
def _lived(life: Life) -> Iterator[None]:
    with ExitStack() as stack:
        if life.narrow < FULL_HASH:
            stack.enter_context(narrow_hash(life.narrow))
        if life.large:
            stack.enter_context(as_if_large())
        yield


def circuit_with(views: Mapping[str, Any], table: Any) -> Any:
    """The circuit of views; with this table where all they say is constant, for a circuit reads something."""
    try:
        return dbsp.circuit("v", views)
    except CircuitError as error:
        if "reads no table" not in error.message:
            raise
        return dbsp.circuit("v", {**views, "rest": table})


def differences(
    circuit: Any, text: str, life: Life, oracle: duckdb.DuckDBPyConnection, views: Mapping[str, str] | None = None
) -> Iterator[tuple[Counter[Row], Counter[Row]]]:
    """Where after a step the view `v`, or the sum of its changes, is not DuckDB's answer: rows too many, and rows too few."""
    tables = {table.name: table for table in circuit.tables}
    held: dict[str, list[Row]] = {name: [] for name in tables}
    added: Counter[Row] = Counter()
    wanted: Counter[Row] | None = None
    with _lived(life), dbsp.open(circuit, workers=life.workers, partitions=life.partitions) as run:
        for step in life.steps:
            changed = _changed(run, step, held, tables)
            for row, weight in run.step()["v"].batch.to_rows():
                added[tuple(map(plain, row))] += weight
            _befallen(run, step.then)
            if changed or wanted is None:
                _load(oracle, held, tables)
                wanted = _answer(oracle, text, views or {})
            letters = [letter.reason for letter in run.dead_letters()]
            assert not letters, letters
            for found in (counted(run.view("v").to_arrow()), Counter({row: n for row, n in added.items() if n})):
                if found != wanted:
                    yield found - wanted, wanted - found


def _changed(run: Any, step: Step, held: dict[str, list[Row]], tables: Mapping[str, Any]) -> bool:
    """Whether rows of these tables came or went; a row takes the place of the one of its key."""
    wanted = [change for change in step.changes if change[0] in tables]
    for name, row, comes in wanted:
        table, rows = tables[name], held[name]
        if not comes:
            rows.remove(row)
        elif table.primary_key:
            keys = [table.schema.names.index(key) for key in table.primary_key]
            rows[:] = [other for other in rows if any(other[at] != row[at] for at in keys)]
        if comes:
            rows.append(row)
        (run.push if comes else run.delete)(name, [dict(zip(table.schema.names, row, strict=True))])
    return bool(wanted)


def _befallen(run: Any, then: str | int) -> None:
    if isinstance(then, int):
        run.rescale(then)
    elif then:
        getattr(run, then)()


def _load(oracle: duckdb.DuckDBPyConnection, held: Mapping[str, list[Row]], tables: Mapping[str, Any]) -> None:
    for name, table in tables.items():
        rows = [dict(zip(table.schema.names, row, strict=True)) for row in held[name]]
        oracle.register(name, pa.Table.from_pylist(rows, schema=table.schema.to_arrow()))


def _answer(oracle: duckdb.DuckDBPyConnection, text: str, views: Mapping[str, str]) -> Counter[Row]:
    for name, query in views.items():
        oracle.execute(f"create or replace temp view {name} as {query}")
    return counted(oracle.sql(text).to_arrow_table())


def counted(table: pa.Table) -> Counter[Row]:
    """The rows, and how often each is there."""
    return Counter(
        tuple(map(plain, row)) for row in zip(*(column.to_pylist() for column in table.columns), strict=True)
    )


def plain(value: Any) -> Any:
    """A value as both sides say it: whole numbers of any type, doubles to nine digits."""
    if isinstance(value, bool):
        return repr(value)
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else value.normalize(_DIGITS)
    if isinstance(value, float):
        if not math.isfinite(value):
            return repr(value)
        return int(value) if value.is_integer() else float(f"{value:.9g}")
    if isinstance(value, list):
        return ("list", *map(plain, value))
    if isinstance(value, dict):
        return ("struct", *((name, plain(each)) for name, each in value.items()))
    return value
