"""PostgreSQL's types that columns of results have: number, name, size, and what an Arrow type becomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

VARIABLE = -1
DEFAULT_MODIFIER = -1


@dataclass(frozen=True, slots=True)
class PgType:
    """A type: `oid` its number, `name` that of `pg_type`, `title` that of `format_type`, `array` the number of its array."""

    oid: int
    name: str
    title: str
    size: int
    array: int
    category: str


BOOL = PgType(16, "bool", "boolean", 1, 1000, "B")
BYTEA = PgType(17, "bytea", "bytea", VARIABLE, 1001, "U")
CHAR = PgType(18, "char", '"char"', 1, 1002, "Z")
NAME = PgType(19, "name", "name", 64, 1003, "S")
INT8 = PgType(20, "int8", "bigint", 8, 1016, "N")
INT2 = PgType(21, "int2", "smallint", 2, 1005, "N")
INT4 = PgType(23, "int4", "integer", 4, 1007, "N")
TEXT = PgType(25, "text", "text", VARIABLE, 1009, "S")
OID = PgType(26, "oid", "oid", 4, 1028, "N")
JSON = PgType(114, "json", "json", VARIABLE, 199, "U")
FLOAT4 = PgType(700, "float4", "real", 4, 1021, "N")
FLOAT8 = PgType(701, "float8", "double precision", 8, 1022, "N")
UNKNOWN = PgType(705, "unknown", "unknown", -2, 0, "X")
BPCHAR = PgType(1042, "bpchar", "character", VARIABLE, 1014, "S")
VARCHAR = PgType(1043, "varchar", "character varying", VARIABLE, 1015, "S")
DATE = PgType(1082, "date", "date", 4, 1182, "D")
TIME = PgType(1083, "time", "time without time zone", 8, 1183, "D")
TIMESTAMP = PgType(1114, "timestamp", "timestamp without time zone", 8, 1115, "D")
TIMESTAMPTZ = PgType(1184, "timestamptz", "timestamp with time zone", 8, 1185, "D")
INTERVAL = PgType(1186, "interval", "interval", 16, 1187, "T")
NUMERIC = PgType(1700, "numeric", "numeric", VARIABLE, 1231, "N")
UUID = PgType(2950, "uuid", "uuid", 16, 2951, "U")
JSONB = PgType(3802, "jsonb", "jsonb", VARIABLE, 3807, "U")

SCALARS = (
    BOOL, BYTEA, CHAR, NAME, INT8, INT2, INT4, TEXT, OID, JSON, FLOAT4, FLOAT8, UNKNOWN, BPCHAR, VARCHAR, DATE, TIME,
    TIMESTAMP, TIMESTAMPTZ, INTERVAL, NUMERIC, UUID, JSONB,
)  # fmt: skip


def array_of(element: PgType) -> PgType:
    """Return the type of arrays of a type."""
    return PgType(element.array, f"_{element.name}", f"{element.title}[]", VARIABLE, 0, "A")


ARRAYS = tuple(array_of(each) for each in SCALARS if each.array)
BY_OID: Mapping[int, PgType] = {each.oid: each for each in (*SCALARS, *ARRAYS)}
TYPE_NAMES: Mapping[object, object] = {each.oid: each.title for each in BY_OID.values()}
OIDS: Mapping[object, object] = {
    **{each.title: each.oid for each in BY_OID.values()}, **{each.name: each.oid for each in BY_OID.values()},
    "int": INT4.oid, "decimal": NUMERIC.oid, "string": TEXT.oid, "timestamp": TIMESTAMP.oid, "char": BPCHAR.oid,
    "float": FLOAT8.oid, "time": TIME.oid, "integer": INT4.oid, "timestamp with time zone": TIMESTAMPTZ.oid,
}  # fmt: skip


def type_of(type_: pa.DataType) -> PgType:  # noqa: PLR0911, C901 (one return per kind of type)
    """Return what values of an Arrow type become; structs, maps and nested lists of them are JSON."""
    types = pa.types
    if types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_):
        element = type_of(type_.value_type)
        return array_of(element) if element.array else JSON
    if types.is_boolean(type_):
        return BOOL
    if types.is_int8(type_) or types.is_int16(type_) or types.is_uint8(type_):
        return INT2
    if types.is_int32(type_) or types.is_uint16(type_):
        return INT4
    if types.is_int64(type_) or types.is_uint32(type_):
        return INT8
    if types.is_uint64(type_) or types.is_decimal(type_):
        return NUMERIC
    if types.is_float32(type_) or types.is_float16(type_):
        return FLOAT4
    if types.is_float64(type_):
        return FLOAT8
    if types.is_date(type_):
        return DATE
    if types.is_time(type_):
        return TIME
    if types.is_timestamp(type_):
        return TIMESTAMP if type_.tz is None else TIMESTAMPTZ
    if types.is_interval(type_) or types.is_duration(type_):
        return INTERVAL
    if types.is_binary(type_) or types.is_large_binary(type_) or types.is_fixed_size_binary(type_):
        return BYTEA
    if types.is_struct(type_) or types.is_map(type_):
        return JSON
    return TEXT


def modifier_of(type_: pa.DataType) -> int:
    """Return the modifier of a column's type: precision and scale of a decimal."""
    if pa.types.is_decimal(type_):
        return int(((type_.precision << 16) | type_.scale) + 4)
    return DEFAULT_MODIFIER
