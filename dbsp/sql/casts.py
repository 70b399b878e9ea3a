"""CAST and TRY_CAST with DuckDB's rules for each pair of types. TRY_CAST returns null where CAST fails."""

from __future__ import annotations

import decimal
import math
import re
from typing import Any

import pyarrow as pa
from sqlglot import exp

from dbsp.errors import CircuitError
from dbsp.expr.build import Expr, coalesce, lit, when
from dbsp.expr.types import is_decimal, is_float, is_integer, is_timestamp
from dbsp.sql.intervals import interval
from dbsp.sql.types import float_constant, with_room
from dbsp.zset.schema import BOOL, DATE, FLOAT64, STRING, TIME, TIMESTAMP, TIMESTAMP_UTC
from dbsp.zset.schema import decimal as decimal_of

_EXACT = decimal_of(38, 10)
_HALF = 0.5
_SHORT = ((r"^\s+", ""), (r"^(\d{4}-)(\d-)", r"\10\2"), (r"^(\d{4}-\d\d-)(\d(?:[T ].*)?)$", r"\10\2"))
"""(pattern, replacement): rewrite a text of a date without leading spaces, with month and day padded to two digits."""
_TRUE, _FALSE = ["t", "true", "y", "yes", "1"], ["f", "false", "n", "no", "0"]


def cast(value: Expr, source: pa.DataType, target: pa.DataType, *, strict: bool) -> Expr:
    """Return the expression that converts a value of a row from one type to another.

    With `strict` a failed conversion is an error of the row; otherwise its value is null.
    """
    if source == STRING:
        return _of_text(value, target, strict)
    if source == TIMESTAMP_UTC and target == STRING:  # DuckDB writes the offset of the session's zone, which is UTC
        return value.cast(STRING).regexp_replace("Z$", "+00")
    if is_integer(target) and is_float(source):
        value = _nearest(value)
    elif is_integer(target) and is_decimal(source):
        value = with_room(value, source).round()
    elif is_decimal(target) and is_decimal(source) and source.scale > target.scale:
        value = with_room(value, source).round(target.scale)
    elif is_decimal(target) and is_float(source):
        value = _to_places(value.cast(FLOAT64), target.scale)
    elif target == DATE and is_timestamp(source):
        value = value.truncate("day")
    return value.cast(target, strict=strict)


def cast_constant(value: Any, target: pa.DataType, *, strict: bool) -> Expr:
    """Return a constant converted to another type, computed here where Python's arithmetic suffices."""
    if value is None:
        return lit(None, target)
    if isinstance(value, int | float | decimal.Decimal) and not isinstance(value, bool):
        return _number(value, target, strict)
    if isinstance(value, str):
        return _text(value, target, strict)
    made: Expr = lit(value).cast(target, strict=strict)
    return made


def _number(value: int | float | decimal.Decimal, target: pa.DataType, strict: bool) -> Expr:
    try:
        return _exact_number(value, target, strict)
    except (ArithmeticError, ValueError):
        raise CircuitError(f"a constant that does not fit the type: value={str(value)[:80]} type={target}") from None


def _exact_number(value: int | float | decimal.Decimal, target: pa.DataType, strict: bool) -> Expr:
    if is_float(target):
        found = float_constant(value, target)
        if math.isinf(float(pa.scalar(float(value), target).as_py())) and math.isfinite(value):
            raise CircuitError(f"the constant does not fit its type: value={value} type={target}", "give another type")
        return found
    if is_integer(target):
        mode = decimal.ROUND_HALF_EVEN if isinstance(value, float) else decimal.ROUND_HALF_UP
        return lit(int(decimal.Decimal(value).to_integral_value(mode)), target)
    if is_decimal(target):
        exact = decimal.Decimal(repr(value) if isinstance(value, float) else value)
        step = decimal.Decimal(1).scaleb(-target.scale)
        return lit(exact.quantize(step, decimal.ROUND_HALF_UP, decimal.Context(prec=60)), target)
    made: Expr = lit(value).cast(target, strict=strict)
    return made


def _text(value: str, target: pa.DataType, strict: bool) -> Expr:
    if target == pa.duration("us"):
        span = interval(exp.Interval(this=exp.Literal.string(value)), lambda part: lit(part.this))
        if span is not None and not span.months:
            return lit(span.span)
    if target in (DATE, TIMESTAMP, STRING):
        for pattern, padded in () if target == STRING else _SHORT:
            value = re.sub(pattern, padded.replace(r"\1", r"\g<1>"), value)
        return lit(value, target)
    return _of_text(lit(value, STRING), target, strict)


def _of_text(value: Expr, target: pa.DataType, strict: bool) -> Expr:
    """Return the expression that parses a text, with spaces around it, as a value of the target type.

    A number may have more decimal places than the target keeps. A date may be followed by a time of day.
    """
    if target == BOOL:
        return coalesce(_truth(value), value.cast(BOOL)) if strict else _truth(value)
    if target in (TIME, TIMESTAMP, TIMESTAMP_UTC):
        return _moment(value, target, strict)
    if not (is_integer(target) or is_decimal(target) or is_float(target) or target == DATE):
        return value.cast(target, strict=strict)
    value = value.trim()
    said = [value.cast(target, strict=False)]
    if target == DATE:
        value = _written_out(value)
        said.append(value.cast(TIMESTAMP, strict=False).truncate("day").cast(DATE))
    elif not is_float(target):
        digits = target.scale if is_decimal(target) else 0
        found = (
            value.cast(_EXACT, strict=False).round(digits),
            _to_places(value.cast(FLOAT64, strict=False), digits),
        )
        said.extend(number.cast(target, strict=False) for number in found)
    return coalesce(*said, value.cast(target)) if strict else coalesce(*said)


def _moment(value: Expr, target: pa.DataType, strict: bool) -> Expr:
    """Return the expression that parses a text as a timestamp or a time of day; a bare number is no time of day."""
    if target == TIMESTAMP:
        return _written_out(value).cast(target, strict=strict)
    if target == TIMESTAMP_UTC:  # a text without an offset is in the session's zone, UTC
        value = _written_out(value).trim()
        found = value.cast(target, strict=False), value.cast(TIMESTAMP, strict=False).cast(target)
        return coalesce(*found, value.cast(target)) if strict else coalesce(*found)
    value = value.regexp_replace(r"^\s*\d*\s*$", "")
    said = value.cast(target, strict=False), _written_out(value).cast(TIMESTAMP, strict=False).cast(target)
    return coalesce(*said, value.cast(target)) if strict else coalesce(*said)


def _written_out(value: Expr) -> Expr:
    """Return the text of a date without leading spaces, with month and day padded to two digits, as Arrow parses dates."""
    for pattern, padded in _SHORT:
        value = value.regexp_replace(pattern, padded)
    return value


def _truth(value: Expr) -> Expr:
    """Return the truth value that a text spells, and null for any other text."""
    said = value.lower()
    return when(said.is_in(_TRUE), lit(True)).when(said.is_in(_FALSE), lit(False)).otherwise(lit(None, BOOL))


def _nearest(value: Expr) -> Expr:
    """Round a double to the nearest whole number, halves to the even one, as DuckDB's casts do."""
    rounded = value.round()
    return when((value - rounded).abs() == _HALF, (value / 2.0).round() * 2.0).otherwise(rounded)


def _to_places(value: Expr, places: int) -> Expr:
    """Round a double to a number of decimal places as DuckDB's casts do.

    A half is decided by the product with the power of ten, unlike in `round`.
    """
    by = lit(10.0**places)
    return (value * by).round() / by
