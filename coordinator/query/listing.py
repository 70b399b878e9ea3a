"""`SHOW TABLES` and `DESCRIBE view`, which other databases have, as the SELECT that gives the same rows.

The names and the columns are those of the circuit, so the SELECT reads no view: its rows are constants.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from dbsp.coordinator.query.quoting import identifier, literal
from dbsp.zset import schema as t
from dbsp.zset.schema import Column, is_list, is_struct

LIST_VIEWS = "SHOW TABLES lists the views, and DESCRIBE <view> its columns"
_BLANK = r"(?:\s|--[^\n]*|/\*.*?\*/)"
_END = rf"{_BLANK}*;?{_BLANK}*$"
_VIEW = r'(?:(?:public|"public")\s*\.\s*)?(?P<view>"(?:[^"]|"")+"|[^\W\d]\w*)'
_NAMES = re.compile(rf"(?is){_BLANK}*show\s+(?:all\s+)?(?:tables|views|materialized\s+views|relations){_END}")
_COLUMNS = re.compile(
    rf"(?is){_BLANK}*(?:show\s+(?:full\s+)?columns\s+(?:from|in)|desc(?:ribe)?)\s+"
    rf"(?:(?:table|view|materialized\s+view)\s+)?{_VIEW}{_END}"
)
_SQL_NAMES = {
    t.BOOL: "boolean", t.INT8: "tinyint", t.INT16: "smallint", t.INT32: "integer", t.INT64: "bigint", t.UINT8: "utinyint",
    t.UINT16: "usmallint", t.UINT32: "uinteger", t.UINT64: "ubigint", t.FLOAT32: "real", t.FLOAT64: "double",
    t.STRING: "varchar", t.BINARY: "blob", t.DATE: "date", t.TIME: "time", t.TIMESTAMP: "timestamp",
    t.TIMESTAMP_UTC: "timestamptz", t.DURATION: "interval",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Listing:
    """The columns of a view, or without a view the names of all views."""

    view: str | None = None


def listing(sql: str) -> Listing | None:
    """Return what a statement lists; None for other statements.

    >>> listing("show tables;"), listing('describe "Sales"'), listing("SHOW COLUMNS FROM public.sales"), listing("select 1")
    (Listing(view=None), Listing(view='Sales'), Listing(view='sales'), None)
    """
    if _NAMES.match(sql):
        return Listing()
    found = _COLUMNS.match(sql)
    if found is None:
        return None
    name = found["view"]
    return Listing(name[1:-1].replace('""', '"') if name.startswith('"') else name)


def names_query(views: Sequence[str]) -> str:
    """Return the SELECT of the names of views."""
    return _constants(["name"], [[view] for view in sorted(views)])


def columns_query(columns: Sequence[Column]) -> str:
    """Return the SELECT of names and types of columns, in their order.

    >>> columns_query([Column("id", t.INT64, nullable=False)])
    'select * from (values (\\'id\\', \\'bigint\\', \\'NO\\')) as listed("column_name", "column_type", "null")'
    """
    rows = [[column.name, sql_type(column.type), "YES" if column.nullable else "NO"] for column in columns]
    return _constants(["column_name", "column_type", "null"], rows)


def sql_type(type_: pa.DataType) -> str:
    """Return the name of a column type in SQL.

    >>> sql_type(t.list_of(t.decimal(9, 2))), sql_type(t.struct_of({"a": t.INT32}))
    ('decimal(9, 2)[]', 'struct("a" integer)')
    """
    if is_list(type_):
        return f"{sql_type(type_.value_type)}[]"
    if is_struct(type_):
        return f"struct({', '.join(f'{identifier(field.name)} {sql_type(field.type)}' for field in type_)})"
    if pa.types.is_decimal(type_):
        return f"decimal({type_.precision}, {type_.scale})"
    return _SQL_NAMES[type_]


def _constants(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a SELECT of rows of texts."""
    header = ", ".join(map(identifier, names))
    if not rows:
        return f"select * from (values ({', '.join('null' for _ in names)})) as listed({header}) where false"  # noqa: S608
    values = ", ".join(f"({', '.join(map(literal, row))})" for row in rows)
    return f"select * from (values {values}) as listed({header})"  # noqa: S608 - texts are quoted
