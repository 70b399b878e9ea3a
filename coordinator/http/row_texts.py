"""Rows as bodies of responses: in JSON objects with their weights, as CSV, and as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyarrow.csv import WriteOptions, write_csv

from dbsp.coordinator.http.cell_texts import csv_texts, number_texts, object_rows, portions
from dbsp.coordinator.serving.answers import StepChanges, ViewRows
from dbsp.coordinator.serving.results import Tables


def as_csv(tables: Tables) -> Iterator[bytes]:
    """Yield a line with the names of the columns, then a line for each row; null is empty, an empty text is `""`."""
    return csv_of(iter(tables.next, None))


def csv_of(tables: Iterable[pa.Table]) -> Iterator[bytes]:
    """Yield tables of the same columns as one CSV."""
    begun = False
    for table in tables:
        for some in portions(table) if begun or table.num_rows else [table]:
            sink = pa.BufferOutputStream()
            texts = pa.table([csv_texts(column) for column in some.columns], names=some.column_names)
            write_csv(texts, sink, WriteOptions(include_header=not begun))
            begun = True
            yield sink.getvalue().to_pybytes()


def as_json_lines(tables: Tables) -> Iterator[bytes]:
    """Yield a JSON object for each row, each on a line of its own."""
    while (table := tables.next()) is not None:
        for some in object_rows(table, "\n"):
            yield some + b"\n"


def json_object(values: Mapping[str, Any], **texts: bytes) -> bytes:
    """Return an object of JSON values, and of members that are JSON texts already; there is a value or a text at least."""
    members = [json.dumps(name) + ":" + json.dumps(value, ensure_ascii=False) for name, value in values.items()]
    return b"{%s}" % b",".join(
        [*map(str.encode, members), *(b'"%s":%s' % (name.encode(), text) for name, text in texts.items())]
    )


def json_list(portions: Iterable[bytes]) -> bytes:
    """Return a list of elements that are JSON texts already."""
    return b"[%s]" % b",".join(portions)


def weighted(table: pa.Table) -> dict[str, bytes]:
    """Return the rows and their weights, which are the last column, as JSON texts."""
    last = table.num_columns - 1
    rows = object_rows(table.remove_column(last))
    return {"rows": json_list(rows), "weights": json_list(number_texts(table.column(last)))}


def view_json(found: ViewRows, table: pa.Table) -> bytes:
    """Return a view, or the requested part of it, as a JSON object."""
    total = str(found.table.num_rows).encode()
    return json_object({"view": found.view, "step": found.step}, **weighted(table), rows_total=total)


def step_json(changes: StepChanges) -> bytes:
    """Return the changes of a step as a JSON object."""
    return json_object({"step": changes.step}, **weighted(changes.table))
