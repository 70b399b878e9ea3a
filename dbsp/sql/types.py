"""SQL types as column types, and the common type of two values in a query."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa

from dbsp.errors import CircuitError
from dbsp.expr.build import Expr
from dbsp.expr.expression import Call, ColumnRef, Expression, Literal
from dbsp.expr.methods.applied import unwrap
from dbsp.expr.names import nearest
from dbsp.expr.now import NOW
from dbsp.expr.resolving import resolve
from dbsp.expr.types import DECIMAL_DIGITS, common_type, is_decimal, is_float, is_integer, is_number
from dbsp.expr.walking import fold
from dbsp.sql.errors import refuse
from dbsp.zset import schema as types
from dbsp.zset.schema import Schema

NAMED = {
    "BOOLEAN": types.BOOL,
    "TINYINT": types.INT8,
    "SMALLINT": types.INT16,
    "INT": types.INT32,
    "BIGINT": types.INT64,
    "UTINYINT": types.UINT8,
    "USMALLINT": types.UINT16,
    "UINT": types.UINT32,
    "UBIGINT": types.UINT64,
    "FLOAT": types.FLOAT32,
    "DOUBLE": types.FLOAT64,
    "TEXT": types.STRING,
    "VARCHAR": types.STRING,
    "CHAR": types.STRING,
    "BLOB": types.BINARY,
    "VARBINARY": types.BINARY,
    "DATE": types.DATE,
    "TIME": types.TIME,
    "TIMESTAMP": types.TIMESTAMP,
    "TIMESTAMPNTZ": types.TIMESTAMP,
    "DATETIME": types.TIMESTAMP,
    "TIMESTAMPTZ": types.TIMESTAMP_UTC,
    "INTERVAL": types.DURATION,
}
_WRITTEN = (
    "boolean", "tinyint", "smallint", "integer", "bigint", "real", "double", "decimal", "numeric", "varchar", "text", "blob",
    "date", "time", "timestamp", "timestamptz", "interval", "struct",
)  # fmt: skip
_KNOWN = "there are boolean, tinyint to bigint and unsigned, real, double, decimal(p, s), varchar, blob, date, time, timestamp,"
_INSTEAD = f"{_KNOWN} timestamptz, interval, type[] and struct(…)"


def column_type(node: Any) -> pa.DataType:
    """Return the column type that a SQL type denotes; refuse an unknown type."""
    name = node.this.name if hasattr(node.this, "name") else str(node.this)
    if name in ("DECIMAL", "NUMERIC"):
        digits = [int(part.this.this) for part in node.expressions]
        precision, scale = (*digits, *(18, 3)[len(digits) :])[:2] if len(digits) != 1 else (digits[0], 0)
        return types.decimal(precision, scale)
    if name in ("ARRAY", "LIST") and node.expressions:
        return types.list_of(column_type(node.expressions[0]))
    if name == "STRUCT":
        return types.struct_of({field.name: column_type(field.args["kind"]) for field in node.expressions})
    if name not in NAMED:
        written = node.sql(dialect="duckdb")
        hint = nearest(written, _WRITTEN)
        refuse(node, f"no such type of a column: type={written}", hint if hint.startswith("did you mean") else _INSTEAD)
    return NAMED[name]


def type_in(value: Expr, schema: Schema) -> pa.DataType | None:
    """Return the type of a value over these columns, or None for a constant that adopts the type it is used with."""
    expression = unwrap(value)
    if isinstance(expression, Literal):
        return expression.dtype
    if isinstance(expression, ColumnRef) and expression.name in schema:
        return schema[expression.name].type
    found: pa.DataType = resolved(value, schema).type(schema)
    return found


def resolved(value: Expr, schema: Schema) -> Expression:
    """Return the value with its types resolved.

    The clock is allowed in filters alone; for type resolution it is a fixed moment.
    """
    return resolve(_at_some_time(unwrap(value)), schema)


def _at_some_time(expression: Expression) -> Expression:
    if not (isinstance(expression, Call) and expression.moving):
        return expression

    def made(node: Expression, args: list[Expression]) -> Expression:
        if not isinstance(node, Call):
            return node
        if node.function == NOW:
            return Literal(datetime.datetime(1970, 1, 1), types.TIMESTAMP)
        return Call(node.function, tuple(args), node.options) if node.moving else node

    return fold(expression, made)


def constant(value: Expr) -> Any:
    """Return the Python value of a constant; raise `CircuitError` if the value is no constant."""
    expression = unwrap(value)
    if not isinstance(expression, Literal):
        raise CircuitError(f"a constant is wanted here: got={value}")
    return expression.value


def is_constant(value: Expr) -> bool:
    """Return whether the value is a constant."""
    return isinstance(unwrap(value), Literal)


def as_float(value: Expr, schema: Schema, target: pa.DataType = types.FLOAT64) -> Expr:
    """Return a number as a double, or as `target`; a value that is a float already keeps its type."""
    expression = unwrap(value)
    if isinstance(expression, Literal) and isinstance(expression.value, int | float | decimal.Decimal):
        return float_constant(expression.value, expression.dtype if is_real(expression.dtype) else target)
    type_ = type_in(value, schema)
    return value if type_ is None or is_float(type_) else value.cast(target)


def float_constant(value: int | float | decimal.Decimal, type_: pa.DataType) -> Expr:
    """Return a number as a float constant.

    A real is rounded to 32 bits here, so that it has lost the same digits if it becomes a double later.
    """
    return Expr(Literal(pa.scalar(float(value), type_).as_py(), type_))


def is_real(type_: pa.DataType | None) -> bool:
    """Return whether the type is a 32-bit float."""
    return type_ is not None and type_ == types.FLOAT32


def floats_of(values: list[Expr], schema: Schema) -> list[Expr]:
    """Return the numbers as floats: as reals if one of them is a real and none is a double, else as doubles.

    A constant with a decimal point counts as a decimal.
    """
    natural = [_natural(value, schema) for value in values]
    target = types.FLOAT32 if any(map(is_real, natural)) and types.FLOAT64 not in natural else types.FLOAT64
    return [as_float(value, schema, target) for value in values]


def with_room(value: Expr, type_: pa.Decimal128Type) -> Expr:
    """Return a decimal cast to a type with one more digit, if there is one, because rounding 9.99 needs it."""
    room = types.decimal(min(type_.precision + 1, DECIMAL_DIGITS), type_.scale)
    return value if room == type_ else value.cast(room)


def met(values: list[Expr], schema: Schema) -> list[Expr]:
    """Return the values in the types that DuckDB compares and computes in.

    A decimal next to a float becomes a float, and a real next to a double becomes a double. All other values stay
    unchanged.
    """
    natural = [type_ for value in values if (type_ := _natural(value, schema)) is not None]
    floats = {str(type_) for type_ in natural if is_float(type_)}
    exact = any(is_decimal(type_) or (is_integer(type_) and "double" not in floats) for type_ in natural)
    if not floats or not all(map(is_number, natural)) or not (exact or len(floats) > 1):
        return values
    made = floats_of(values, schema)
    if len(floats) > 1:
        return [value.cast(types.FLOAT64) if is_real(type_in(value, schema)) else value for value in made]
    return made


def _natural(value: Expr, schema: Schema) -> pa.DataType | None:
    """Return the type of a value for finding a common type; a constant counts with the type it has by itself.

    Return None for a constant that does not influence others, such as a whole number.
    """
    known = type_in(value, schema)
    if known is not None:
        return known
    held = constant(value)
    if isinstance(held, decimal.Decimal):
        return types.decimal(38, 0)
    return types.FLOAT64 if isinstance(held, float) else None


def common(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the common type of two columns in a set operation or a key, or None."""
    if is_real(left) != is_real(right) and types.FLOAT64 not in (left, right) and is_number(left) and is_number(right):
        return types.FLOAT32
    found: pa.DataType | None = common_type(left, right)
    if found is None and (is_float(left) or is_float(right)) and (is_decimal(left) or is_decimal(right)):
        return types.FLOAT64
    return found
