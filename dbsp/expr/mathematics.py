"""Mathematics on numbers: roots, powers, logarithms, angles, bits, and the greatest or least of several.

Outside its domain a function fails its row (the root or logarithm of a negative number). Functions on floats are those
of the machine's C library, whose last bit may differ between systems. So the workers of one pipeline should run one
system.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dbsp.expr.cast import cast_hint, to_common, to_type
from dbsp.expr.expression import Expression, Function, Operands
from dbsp.expr.logic import EQUAL, GREATER, LESS
from dbsp.expr.types import is_float, is_integer, is_number, meet, type_of, typed
from dbsp.zset.schema import BOOL, FLOAT64, INT64


def _fit_floats(operands: Operands) -> tuple[Expression, ...]:
    """Fit numbers of any kind to float64."""
    args = typed(operands)
    fitted = []
    for arg, own in zip(args, operands.types, strict=True):
        type_ = type_of(arg, own)
        if not is_number(type_):
            raise operands.refuse("it is for numbers")
        fitted.append(to_type(arg, type_, FLOAT64))
    return tuple(fitted)


def _fit_sign(operands: Operands) -> tuple[Expression, ...]:
    (arg,) = args = typed(operands)
    if not is_number(type_of(arg, operands.types[0])):
        raise operands.refuse("it is for numbers")
    return args


def _fit_float(operands: Operands) -> tuple[Expression, ...]:
    (arg,) = args = typed(operands, FLOAT64)
    if not is_float(type_of(arg, operands.types[0])):
        raise operands.refuse("it is for floats: other numbers are always finite")
    return args


def _fit_bits(operands: Operands) -> tuple[Expression, ...]:
    _, target = meet(operands, cast_hint)
    if not is_integer(target):
        raise operands.refuse("bits are those of integers: cast to dbsp.INT64")
    return to_common(operands)


def _float(name: str, compute: Callable[..., Any], text: str = "") -> Function:
    """Create a function from floats to floats."""
    return Function(
        name=name, fit=_fit_floats, result=lambda *_: FLOAT64, compute=compute, text=text or f"{{0}}.{name}()"
    )


def _best(better: Function) -> Callable[..., Any]:
    """Return a function that gives the best of the values that are not null; NaN is above every number.

    The result is null if all values are.
    """

    def pair(left: Any, right: Any) -> Any:
        wins = pc.or_(pc.fill_null(better.compute(left, right), False), pc.is_null(right))
        return pc.if_else(wins, left, right)

    return lambda *data: reduce(pair, data)


def _nullif(left: Any, right: Any) -> Any:
    """Return null where the two are equal, else the left value; NaN equals NaN."""
    same = pc.fill_null(EQUAL.compute(left, right), False)
    return pc.if_else(same, pa.scalar(None, left.type), left)


def _best_of(name: str, better: Function) -> Function:
    return Function(name=name, fit=better.fit, result=lambda first, *_: first, compute=_best(better), nulls="all")


def _bits(name: str, compute: Callable[..., Any], text: str) -> Function:
    return Function(name=name, fit=_fit_bits, result=lambda first, *_: first, compute=compute, text=text)


def _shifted_left(values: Any, bits: Any) -> Any:
    """Shift left; a bit that is shifted out, or into the sign, fails its row."""
    made = pc.shift_left_checked(values, bits)
    if pc.any(pc.not_equal(pc.shift_right(made, bits), values)).as_py():
        raise pa.ArrowInvalid("overflow")
    return made


def _shifted_right(values: Any, bits: Any) -> Any:
    """Shift right; the result is 0 where the number has fewer bits.

    Arrow's kernel does not shift by all bits but the sign's, so that shift is done in two parts.
    """
    width = values.type.bit_width
    inside = pc.and_(pc.greater_equal(bits, 0), pc.less(bits, width))
    last = pc.equal(bits, width - 1)
    most = pc.if_else(pc.and_(inside, pc.invert(last)), bits, pa.scalar(0, bits.type))
    shifted = pc.shift_right(values, pc.if_else(last, pa.scalar(width - 2, bits.type), most))
    shifted = pc.shift_right(shifted, pc.if_else(last, pa.scalar(1, bits.type), pa.scalar(0, bits.type)))
    return pc.if_else(inside, shifted, pc.bit_wise_xor(values, values))  # 0, and null where there is no value


def _sign(values: Any) -> Any:
    signs = pc.sign(values)
    if is_float(values.type):  # a NaN has no sign
        signs = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), signs)
    return signs.cast(INT64)


SQRT = _float("sqrt", pc.sqrt_checked)
EXP = _float("exp", pc.exp)
LN = _float("ln", pc.ln_checked)
LOG10 = _float("log10", pc.log10_checked)
LOG2 = _float("log2", pc.log2_checked)
POWER = _float("power", pc.power, "({0} ** {1})")
SIN = _float("sin", pc.sin_checked)
COS = _float("cos", pc.cos_checked)
TAN = _float("tan", pc.tan_checked)
ASIN = _float("asin", pc.asin_checked)
ACOS = _float("acos", pc.acos_checked)
ATAN = _float("atan", pc.atan)
ATAN2 = _float("atan2", pc.atan2, "atan2({0}, {1})")
SIGN = Function(name="sign", fit=_fit_sign, result=lambda *_: INT64, compute=_sign, nulls="always", text="{0}.sign()")
IS_NAN = Function(name="is_nan", fit=_fit_float, result=lambda *_: BOOL, compute=pc.is_nan, text="{0}.is_nan()")
IS_FINITE = Function(
    name="is_finite", fit=_fit_float, result=lambda *_: BOOL, compute=pc.is_finite, text="{0}.is_finite()"
)
GREATEST = _best_of("greatest", GREATER)
LEAST = _best_of("least", LESS)
NULLIF = Function(name="nullif", fit=LESS.fit, result=lambda first, *_: first, compute=_nullif, nulls="always")
BIT_AND = _bits("bit_and", pc.bit_wise_and, "{0}.bit_and({1})")
BIT_OR = _bits("bit_or", pc.bit_wise_or, "{0}.bit_or({1})")
BIT_XOR = _bits("bit_xor", pc.bit_wise_xor, "{0}.bit_xor({1})")
BIT_NOT = _bits("bit_not", pc.bit_wise_not, "{0}.bit_not()")
SHIFT_LEFT = _bits("shift_left", _shifted_left, "{0}.shift_left({1})")
SHIFT_RIGHT = _bits("shift_right", _shifted_right, "{0}.shift_right({1})")

FUNCTIONS = (
    SQRT, EXP, LN, LOG10, LOG2, POWER, SIN, COS, TAN, ASIN, ACOS, ATAN, ATAN2, SIGN, IS_NAN, IS_FINITE,
    GREATEST, LEAST, NULLIF, BIT_AND, BIT_OR, BIT_XOR, BIT_NOT, SHIFT_LEFT, SHIFT_RIGHT,
)  # fmt: skip
