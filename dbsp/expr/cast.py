"""Casts between types: strict (a value that would change fails its row) or lenient (the value becomes null).

A strict cast fails in these cases:
- A number is outside the range of a narrower integer type.
- A float with a fraction becomes an integer.
- A number has more digits than the target decimal.
- Text is not a number.

A cast does not round: users write `round` for that. Integers become floats by the nearest value.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal, InvalidOperation

import pyarrow as pa
import pyarrow.compute as pc

from dbsp.errors import CircuitError
from dbsp.expr.bisection import computed
from dbsp.expr.decimals import as_floats
from dbsp.expr.expression import Call, Expression, Function, Literal, Operands, natural_type
from dbsp.expr.float_text import text_of_floats
from dbsp.expr.rows import ROW_ERRORS
from dbsp.expr.type_names import spelled
from dbsp.expr.types import adopt, is_decimal, is_float, is_integer, is_number, is_timestamp, meet, type_of, typed
from dbsp.zset.fitting import to_decimal
from dbsp.zset.schema import (
    DATE,
    DURATION,
    FLOAT32,
    FLOAT64,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMP_UTC,
    WHOLE,
    is_list,
    is_struct,
    is_supported,
)

_COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")


def convert(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert the values to another type; raise one of `ROW_ERRORS` if a value does not fit."""
    source = values.type
    if is_decimal(target):
        return to_decimal(values, target)
    if is_float(source) and target == STRING:
        return text_of_floats(values)
    if target == STRING and (is_timestamp(source) or source == TIME):
        return _text_of_moments(values)
    if source == STRING and target == TIME:
        return _time_of_text(values)
    if source == TIMESTAMP and target == TIMESTAMP_UTC:
        return values.cast(pa.int64()).cast(target)
    if source == TIMESTAMP_UTC and target in (DATE, TIME):
        values = values.cast(TIMESTAMP)
    if is_decimal(source) and is_float(target):
        values, source = as_floats(values), FLOAT64
    if is_float(source) and target == FLOAT32:
        return _narrowed(values)
    rounds = (is_integer(source) and is_float(target)) or (is_timestamp(source) and target in (DATE, TIME))
    return values.cast(target, safe=not rounds)


def _narrowed(values: pa.Array) -> pa.Array:
    """Convert floats to 32 bits; `ArrowInvalid` if a finite value is beyond their range."""
    made = values.cast(FLOAT32)
    if pc.any(pc.and_(pc.is_inf(made), pc.is_finite(values))).as_py():
        raise pa.ArrowInvalid("overflow")
    return made


def _text_of_moments(values: pa.Array) -> pa.Array:
    """Write times as SQL does: a fraction only if there is one, without zeros at its end."""
    return pc.replace_substring_regex(values.cast(STRING), r"\.?0+(Z?)$", r"\1")


def _time_of_text(values: pa.Array) -> pa.Array:
    """Read text such as `10:30:00` or `10:30:00.25` as the time of a timestamp, which Arrow can parse."""
    return convert(pc.binary_join_element_wise("1970-01-01T", values, "").cast(TIMESTAMP), TIME)


def convert_or_null(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert the values to another type; a value that does not fit becomes null."""
    try:
        return convert(values, target)
    except ROW_ERRORS:
        encoded = values.dictionary_encode()
        fitting, _ = computed(
            lambda rows: convert(encoded.dictionary.take(pa.array(rows)), target), len(encoded.dictionary)
        )
        return fitting.take(encoded.indices)


def _compute(values: pa.Array, target: pa.DataType, strict: bool) -> pa.Array:
    return convert(values, target) if strict else convert_or_null(values, target)


def castable(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether there is a cast between the two types at all."""
    if source != target and (_holds_structs(source) or _holds_structs(target)):
        return False
    try:
        convert(pa.array([], source), target)
    except (pa.ArrowNotImplementedError, *ROW_ERRORS):
        return False
    return True


def _holds_structs(type_: pa.DataType) -> bool:
    """Return whether the type is a struct, or a list that contains structs."""
    return is_struct(type_) or (is_list(type_) and _holds_structs(type_.value_type))


def _fit(operands: Operands) -> tuple[Expression, ...]:
    target, _ = operands.options
    if not isinstance(target, pa.DataType) or not is_supported(target):
        raise CircuitError(
            f"not a column type: type={target}", "cast to one of dbsp.INT64, dbsp.STRING, dbsp.decimal(12, 2), …"
        )
    (arg,), (source,) = typed(operands, target), operands.types
    if isinstance(arg, Literal):
        source = arg.dtype
    if source is not None and not castable(source, target):
        fields = ': cast fields, dbsp.struct(a=dbsp.col("x.a").cast(…))' if _holds_structs(source) else ""
        raise operands.refuse(f"there is no cast from {source} to {target}{fields}")
    return (arg if source is None else _converted_first(arg, source, target),)


def _within(name: str, result: pa.DataType, compute: Callable[[pa.Array], pa.Array]) -> Function:
    """Create the function that a cast applies first; the readable text of an expression does not show that function."""
    return Function(
        name=name, fit=lambda operands: operands.args, result=lambda _source: result, compute=compute, text="{0}"
    )


FLOAT_TEXT = _within("float_text", STRING, text_of_floats)
DECIMAL_FLOAT = _within("decimal_float", FLOAT64, as_floats)


def _converted_first(arg: Expression, source: pa.DataType, target: pa.DataType) -> Expression:
    """Return the argument with the function that a cast applies first, which converts floats and decimals.

    So the rule of that conversion is part of a circuit's fingerprint.
    """
    if is_float(source) and target == STRING:
        return Call(FLOAT_TEXT, (arg,))
    return Call(DECIMAL_FLOAT, (arg,)) if is_decimal(source) and is_float(target) else arg


CAST = Function(
    name="cast",
    fit=_fit,
    result=lambda _source, target, _strict: target,
    compute=_compute,
    nulls="cast",
    text="{0}.cast({1})",
)


def to_type(arg: Expression, source: pa.DataType, target: pa.DataType) -> Expression:
    """Return the argument in the target type: the argument itself, a constant of that type, or a cast."""
    if source == target:
        return arg
    if isinstance(arg, Literal):
        adopted = adopt(arg.value, target)
        if adopted is not None:
            return adopted
    return Call(CAST, (_converted_first(arg, source, target),), (target, True))


def to_common(operands: Operands) -> tuple[Expression, ...]:
    """Return all arguments in their common type; `CircuitError` with the cast to write if there is none."""
    args, target = meet(operands, cast_hint)
    sources = [type_of(arg, type_) for arg, type_ in zip(args, operands.types, strict=True)]
    return tuple(to_type(arg, source, target) for arg, source in zip(args, sources, strict=True))


_WIDENED = frozenset({*_COMPARISONS, "add", "subtract", "multiply", "greatest", "least", "coalesce"})
"""Functions for which the hint may suggest to cast two integer columns, which no integer type holds both, to a decimal."""


def cast_hint(operands: Operands) -> str:
    """Return the hint for types that do not fit: the cast of a column to write, or another constant."""
    types = [_alone(arg, own) for arg, own in zip(operands.args, operands.types, strict=True)]
    if operands.function == "add" and STRING in types:
        mixed = [arg for arg, type_ in zip(operands.args, types, strict=True) if type_ not in (STRING, None)]
        if mixed and not isinstance(mixed[0], Literal):
            return f"write {mixed[0]}.cast(dbsp.STRING) to join texts"
    if operands.function in _COMPARISONS and STRING in types:
        meant = _meant(operands.args, types) or _meant(operands.args[::-1], types[::-1])
        if meant:
            return meant
    if DURATION in types and operands.function in _COMPARISONS:
        return 'compare a span with a span, dbsp.days(3), or a number with dbsp.date_diff("day", a, b) or span / dbsp.days(1)'
    wide = spelled(WHOLE)
    for arg, source in zip(operands.args, types, strict=True):
        for other, target in zip(operands.args, types, strict=True):
            if source is None or target is None or source == target or isinstance(arg, Literal):
                continue
            if (
                is_integer(source)
                and is_integer(target)
                and not isinstance(other, Literal)
                and operands.function in _WIDENED
            ):
                return f"write {arg}.cast({wide}) and {other}.cast({wide}), which holds both"
            if is_decimal(source) and isinstance(other, Literal) and is_float(target):
                return f'write Decimal("{other}") for the constant, or {arg}.cast({spelled(target)})'
            if castable(source, target):
                return f"write {arg}.cast({spelled(target)})"
    return "cast one side with .cast(type)"


def _meant(args: tuple[Expression, ...], types: list[pa.DataType | None]) -> str:
    """Return the hint for a column compared with a text constant: how to write the constant in the column's type.

    Empty if the right argument is no text constant, or if its text is no number. Casting the column to text instead
    would compare in alphabetical order.
    """
    (left, right), (type_, other) = args, types
    if not isinstance(right, Literal) or other != STRING or type_ is None or isinstance(left, Literal):
        return ""
    if type_ == DATE:
        return 'write a datetime.date, or an ISO text such as "2024-05-31"'
    if type_ == TIME:
        return 'write a datetime.time, or an ISO text such as "10:30:00"'
    if type_ == TIMESTAMP:
        return f'write a datetime.datetime without zone, or an ISO text such as "{_moment(right.value, utc=False)}"'
    if type_ == TIMESTAMP_UTC:
        return f'write a datetime.datetime with its zone, or an ISO text such as "{_moment(right.value, utc=True)}"'
    number = _number(right.value, type_)
    return f"write {number}, without quotes" if number else ""


def _moment(text: str, utc: bool) -> str:
    """Return the ISO text with a zone or without, in UTC; an example if the text is no timestamp."""
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        moment = datetime.datetime(2024, 5, 31, 10)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    moment = moment.astimezone(datetime.UTC)
    return (moment if utc else moment.replace(tzinfo=None)).isoformat()


def _number(text: str, type_: pa.DataType) -> str:
    """Return the Python literal of the number for a column of this type; empty if the text is no number."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return ""
    if not number.is_finite() or not is_number(type_):
        return ""
    return f'Decimal("{number}")' if is_decimal(type_) and number != number.to_integral_value() else str(number)


def _alone(arg: Expression, own: pa.DataType | None) -> pa.DataType | None:
    """Return the type of an operand; for a constant, the type that its Python value has by itself."""
    if own is None and isinstance(arg, Literal) and arg.value is not None:
        return natural_type(arg.value)
    return own
