"""Rows as bodies of responses: JSON values, or an Arrow stream."""

from __future__ import annotations

import base64
import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from dbsp.coordinator.answers import StepChanges, ViewRows
from dbsp.errors import ConfigError

ARROW = "application/vnd.apache.arrow.stream"
EXACT_MAX = 1 << 53


def view_json(found: ViewRows, table: pa.Table) -> dict[str, Any]:
    """Return a view, or the requested part of it, as JSON values."""
    return {"view": found.view, "step": found.step, **weighted(table), "rows_total": found.table.num_rows}


def weighted(table: pa.Table) -> dict[str, Any]:
    """Return rows and their weights, which are the last column, as JSON values."""
    last = table.num_columns - 1
    return {"rows": plain(table.remove_column(last).to_pylist()), "weights": table.column(last).to_pylist()}


def step_json(changes: StepChanges) -> dict[str, Any]:
    """Return the changes of a step as a JSON object."""
    return {"step": changes.step, **weighted(changes.table)}


def rows_of(table: pa.Table) -> list[list[Any]]:
    """Return a table as lists, because it may have two columns of one name.

    **Errors** `ConfigError` for a day that DuckDB can make and Python cannot hold; views have none.
    """
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            columns.append(column.to_pylist())
        except OverflowError:
            raise ConfigError(
                f"a day outside the years 1 to 9999 cannot be shown: column={name}",
                "cast it to VARCHAR, or ask for an Arrow stream",
            ) from None
    return [list(row) for row in zip(*columns, strict=True)]


def ipc(table: pa.Table) -> bytes:
    """Return a table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def plain(value: Any) -> Any:
    """Return a value as JSON has it: decimals, times and numbers that JSON lacks as text, bytes in base64."""
    match value:
        case dict():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case float():
            return value if math.isfinite(value) else str(value)
        case Decimal() if value == value.to_integral_value() and abs(value) < EXACT_MAX and not _has_point(value):
            return int(value)
        case Decimal() | date() | datetime() | time() | timedelta():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
    return value


def _has_point(value: Decimal) -> bool:
    """Return whether the decimal's type has digits after the point."""
    exponent = value.as_tuple().exponent
    return not isinstance(exponent, int) or exponent < 0
