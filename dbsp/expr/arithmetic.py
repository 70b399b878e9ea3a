"""Arithmetic: checked integers, exact decimals, IEEE floats; dates, times and durations where the sum makes sense.

An overflow or a division by zero fails its row. `/` gives float64, or a decimal between decimals. That quotient has at
least six digits after the point, and is rounded half away from zero. `//` and `%` are for integers and decimals, and
round down, as in Python.

These rows of decimals fail too:
- A result has more digits than its type.
- A dividend of `/` does not fit the quotient's type.
- A side of `//` or `%` does not fit the common type of both sides.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dbsp.expr import decimals
from dbsp.expr.cast import cast_hint, to_common, to_type
from dbsp.expr.expression import Call, Expression, Function, Literal, Operands, natural_type
from dbsp.expr.float_round import rounded_floats
from dbsp.expr.types import (
    DECIMAL_DIGITS,
    as_decimal,
    common_type,
    is_decimal,
    is_float,
    is_integer,
    is_number,
    is_timestamp,
    meet,
    type_of,
    typed,
)
from dbsp.zset.schema import BINARY, DATE, DURATION, FLOAT64, INT64, STRING, TIME, TIMESTAMP

Types = tuple[pa.DataType, pa.DataType]
DIVISION_SCALE_MIN = 6


def _sum_decimal(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    left, right = as_decimal(left), as_decimal(right)
    scale = max(left.scale, right.scale)
    whole = max(left.precision - left.scale, right.precision - right.scale)
    return pa.decimal128(min(DECIMAL_DIGITS, whole + scale + 1), scale)


def _add_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if is_decimal(left):
        return _sum_decimal(left, right)
    if {left, right} == {DURATION, DATE}:
        return TIMESTAMP
    return left if right == DURATION else right if left == DURATION else left


def _subtract_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if left == right and (is_timestamp(left) or left in (DATE, TIME)):
        return DURATION
    return _add_type(left, right)


def _multiply_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if is_decimal(left):
        left, right = as_decimal(left), as_decimal(right)
        return pa.decimal128(min(DECIMAL_DIGITS, left.precision + right.precision), left.scale + right.scale)
    return right if right == DURATION else left


def _divide_type(left: pa.DataType, _right: pa.DataType) -> pa.DataType:
    if is_decimal(left):
        return pa.decimal128(DECIMAL_DIGITS, max(DIVISION_SCALE_MIN, left.scale))
    return FLOAT64


def _wide(function: Callable[..., pa.Array], result: Callable[..., pa.DataType]) -> Callable[..., pa.Array]:
    """Return a function that computes decimals in 256 bits and checks that the results fit.

    Other types pass straight to the given function.
    """

    def compute(left: Any, right: Any) -> pa.Array:
        if is_decimal(left.type):
            return decimals.add_up(function, left, right, result(left.type, right.type))
        return function(left, right)

    return compute


def _add(left: Any, right: Any) -> pa.Array:
    if left.type in (STRING, BINARY):
        return pc.binary_join_element_wise(left, right, pa.scalar(b"").cast(left.type))
    if DATE in (left.type, right.type):
        left, right = (side.cast(TIMESTAMP) if side.type == DATE else side for side in (left, right))
    return pc.add_checked(left, right)


def _subtract(left: Any, right: Any) -> pa.Array:
    left, right = (side.cast(TIMESTAMP) if side.type == DATE else side for side in (left, right))
    return pc.subtract_checked(left, right)


def _multiply(left: Any, right: Any) -> pa.Array:
    if is_decimal(left.type):
        return decimals.multiply(left, right, _multiply_type(left.type, right.type))
    return pc.multiply_checked(left, right)


def _divide(left: Any, right: Any) -> pa.Array:
    if is_decimal(left.type):
        return decimals.divide(left, right, _divide_type(left.type, right.type))
    return pc.divide_checked(left, right)


def _floor_type(left: pa.DataType, _right: pa.DataType) -> pa.DataType:
    return pa.decimal128(left.precision, 0) if is_decimal(left) else left


def _floor_divide(left: Any, right: Any) -> pa.Array:
    if is_decimal(left.type):
        return decimals.floor_divide(left, right, _floor_type(left.type, right.type))
    quotient = pc.divide_checked(left, right)
    remainder = pc.subtract(left, pc.multiply(quotient, right))
    inexact = pc.and_(pc.not_equal(remainder, 0), pc.not_equal(pc.less(remainder, 0), pc.less(right, 0)))
    return pc.subtract(quotient, inexact.cast(quotient.type))


def _modulo(left: Any, right: Any) -> pa.Array:
    if is_decimal(left.type):
        return decimals.modulo(left, right)
    left, right = (side.cast(INT64) if side.type != pa.uint64() else side for side in (left, right))
    safe = pc.if_else(pc.equal(right, -1), 1, right) if right.type == INT64 else right
    quotient = pc.divide_checked(left, safe)
    remainder = pc.subtract(left, pc.multiply(quotient, safe))
    wrong_sign = pc.and_(pc.not_equal(remainder, 0), pc.not_equal(pc.less(remainder, 0), pc.less(safe, 0)))
    return pc.if_else(wrong_sign, pc.add(remainder, safe), remainder)


def _cut_divide(left: Any, right: Any) -> pa.Array:
    """Return the quotient of whole numbers, cut towards zero."""
    return pc.divide_checked(left, right)


def _cut_modulo(left: Any, right: Any) -> pa.Array:
    """Return the remainder of whole numbers, with the sign of the dividend."""
    safe = pc.if_else(pc.equal(right, -1), 1, right) if pa.types.is_signed_integer(right.type) else right
    return pc.subtract(left, pc.multiply(pc.divide_checked(left, safe), safe))


def _fit_numbers(operands: Operands) -> tuple[Expression, ...] | None:
    """Fit both numbers to one type, except that decimals keep their own scales; None if a side is no number."""
    natural = [_natural(arg, type_) for arg, type_ in zip(operands.args, operands.types, strict=True)]
    if not all(type_ is None or is_number(type_) for type_ in natural):
        return None
    args, target = meet(operands, cast_hint)
    if not is_decimal(target):
        return to_common(operands)
    sources = [type_of(arg, own) for arg, own in zip(args, operands.types, strict=True)]
    return tuple(to_type(arg, source, as_decimal(source)) for arg, source in zip(args, sources, strict=True))


def _natural(arg: Expression, type_: pa.DataType | None) -> pa.DataType | None:
    """Return the operand's type; for a constant its natural type, and None for a null constant."""
    if type_ is None and isinstance(arg, Literal) and arg.value is not None:
        return natural_type(arg.value)
    return type_


def _scale(arg: Expression, own: pa.DataType | None) -> int:
    """Return the number of decimal places of an operand."""
    type_ = type_of(arg, own)
    return type_.scale if type_ is not None and is_decimal(type_) else 0


def _is_moment(type_: pa.DataType) -> bool:
    return is_timestamp(type_) or type_ in (DATE, TIME, DURATION)


def _known(operands: Operands) -> tuple[tuple[Expression, ...], Types]:
    """Return the two arguments with typed constants, and their types.

    A constant next to a date, time or duration takes its type if it fits.
    """
    beside = next((type_ for type_ in operands.types if type_ is not None), None)
    args = typed(operands, beside)
    left, right = (type_of(arg, own) for arg, own in zip(args, operands.types, strict=True))
    return args, (left, right)


def _fit_sum(operands: Operands) -> tuple[Expression, ...]:
    numbers = _fit_numbers(operands)
    if numbers is not None:
        return numbers
    args, (left, right) = _known(operands)
    if operands.function == "add":
        moments = (_is_moment(left) and right == DURATION) or (left == DURATION and _is_moment(right))
        if moments or left == right in (STRING, BINARY):
            return args
    elif (_is_moment(left) and right == DURATION) or (left == right and _is_moment(left)):
        return args
    elif _is_moment(left) and common_type(left, right) == TIMESTAMP:
        return to_common(operands)
    if _is_moment(left) or _is_moment(right):
        raise operands.refuse("to move a date or time add a datetime.timedelta, such as datetime.timedelta(days=1)")
    raise operands.refuse(cast_hint(operands))


def _fit_product(operands: Operands) -> tuple[Expression, ...]:
    numbers = _fit_numbers(operands)
    if numbers is not None:
        if sum(_scale(arg, own) for arg, own in zip(numbers, operands.types, strict=True)) > DECIMAL_DIGITS:
            raise operands.refuse(
                "a product has the decimal places of both, at most 38: write .cast(dbsp.decimal(38, 6)) before"
            )
        return numbers
    args, (left, right) = _known(operands)
    if DURATION in (left, right) and all(type_ == DURATION or is_integer(type_) for type_ in (left, right)):
        sides = tuple(
            arg if source == DURATION else to_type(arg, source, INT64)
            for arg, source in zip(args, (left, right), strict=True)
        )
        if left != right:
            return sides
    raise operands.refuse(cast_hint(operands))


def _fit_quotient(operands: Operands) -> tuple[Expression, ...]:
    if DURATION in operands.types:
        args, (left, right) = _known(operands)
        if left == right == DURATION:
            return args
    numbers = _fit_numbers(operands)
    if numbers is None:
        raise operands.refuse(cast_hint(operands))
    decimals = [isinstance(arg, Literal) and is_decimal(arg.dtype) for arg in numbers]
    if any(decimals) or any(type_ is not None and is_decimal(type_) for type_ in operands.types):
        return numbers
    _, target = meet(operands, cast_hint)
    return tuple(to_type(arg, target, FLOAT64) for arg in numbers)


_FLOATS = {
    "floor_divide": "// is for integers and decimals: write (a / b).floor()",
    "modulo": "% is for integers and decimals: write a - (a / b).floor() * b",
}


def _fit_exact(operands: Operands) -> tuple[Expression, ...]:
    _, target = meet(operands, cast_hint)
    if not (is_integer(target) or is_decimal(target)):
        raise operands.refuse(_FLOATS[operands.function])
    return to_common(operands)


def _fit_number(operands: Operands) -> tuple[Expression, ...]:
    args = typed(operands)
    type_ = type_of(args[0], operands.types[0])
    signed = type_ == DURATION and operands.function in ("negate", "abs")
    if not (signed or is_number(type_)):
        raise operands.refuse("it is for numbers")
    if operands.function == "negate" and pa.types.is_unsigned_integer(type_):
        raise operands.refuse(f"an unsigned integer has no negative: write {args[0]}.cast(dbsp.INT64)")
    return args


def _rounded(values: pa.Array, digits: int) -> pa.Array:
    if is_integer(values.type):
        return values if digits >= 0 else pc.round(values, digits, round_mode="half_towards_infinity")
    if is_decimal(values.type):
        return values if digits >= values.type.scale else decimals.rounded(values, max(digits, -decimals.WIDE_DIGITS))
    if digits:
        return values  # `ROUND_FLOAT` has rounded them: see `_fit_round`
    return pc.round(values, digits, round_mode="half_towards_infinity")


def _fit_round(operands: Operands) -> tuple[Expression, ...]:
    """Fit the operand of `round`; a float operand becomes a call of `ROUND_FLOAT` inside the call of `round`.

    So a circuit's fingerprint contains the name of the function that rounds floats, and a new rounding rule changes it.
    """
    (arg,) = _fit_number(operands)
    (digits,) = operands.options
    rounded = isinstance(arg, Call) and arg.function == ROUND_FLOAT and arg.options == operands.options
    if digits and not rounded and is_float(type_of(arg, operands.types[0])):
        return (Call(ROUND_FLOAT, (arg,), (digits,)),)
    return (arg,)


def _whole(of_floats: Callable[..., pa.Array], of_decimals: Callable[..., pa.Array]) -> Callable[..., pa.Array]:
    def compute(values: pa.Array) -> pa.Array:
        if is_integer(values.type):
            return values
        return of_decimals(values) if is_decimal(values.type) else of_floats(values)

    return compute


def _same(type_: pa.DataType, *_options: Any) -> pa.DataType:
    return type_


def _one(name: str, compute: Callable[..., pa.Array], text: str = "") -> Function:
    return Function(name=name, fit=_fit_number, result=_same, compute=compute, text=text)


def _two(name: str, fit: Any, result: Any, compute: Any, symbol: str, fails: Any = None) -> Function:
    return Function(name=name, fit=fit, result=result, compute=compute, text=f"({{0}} {symbol} {{1}})", fails=fails)


def _by_zero(left: Any, right: Any) -> Any:
    """Return a mask of the rows that are sure to fail with a division by zero.

    Wide decimals are left out: the dividend is first shifted to the quotient's scale, and may fail because it does not
    fit then.
    """
    zero: Any = 0
    if is_decimal(left.type):
        zero = Decimal(0)
        if left.type.precision - left.type.scale > DECIMAL_DIGITS - _divide_type(left.type, right.type).scale:
            return pa.scalar(False)
    return pc.and_(pc.equal(right, pa.scalar(zero, right.type)), pc.is_valid(left))


ADD = _two("add", _fit_sum, _add_type, _wide(_add, _add_type), "+")
SUBTRACT = _two("subtract", _fit_sum, _subtract_type, _wide(_subtract, _subtract_type), "-")
MULTIPLY = _two("multiply", _fit_product, _multiply_type, _multiply, "*")
DIVIDE = _two("divide", _fit_quotient, _divide_type, _divide, "/", _by_zero)
FLOOR_DIVIDE = _two("floor_divide", _fit_exact, _floor_type, _floor_divide, "//", _by_zero)
MODULO = _two("modulo", _fit_exact, _same, _modulo, "%", _by_zero)
CUT_DIVIDE = _two("cut_divide", _fit_exact, _same, _cut_divide, "//", _by_zero)
CUT_MODULO = _two("cut_modulo", _fit_exact, _same, _cut_modulo, "%", _by_zero)
NEGATE = _one("negate", pc.negate_checked, "-{0}")
ABS = _one("abs", pc.abs_checked)
ROUND_FLOAT = _one("round_float", rounded_floats, "{0}")
ROUND = Function(name="round", fit=_fit_round, result=_same, compute=_rounded)
FLOOR = _one("floor", _whole(pc.floor, decimals.floor))
CEIL = _one("ceil", _whole(pc.ceil, decimals.ceil))
TRUNC = _one("trunc", _whole(pc.trunc, decimals.trunc))

FUNCTIONS = (
    ADD,
    SUBTRACT,
    MULTIPLY,
    DIVIDE,
    FLOOR_DIVIDE,
    MODULO,
    CUT_DIVIDE,
    CUT_MODULO,
    NEGATE,
    ABS,
    ROUND_FLOAT,
    ROUND,
    FLOOR,
    CEIL,
    TRUNC,
)
