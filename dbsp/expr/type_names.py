"""The engine's own names of the column types, in fingerprints and messages: they must not change with Arrow's spelling."""

from __future__ import annotations

import json

import pyarrow as pa

from dbsp.zset.schema import (
    DATE,
    DURATION,
    FLOAT32,
    FLOAT64,
    TIME,
    TIMESTAMP,
    TIMESTAMP_UTC,
    Schema,
    is_list,
    is_struct,
)

_NAMES = {
    FLOAT32: "float32",
    FLOAT64: "float64",
    DATE: "date",
    TIME: "time",
    TIMESTAMP: "timestamp",
    TIMESTAMP_UTC: "timestamp_utc",
    DURATION: "duration",
}


def type_name(type_: pa.DataType) -> str:
    """Return the name of a type: `int64`, `timestamp_utc`, `decimal(12, 2)`."""
    if pa.types.is_decimal(type_):
        return f"decimal({type_.precision}, {type_.scale})"
    if is_struct(type_):
        return f"struct({', '.join(f'{field.name!r} {type_name(field.type)}' for field in type_)})"
    if is_list(type_) and pa.types.is_nested(type_.value_type):
        return f"list({type_name(type_.value_type)})"
    return _NAMES.get(type_, str(type_))


def spelled(type_: pa.DataType) -> str:
    """Return the type as a user writes it: `dbsp.INT64`, `dbsp.decimal(12, 2)`."""
    if is_list(type_):
        return f"dbsp.list_of({spelled(type_.value_type)})"
    if is_struct(type_):
        return f"dbsp.struct_of({{{', '.join(f'{json.dumps(f.name)}: {spelled(f.type)}' for f in type_)}}})"
    name = type_name(type_)
    return f"dbsp.{name}" if name.startswith("decimal") else f"dbsp.{name.upper()}"


def schema_name(schema: Schema) -> str:
    """Return the canonical text of a schema."""
    return "(" + ", ".join(f"{c.name!r} {type_name(c.type)}{'' if c.nullable else ' not null'}" for c in schema) + ")"
