"""Rules by which types fit each other: the common type of two operands, and the constants that may join them.

Two integers meet in the narrowest integer type that holds both. Integers and floats meet in float64. Decimals accept
integers but no floats. A date meets a timestamp as a timestamp. A Python constant takes the type of the other operand
if its value fits unchanged.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from dbsp.expr.expression import Expression, Literal, Operands, decimal_type, natural_type
from dbsp.zset.schema import DATE, FLOAT64, INT64, TIME, TIMESTAMP

DECIMAL_DIGITS = 38
INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}


def is_integer(type_: pa.DataType) -> bool:
    """Return whether the type is an integer, signed or unsigned, of any width."""
    return bool(pa.types.is_integer(type_))


def is_float(type_: pa.DataType) -> bool:
    """Return whether the type is float32 or float64."""
    return bool(pa.types.is_floating(type_))


def is_decimal(type_: pa.DataType) -> bool:
    """Return whether the type is a decimal."""
    return bool(pa.types.is_decimal(type_))


def is_number(type_: pa.DataType) -> bool:
    """Return whether the type is an integer, a float or a decimal."""
    return is_integer(type_) or is_float(type_) or is_decimal(type_)


def is_timestamp(type_: pa.DataType) -> bool:
    """Return whether the type is a timestamp, with or without time zone."""
    return bool(pa.types.is_timestamp(type_))


def type_of(arg: Expression, own: pa.DataType | None) -> Any:
    """Return an operand's type: a constant's is its given one, any other operand's is `own`."""
    return arg.dtype if isinstance(arg, Literal) else own


def common_integer(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the narrowest integer type that holds both; None for uint64 with a signed type."""
    signed = pa.types.is_signed_integer(left), pa.types.is_signed_integer(right)
    if signed[0] == signed[1]:
        return left if left.bit_width >= right.bit_width else right
    one, other = (left, right) if signed[0] else (right, left)
    width = max(one.bit_width, 2 * other.bit_width)
    return {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}.get(width)


def as_decimal(type_: pa.DataType) -> pa.DataType:
    """Return the decimal type that holds every value of an integer or decimal type."""
    return type_ if is_decimal(type_) else pa.decimal128(INTEGER_DIGITS[type_.bit_width], 0)


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the type in which both can be compared, or None."""
    if left == right:
        return left
    if is_integer(left) and is_integer(right):
        return common_integer(left, right)
    if (is_float(left) or is_integer(left)) and (is_float(right) or is_integer(right)):
        return FLOAT64
    if (is_decimal(left) or is_integer(left)) and (is_decimal(right) or is_integer(right)):
        left, right = as_decimal(left), as_decimal(right)
        scale = max(left.scale, right.scale)
        whole = max(left.precision - left.scale, right.precision - right.scale)
        return pa.decimal128(min(DECIMAL_DIGITS, whole + scale), scale)
    if {left, right} == {DATE, TIMESTAMP}:
        return TIMESTAMP
    return None


def adopt(value: Any, type_: pa.DataType) -> Literal | None:
    """Return the constant as a literal of this type, or None if the value would change."""
    if value is None:
        return Literal(None, type_)
    converted = _convert(value, type_)
    if converted is None:
        return None
    try:
        pa.scalar(converted, type_)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return None
    return Literal(converted, type_)


def _convert(value: Any, type_: pa.DataType) -> Any:
    """Return the Python value that a column of this type would hold, or None."""
    kind = type(value)
    if kind is bool:
        return value if type_ == pa.bool_() else None
    if is_integer(type_):
        return value if isinstance(value, int) else None
    if is_float(type_):
        return float(value) if isinstance(value, int | float) else None
    if is_decimal(type_):
        exact = decimal.Decimal(value) if isinstance(value, int | decimal.Decimal) else None
        return exact if exact is not None and common_type(decimal_type(exact), type_) == type_ else None
    if isinstance(value, str) and type_ != pa.string():
        return _parse(value, type_)
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime) and type_ == TIMESTAMP:
        return datetime.datetime(value.year, value.month, value.day)
    natural = natural_type(value)
    return value if natural == type_ else None


def _parse(text: str, type_: pa.DataType) -> Any:
    """Return the date or time that an ISO text denotes; None for any other text."""
    try:
        if type_ == DATE:
            return datetime.date.fromisoformat(text)
        if type_ == TIME:
            return datetime.time.fromisoformat(text)
        if is_timestamp(type_):
            moment = datetime.datetime.fromisoformat(text)
            return moment if (moment.tzinfo is None) == (type_.tz is None) else None
    except ValueError:
        return None
    return None


def typed(operands: Operands, otherwise: pa.DataType | None = None) -> tuple[Expression, ...]:
    """Return the arguments with untyped constants given `otherwise` if they fit it, else their natural type."""
    fitted: list[Expression] = []
    for arg, type_ in zip(operands.args, operands.types, strict=True):
        if type_ is None and isinstance(arg, Literal):
            adopted = adopt(arg.value, otherwise) if otherwise is not None else None
            fitted.append(adopted if adopted is not None else Literal(arg.value, natural_type(arg.value)))
        else:
            fitted.append(arg)
    return tuple(fitted)


def meet(operands: Operands, hint: Callable[[Operands], str]) -> tuple[tuple[Expression, ...], pa.DataType]:
    """Return the arguments with typed constants, and the type in which all of them meet.

    `hint` says what to write if there is no such type.
    """
    known = [type_ for type_ in operands.types if type_ is not None]
    target = known[0] if known else None
    for type_ in known[1:]:
        target = common_type(target, type_)
        if target is None:
            raise operands.refuse(hint(operands))
    if target is None:
        literals = [arg for arg in operands.args if isinstance(arg, Literal) and arg.value is not None]
        target = natural_type(literals[0].value) if literals else INT64
    fitted = typed(operands, target)
    for arg, type_ in zip(fitted, operands.types, strict=True):
        if type_ is None and isinstance(arg, Literal):
            target = common_type(target, arg.dtype)
            if target is None:
                raise operands.refuse(hint(operands))
    return fitted, target
