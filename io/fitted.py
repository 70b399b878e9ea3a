"""Rows whose columns are about those of a table, as a push: what a conversion would change is a bad row, and no other."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from dbsp.algebra.table import Table
from dbsp.io.formats.arrow_rows import OPERATION, push_of
from dbsp.io.pushed import Push
from dbsp.zset.given import column_given

Cast = Callable[[pa.Array, pa.DataType], pa.Array]
"""The values in another type; raises `ArrowException` or `ValueError` if one of them does not fit."""


def fitted(found: pa.Table, table: Table, cast: Cast = column_given) -> Push:
    """Rows with columns of about the table's types as a push; those with a value that no conversion keeps are bad."""
    columns: list[pa.ChunkedArray] = []
    reasons: dict[int, str] = {}
    for name, column in zip(found.schema.names, found.columns, strict=True):
        if name == OPERATION or table.schema[name].type in {column.type, _values(column.type)}:
            columns.append(column)
            continue
        pieces = converted(column.combine_chunks(), table.schema[name].type, cast)
        place = 0
        for piece, failed in pieces:
            if failed:
                reasons.setdefault(place, f"column {name}: {failed}")
            place += len(piece)
        columns.append(pa.chunked_array([piece for piece, _ in pieces], table.schema[name].type))
    return push_of(pa.table(columns, names=found.schema.names), table, reasons)


def _values(type_: pa.DataType) -> pa.DataType | None:
    """The type of the values, if these are numbers of a dictionary."""
    return type_.value_type if pa.types.is_dictionary(type_) else None


def converted(values: pa.Array, wanted: pa.DataType, cast: Cast) -> list[tuple[pa.Array, str]]:
    """Pieces of the values in the wanted type, by halves where one fails; that one is a null with the reason beside."""
    try:
        return [(cast(values, wanted), "")]
    except pa.ArrowException as error:
        if len(values) == 1:
            return [(pa.nulls(1, wanted), " ".join(str(error).split()))]
        middle = len(values) // 2
        return [*converted(values[:middle], wanted, cast), *converted(values[middle:], wanted, cast)]
