"""Rows as CSV and as JSON lines, portion by portion."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
from pyarrow.csv import WriteOptions, write_csv

from dbsp.coordinator.http.rendering import plain, rows_of
from dbsp.coordinator.serving.results import Tables

CSV, JSON_LINES = "text/csv", "application/x-ndjson"
PORTION_ROWS = 5_000
"""Rows that are rendered at a time."""


def as_csv(tables: Tables) -> Iterator[bytes]:
    """Yield a line with the names of the columns, then a line for each row; null is empty, an empty text is `""`."""
    begun = False
    while (table := tables.next()) is not None:
        for at in range(0, max(1, len(table)), PORTION_ROWS):
            sink = pa.BufferOutputStream()
            write_csv(_in_csv(table.slice(at, PORTION_ROWS)), sink, WriteOptions(include_header=not begun))
            begun = True
            yield sink.getvalue().to_pybytes()


def _in_csv(table: pa.Table) -> pa.Table:
    """Return a table whose values CSV has: times and decimals as JSON has them, lists and structs as JSON texts."""
    columns = [
        column if _is_plain(column.type) else pa.array([_text(value) for value in column.to_pylist()], pa.string())
        for column in table.columns
    ]
    return pa.table(columns, names=table.column_names)


def _is_plain(type_: pa.DataType) -> bool:
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_string)
    return any(is_kind(type_) for is_kind in kinds)


def _text(value: object) -> str | None:
    found = plain(value)
    return found if found is None or isinstance(found, str) else json.dumps(found, ensure_ascii=False)


def as_json_lines(tables: Tables) -> Iterator[bytes]:
    """Yield a JSON object for each row, each on a line of its own."""
    for names, rows in _portions(tables):
        lines = (json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) for row in rows)
        yield "".join(f"{line}\n" for line in lines).encode()


def _portions(tables: Tables) -> Iterator[tuple[list[str], list[list[object]]]]:
    """Yield the names of the columns and the rows, as JSON has their values; at least once."""
    while (table := tables.next()) is not None:
        for at in range(0, max(1, len(table)), PORTION_ROWS):
            yield table.column_names, plain(rows_of(table.slice(at, PORTION_ROWS)))
