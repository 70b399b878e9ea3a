"""Arithmetic of decimals in whole columns: exact, whatever the digits.

Arrow computes in 256 bits, 76 digits. It derives a result's digits from the types of the operands alone, and refuses
operands whose result could have more. So operands are labelled as narrow as their values allow. Arrow's long division
is wrong for some numbers, whose quotient is right below a power of 2**32. So every quotient is multiplied back. The
column is computed in Python if that does not confirm the quotient, or if a divisor has too many digits for Arrow.

Invariant: a result is the exact one, rounded at most once, or an error of its row (`ROW_ERRORS`).
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.expr.expression import broadcast
from dbsp.zset.arrays import pair_view
from dbsp.zset.schema import FLOAT64, STRING

DIGITS = 38
"""Digits of a column's decimals."""
WIDE_DIGITS = 76
"""Digits of Arrow's widest decimals."""
_EXACT_WHOLE, _EXACT_POWER = 1 << 53, 22
"""Whole numbers up to the first, and powers of ten up to the second as exponent, are exact as 64-bit floats."""
_ROOM = WIDE_DIGITS - 1
"""Digits of each side of a sum, or of both sides of a product or quotient together: Arrow's result has one digit more."""


def add_up(function: Callable[..., pa.Array], left: Any, right: Any, target: pa.DataType) -> pa.Array:
    """Return a sum or difference in the target type; `function` is Arrow's kernel for it."""
    wide = pa.decimal256(_ROOM, target.scale)
    return function(left.cast(wide), right.cast(wide)).cast(target)


def multiply(left: Any, right: Any, target: pa.DataType) -> pa.Array:
    """Return a product, with the decimal places of both sides."""
    digits, others = left.type.precision, right.type.precision
    try:
        sides = _labelled(left, digits), _labelled(right, min(others, _ROOM - digits))
    except pa.ArrowInvalid:  # the right side has all 38 digits: the left one may have few
        sides = _labelled(left, min(digits, _ROOM - others)), _labelled(right, others)
    return pc.multiply_checked(*sides).cast(target)


def divide(left: Any, right: Any, target: pa.DataType) -> pa.Array:
    """Return a quotient, rounded half away from zero; the dividend must fit the quotient's type."""
    dividend = left.cast(pa.decimal256(DIGITS + target.scale + 1 - left.type.scale, target.scale + 1))
    dividend = _labelled(dividend, DIGITS + 1)
    if right.type.scale < DIGITS:  # else the quotient lacks the digit that rounds it
        divisor = _or_none(right, _ROOM - 1 - DIGITS)
        if divisor is not None:
            quotient = pc.divide_checked(dividend, divisor)
            rounded = pc.round(quotient, target.scale, round_mode="half_towards_infinity").cast(target)
            if _confirmed(_is_quotient, left, divisor, rounded):
                return rounded
    return _by_row(lambda one, other: _nearest(one / other, target.scale), left, right, target)


def floor_divide(left: Any, right: Any, target: pa.DataType) -> pa.Array:
    """Return the quotient of two decimals of one type, rounded down."""
    divisor = _or_none(right, _ROOM - DIGITS)
    if divisor is not None:
        quotient = _floored(left, divisor).cast(target)
        if _confirmed(_is_remainder, divisor, _rest(left, divisor, quotient)):
            return quotient
    return _by_row(_floor, left, right, target)


def modulo(left: Any, right: Any) -> pa.Array:
    """Return the remainder of two decimals of one type, whose quotient is rounded down; its sign is the divisor's."""
    divisor = _or_none(right, _ROOM - DIGITS)
    if divisor is not None:
        rest = _rest(left, divisor, _floored(left, divisor))
        if _confirmed(_is_remainder, divisor, rest):
            return rest.cast(left.type)
    return _by_row(lambda one, other: one - _floor(one, other) * other, left, right, left.type)


def rounded(values: Any, digits: int) -> pa.Array:
    """Round to `digits` decimal places, halves away from zero."""
    made = pc.round(values, digits, round_mode="half_towards_infinity")
    half = Decimal(5).scaleb(-digits - 1)
    if digits >= values.type.scale or _confirmed(
        lambda: pc.less_equal(pc.abs(pc.subtract(values, made)), _scalar(half))
    ):
        return made
    return _each(lambda value: _nearest(value, digits), values)


def floor(values: Any) -> pa.Array:
    """Round down to whole numbers."""
    made = pc.floor(values)
    if _confirmed(lambda: _is_part(pc.subtract(values, made))):
        return made
    return _each(lambda value: value.to_integral_value(ROUND_FLOOR), values)


def ceil(values: Any) -> pa.Array:
    """Round up to whole numbers."""
    made = pc.ceil(values)
    if _confirmed(lambda: _is_part(pc.subtract(made, values))):
        return made
    return _each(lambda value: value.to_integral_value(ROUND_CEILING), values)


def trunc(values: Any) -> pa.Array:
    """Round towards zero to whole numbers."""
    made = pc.trunc(values)
    if _confirmed(lambda: _is_part(pc.abs(pc.subtract(values, made)))):
        return made
    return _each(lambda value: value.to_integral_value(ROUND_DOWN), values)


def _labelled(values: Any, digits: int) -> Any:
    """Return decimals in 256 bits, in a type of so many digits; `ArrowInvalid` if a value has more."""
    return values.cast(pa.decimal256(digits, values.type.scale))


def _or_none(values: Any, digits: int) -> Any | None:
    """Return the decimals as `_labelled` does; None if a value has more digits."""
    try:
        return _labelled(values, digits)
    except pa.ArrowInvalid:
        return None


def _confirmed(check: Callable[..., Any], *operands: Any) -> bool:
    """Return whether a check holds on every row; a value that does not fit 76 digits on the way counts as not confirmed."""
    try:
        return bool(pc.all(check(*operands), min_count=0).as_py())
    except pa.ArrowInvalid:
        return False


def _is_quotient(left: Any, divisor: Any, quotient: Any) -> Any:
    """Return a mask of the rows whose quotient is the nearest one with its number of decimal places.

    Of two equally near quotients, the one farther from zero is right.
    """
    product = _labelled(pc.multiply_checked(_labelled(quotient, DIGITS), divisor), _ROOM)
    dividend = left.cast(product.type)
    rest = _labelled(pc.abs(pc.subtract(dividend, product)), _ROOM)
    other = pc.subtract(pc.abs(divisor).cast(product.type), rest)
    away = pc.and_(pc.equal(rest, other), pc.greater(pc.abs(product), pc.abs(dividend)))
    return pc.or_(pc.less(rest, other), away)


def _floored(left: Any, divisor: Any) -> pa.Array:
    """Return the quotient of the sides, rounded down.

    Arrow's quotient has one decimal place more than the divisor has digits. So Arrow cuts no quotient but 0 to 0, and
    a negative one is rounded down to -1.
    """
    return pc.floor(pc.divide_checked(_labelled(left, DIGITS), divisor)).cast(pa.decimal128(DIGITS, 0))


def _rest(left: Any, divisor: Any, quotient: Any) -> pa.Array:
    """Return the dividend minus quotient times divisor."""
    product = pc.multiply_checked(_labelled(quotient, DIGITS), divisor)
    return pc.subtract(_labelled(left, _ROOM), _labelled(product, _ROOM))


def _is_remainder(divisor: Any, rest: Any) -> Any:
    """Return where the remainder is nearer to zero than the divisor, and on the same side."""
    zero = _scalar(Decimal(0))
    inside = pc.less(pc.abs(rest), pc.abs(divisor))
    return pc.and_(inside, pc.or_(pc.equal(rest, zero), pc.equal(pc.less(rest, zero), pc.less(divisor, zero))))


def _is_part(rest: Any) -> Any:
    """Return where the rest is at least 0 and below 1."""
    return pc.and_(pc.greater_equal(rest, _scalar(Decimal(0))), pc.less(rest, _scalar(Decimal(1))))


def _scalar(value: Decimal) -> pa.Scalar:
    return pa.scalar(value)


def _by_row(function: Callable[[Decimal, Decimal], Decimal], left: Any, right: Any, target: pa.DataType) -> pa.Array:
    """Apply the function to both sides in Python, with enough digits for any two decimals."""
    rows = next(len(side) for side in (left, right) if not isinstance(side, pa.Scalar))
    made: list[Decimal | None] = []
    with localcontext(prec=2 * WIDE_DIGITS, rounding=ROUND_DOWN):
        for one, other in zip(*(broadcast(side, rows).to_pylist() for side in (left, right)), strict=True):
            if other == 0 and one is not None:
                raise pa.ArrowInvalid("Divide by zero")
            made.append(None if one is None or other is None else function(one, other))
    return pa.array(made, target)


def _each(function: Callable[[Decimal], Decimal], values: pa.Array) -> pa.Array:
    """Apply the function to each value in Python."""
    with localcontext(prec=2 * WIDE_DIGITS):
        return pa.array([None if value is None else function(value) for value in values.to_pylist()], values.type)


def _nearest(value: Decimal, places: int) -> Decimal:
    return value.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)


def _floor(dividend: Decimal, divisor: Decimal) -> Decimal:
    return (dividend / divisor).to_integral_value(ROUND_FLOOR)


def as_floats(values: pa.Array) -> pa.Array:
    """Return the nearest floats.

    A quotient of a whole number and a power of ten is exact if both are floats themselves. Other decimals become text,
    which Arrow reads as the nearest float. Arrow's own cast multiplies by the inverse of the power, which is no float.
    So its result is off by a bit for one decimal in ten.
    """
    type_ = values.type
    nulls = np.asarray(values.is_null())
    words = pair_view(values).view(np.int64)
    whole = words[:, 0]
    exact = (words[:, 1] == whole >> 63) & (whole >= -_EXACT_WHOLE) & (whole <= _EXACT_WHOLE)
    if type_.scale > _EXACT_POWER or not (exact | nulls).all():
        return values.cast(STRING).cast(FLOAT64)
    return pa.array(whole / 10.0**type_.scale, mask=nulls)
