"""Forms in which users may write a schema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from dbsp.errors import CircuitError
from dbsp.zset.schema import Column, Schema, schema_of

Columns = Mapping[str, pa.DataType] | Iterable[Column] | Schema


def as_schema(columns: Columns) -> Schema:
    """Return the schema that a mapping, columns or an Arrow schema denotes; Arrow types become the nearest supported ones."""
    if isinstance(columns, Schema):
        return columns
    if isinstance(columns, pa.Schema):
        return schema_of(columns)
    if isinstance(columns, Mapping):
        for name, type_ in columns.items():
            if not isinstance(type_, pa.DataType):
                struct = isinstance(type_, Mapping)
                hint = (
                    "write dbsp.struct_of({…}) for a struct"
                    if struct
                    else "write one such as dbsp.INT64 or dbsp.STRING"
                )
                raise CircuitError(f"not a column type: column={name} type={type_!r}", hint)
        return Schema.of(columns)
    listed = tuple(columns) if isinstance(columns, Iterable) else ()
    if not listed or not all(isinstance(column, Column) for column in listed):
        raise CircuitError(
            f"not a schema: got={columns!r}", 'write one such as {"id": dbsp.INT64, "name": dbsp.STRING}'
        )
    return Schema(listed)
