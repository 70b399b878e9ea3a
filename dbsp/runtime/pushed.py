"""Rows that a Python program pushes, as a batch of their table: dicts, columns by name, Arrow tables, and objects
that offer one.

Rows that do not fit raise one error. It names the row (the first is 0, as in a list), the column, and what to write.
A push is refused as a whole.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from dbsp.algebra.table import Table
from dbsp.errors import CircuitError
from dbsp.expr.type_names import spelled
from dbsp.logs import DELETE
from dbsp.zset.batch import Batch
from dbsp.zset.calendar import counts_days
from dbsp.zset.exact import check_exact
from dbsp.zset.fitting import array_of
from dbsp.zset.given import column_given, values_given
from dbsp.zset.schema import DATE, DURATION, TIME, TIMESTAMP, TIMESTAMP_UTC, Column, Schema

Rows: TypeAlias = Any  # a pa.Table or pa.RecordBatch, rows as dicts, or columns by name; pyarrow has no type stubs

_WRITTEN = {
    DATE: "2024-05-31",
    TIME: "10:00:00",
    TIMESTAMP: "2024-05-31T10:00:00",
    TIMESTAMP_UTC: "2024-05-31T10:00:00Z",
}
"""The types whose values may be given as texts, each with an example for error messages."""

_MISFITS = (pa.ArrowException, TypeError, ValueError, OverflowError, ArithmeticError)
"""The errors that converting a value raises if the value does not fit its column."""


def rows_to_batch(table: Table, rows: Rows, operation: int) -> Batch:
    """Convert rows of any accepted kind to a batch with the table's columns; an absent one has its default, else null.

    **Errors** `CircuitError` for rows that do not fit the table.
    """
    source = _source(table, rows)
    needed = set(table.primary_key) if operation == DELETE and table.primary_key else {
        column.name for column in table.schema if not column.nullable
    }  # fmt: skip
    given = dict(zip(source.column_names, source.columns, strict=True))
    columns = []
    for column in table.schema:
        values = given.get(column.name)
        array = table.absent(column, source.num_rows) if values is None else _fitted(table, column, values)
        if isinstance(rows, Mapping):
            array = pa.concat_arrays([array])  # copy: the array may share memory with a numpy array of the caller
        if column.name in needed and array.null_count:
            raise CircuitError(f"a null where none is allowed: table={table.name} column={column.name}")
        columns.append(array)
    schema = table.schema
    if operation == DELETE and table.primary_key:
        schema = Schema(tuple(Column(c.name, c.type, c.name not in needed) for c in schema))
    return Batch.of(schema, columns)


def _source(table: Table, rows: Rows) -> pa.Table:
    """Return the rows as an Arrow table without unknown columns; values may still be of other types."""
    source = _in_arrow(rows)
    if source is not None:
        _refuse_unknown(table, set(source.column_names))
        return source
    if isinstance(rows, Mapping):
        _refuse_unknown(table, set(rows))
        columns = {name: _given(table, table.schema[name], values) for name, values in rows.items()}
        counts = {name: len(column) for name, column in columns.items()}
        if len(set(counts.values())) > 1:
            hint = "give every column one value for each row"
            raise CircuitError(f"columns of different lengths: table={table.name} rows={counts}", hint)
        return pa.table(columns)
    listed = _listed(table, rows)
    _refuse_unknown(table, {name for row in listed for name in row})
    default = {name: constant.value for name, constant in table.defaults}
    return pa.table(
        {c.name: _fitted(table, c, [row.get(c.name, default.get(c.name)) for row in listed]) for c in table.schema}
    )


def _in_arrow(rows: Rows) -> pa.Table | None:
    """Return the rows as an Arrow table if they are one or offer one; None for other kinds.

    The index of a pandas frame is left out, and its NaN is a null.
    """
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if type(rows).__module__.partition(".")[0] == "pandas" and hasattr(rows, "columns"):
        return pa.Table.from_pandas(rows, preserve_index=False).replace_schema_metadata()
    return pa.table(rows) if hasattr(rows, "__arrow_c_stream__") else None


def _given(table: Table, column: Column, values: Any) -> pa.ChunkedArray:
    """Return a caller's column in the type that Arrow infers; in the table's type if Arrow infers none."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        hint = "push a list of dicts, a dict of columns, or an Arrow table or data frame"
        raise CircuitError(f"not a column: table={table.name} column={column.name} got={repr(values)[:100]}", hint)
    values = values if hasattr(values, "__len__") else list(values)
    try:
        made = pa.table({column.name: values}).column(0)
        if isinstance(values, list | tuple) and (counts_days(made.type) or made.type == DURATION):
            check_exact(
                values, made.combine_chunks()
            )  # for mixed values, the inferred type may drop parts such as times
    except _MISFITS:
        return pa.chunked_array([_fitted(table, column, list(values))])
    return made


def _listed(table: Table, rows: object) -> list[Mapping[str, Any]]:
    """Return the rows as a list of dicts; raise `CircuitError` for anything else."""
    given = list(rows) if isinstance(rows, Iterable) and not isinstance(rows, str | bytes) else [rows]
    listed: list[Mapping[str, Any]] = []
    for row in given:
        if not isinstance(row, Mapping):
            hint = "push a list of dicts, a dict of columns, or an Arrow table or data frame"
            raise CircuitError(f"not a row: table={table.name} row={repr(row)[:100]}", hint)
        listed.append(row)
    return listed


def _fitted(table: Table, column: Column, values: list[Any] | pa.ChunkedArray) -> pa.Array:
    """Convert the values to the column's type; raise `CircuitError` that names the row of the first value that does not fit."""
    try:
        return _converted(values, column.type)
    except _MISFITS as error:
        row, reason = _first_misfit(values, column.type, error)
    place = f"row={row} table={table.name} column={column.name} type={spelled(column.type)}"
    raise CircuitError(f"a value that does not fit its column: {place} error={reason}", _hint(column))


def _converted(values: list[Any] | pa.ChunkedArray, type_: pa.DataType) -> pa.Array:
    if isinstance(values, list):
        return array_of(values_given(values, type_), type_)
    cast = column_given(values, type_)
    return cast.chunk(0) if cast.num_chunks == 1 else cast.combine_chunks()


def _first_misfit(values: list[Any] | pa.ChunkedArray, type_: pa.DataType, error: Exception) -> tuple[int, Exception]:
    """Return the row of the first value that does not fit, and the error.

    The row is found by bisection: every prefix that contains the value fails.
    """
    reasons = {len(values): error}

    def fails(count: int) -> bool:
        try:
            _converted(values[:count], type_)
        except _MISFITS as found:
            reasons[count] = found
        return count in reasons

    row = bisect(range(1, len(values)), False, key=fails)
    return row, reasons.get(row + 1, error)


def _hint(column: Column) -> str:
    """Return the hint how to write values of the column."""
    if pa.types.is_decimal(column.type):
        return f'write decimal.Decimal("1.5") or "1.5", with at most {column.type.scale} digits after the point'
    if column.type in _WRITTEN:
        zoned = "; for times with a zone declare it dbsp.TIMESTAMP_UTC" if column.type == TIMESTAMP else ""
        return f"write a value of datetime, or a text such as {_WRITTEN[column.type]!r}{zoned}"
    return "convert the values before they are pushed"


def _refuse_unknown(table: Table, names: set[str]) -> None:
    unknown = sorted(names - set(table.schema.names))
    if unknown:
        raise CircuitError(f"no such column: table={table.name} columns={unknown} known={list(table.schema.names)}")
