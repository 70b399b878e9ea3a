"""Parts of dates and times, and truncation to a unit. Weeks start on Monday. Time zones play no part: UTC stays UTC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dbsp.errors import CircuitError
from dbsp.expr.expression import Expression, Function, Operands
from dbsp.expr.names import nearest
from dbsp.expr.types import is_timestamp, type_of, typed
from dbsp.zset.schema import DATE, INT64, STRING, TIME, TIMESTAMP, TIMESTAMP_UTC

DATE_UNITS = ("year", "quarter", "month", "week", "day")
TIME_UNITS = ("hour", "minute", "second", "millisecond")


def naive(values: pa.Array) -> pa.Array:
    """Return a UTC timestamp without its zone, so that Arrow reads no time zone database."""
    return values.cast(TIMESTAMP) if values.type == TIMESTAMP_UTC else values


def _fit_part(operands: Operands) -> tuple[Expression, ...]:
    args = typed(operands)
    type_ = type_of(args[0], operands.types[0])
    of_date = operands.function not in ("hour", "minute", "second", "microsecond")
    if not (is_timestamp(type_) or type_ == (DATE if of_date else TIME)):
        kinds = "dates and timestamps" if of_date else "times and timestamps"
        raise operands.refuse(f"it is for {kinds}: write {args[0]}.cast(dbsp.TIMESTAMP)")
    return args


def _fit_truncate(operands: Operands) -> tuple[Expression, ...]:
    (unit,) = operands.options
    if not isinstance(unit, str):
        raise CircuitError(f"the unit must be a constant text: unit={unit!r}", 'such as .truncate("day")')
    args = typed(operands)
    type_ = type_of(args[0], operands.types[0])
    units = {DATE: DATE_UNITS, TIME: TIME_UNITS}.get(type_, (*DATE_UNITS, *TIME_UNITS) if is_timestamp(type_) else ())
    if not units:
        raise operands.refuse(f"it is for dates, times and timestamps: write {args[0]}.cast(dbsp.TIMESTAMP)")
    if unit not in units:
        raise CircuitError(f"no such unit for this type: unit={unit} type={type_}", nearest(str(unit), units))
    return args


def _truncate(values: pa.Array, unit: str) -> pa.Array:
    if values.type == TIMESTAMP_UTC:
        return pc.floor_temporal(naive(values), unit=unit).cast(pa.int64()).cast(TIMESTAMP_UTC)
    return pc.floor_temporal(values, unit=unit)


def _microseconds(values: pa.Array) -> pa.Array:
    """Return the microseconds of the second, 0 to 999,999."""
    return pc.add(pc.multiply(pc.millisecond(values), 1000), pc.microsecond(values))


def _part(name: str, compute: Callable[..., Any]) -> Function:
    return Function(
        name=name,
        fit=_fit_part,
        result=lambda _: INT64,
        compute=lambda values: compute(naive(values)),
        text=f"{{0}}.{name}()",
    )


def _named(name: str, part: Function, names: str) -> Function:
    """Create the function for the English name of a part that counts from 1."""

    def compute(values: pa.Array) -> pa.Array:
        words = pa.array(names.split())  # made at an import it would load pandas
        return words.take(pc.subtract(part.compute(values), 1))

    return Function(name=name, fit=_fit_part, result=lambda _: STRING, compute=compute, text=f"{{0}}.{name}()")


YEAR = _part("year", pc.year)
ISO_YEAR = _part("iso_year", pc.iso_year)
WEEK = _part("week", pc.iso_week)
QUARTER = _part("quarter", pc.quarter)
MONTH = _part("month", pc.month)
DAY = _part("day", pc.day)
DAY_OF_WEEK = _part("day_of_week", lambda values: pc.day_of_week(values, count_from_zero=False))
DAY_OF_YEAR = _part("day_of_year", pc.day_of_year)
HOUR = _part("hour", pc.hour)
MINUTE = _part("minute", pc.minute)
SECOND = _part("second", pc.second)
MICROSECOND = _part("microsecond", _microseconds)
DAY_NAME = _named("day_name", DAY_OF_WEEK, "Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTH_NAME = _named(
    "month_name",
    MONTH,
    "January February March April May June July August September October November December",
)
TRUNCATE = Function(
    name="truncate", fit=_fit_truncate, result=lambda type_, _unit: type_, compute=_truncate, text="{0}.truncate({1})"
)

FUNCTIONS = (
    YEAR,
    ISO_YEAR,
    QUARTER,
    MONTH,
    WEEK,
    DAY,
    DAY_OF_WEEK,
    DAY_OF_YEAR,
    HOUR,
    MINUTE,
    SECOND,
    MICROSECOND,
    TRUNCATE,
    DAY_NAME,
    MONTH_NAME,
)
