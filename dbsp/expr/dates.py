"""Counting with dates and times: differences, months added, buckets, epochs, and text in a format.

Time zones do not enter: a UTC timestamp is counted in UTC.
"""

from __future__ import annotations

import datetime
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.errors import CircuitError
from dbsp.expr.cast import to_common
from dbsp.expr.expression import Expression, Function, Literal, Operands
from dbsp.expr.names import nearest
from dbsp.expr.temporal import naive
from dbsp.expr.types import is_integer, is_timestamp, typed
from dbsp.zset.schema import DATE, INT64, STRING, TIMESTAMP

BETWEEN = {
    "year": pc.years_between,
    "quarter": pc.quarters_between,
    "week": pc.weeks_between,
    "day": pc.days_between,
    "hour": pc.hours_between,
    "minute": pc.minutes_between,
    "second": pc.seconds_between,
    "millisecond": pc.milliseconds_between,
    "microsecond": pc.microseconds_between,
}
PER_SECOND = {"second": 1, "millisecond": 1_000, "microsecond": 1_000_000}
MICROSECONDS = 1_000_000
DIFF_UNITS = (*BETWEEN, "month")


def _type_of(arg: Expression, own: pa.DataType | None) -> pa.DataType:
    return arg.dtype if isinstance(arg, Literal) else own


def _is_date(type_: pa.DataType) -> bool:
    return type_ == DATE or is_timestamp(type_)


def _fit_dates(operands: Operands) -> tuple[Expression, ...]:
    args = typed(operands)
    for arg, own in zip(args, operands.types, strict=True):
        if not _is_date(_type_of(arg, own)):
            raise operands.refuse(f"it is for dates and timestamps: write {arg}.cast(dbsp.TIMESTAMP)")
    return args


def _fit_diff(operands: Operands) -> tuple[Expression, ...]:
    (unit,) = operands.options
    if unit not in DIFF_UNITS:
        raise CircuitError(f"no such unit: unit={unit}", nearest(str(unit), DIFF_UNITS))
    _fit_dates(operands)
    return to_common(operands)


def _fit_unit(operands: Operands) -> tuple[Expression, ...]:
    (unit,) = operands.options
    if unit not in PER_SECOND:
        raise CircuitError(f"no such unit: unit={unit}", nearest(str(unit), PER_SECOND))
    return _fit_dates(operands) if operands.function == "epoch" else _fit_integer(operands)


def _fit_integer(operands: Operands) -> tuple[Expression, ...]:
    (arg,) = args = typed(operands, INT64)
    if not is_integer(_type_of(arg, operands.types[0])):
        raise operands.refuse("an epoch is a whole number: cast to dbsp.INT64")
    return args


def _fit_bucket(operands: Operands) -> tuple[Expression, ...]:
    size, origin = operands.options
    if not isinstance(size, datetime.timedelta) or size <= datetime.timedelta(0):
        raise CircuitError(f"a bucket has a positive size: size={size!r}", "write datetime.timedelta(minutes=5)")
    if not isinstance(origin, datetime.timedelta):
        raise CircuitError(f"an offset is a time span: offset={origin!r}", "write datetime.timedelta(minutes=1)")
    (arg,) = args = _fit_dates(operands)
    if _type_of(arg, operands.types[0]) == DATE:
        raise operands.refuse(f"it is for timestamps: write {arg}.cast(dbsp.TIMESTAMP)")
    return args


def _fit_format(operands: Operands) -> tuple[Expression, ...]:
    (format_,) = operands.options
    if not isinstance(format_, str) or "%f" in format_:
        hint = 'such as "%Y-%m-%d %H:%M:%S"; fractions of a second are cut off, so there is no %f'
        raise CircuitError(f"the format is a constant text: format={format_!r}", hint)
    if operands.function == "strftime":
        return _fit_dates(operands)
    args = typed(operands, STRING)
    if _type_of(args[0], operands.types[0]) != STRING:
        raise operands.refuse("it is for text")
    return args


def _micros(values: pa.Array) -> tuple[np.ndarray[Any, np.dtype[np.int64]], pa.Array]:
    """Microseconds since 1970 (nulls as 0), and where there is a value."""
    stamps = naive(values).cast(TIMESTAMP)
    return np.asarray(stamps.cast(INT64).fill_null(0)), pc.is_valid(stamps)


def _again(micros: Any, valid: pa.Array, type_: pa.DataType) -> pa.Array:
    """Microseconds as dates or timestamps."""
    made = pc.if_else(valid, pa.array(micros, INT64), pa.scalar(None, INT64))
    return made.cast(TIMESTAMP).cast(DATE, safe=False) if type_ == DATE else made.cast(type_)


def _months(micros: Any) -> tuple[Any, Any, Any]:
    """Months since 1970, the day of the month from 0, and the time of the day."""
    stamps = micros.view("datetime64[us]")
    months, days = stamps.astype("datetime64[M]"), stamps.astype("datetime64[D]")
    day = (days - months.astype("datetime64[D]")).astype(np.int64)
    return months.astype(np.int64), day, micros - days.astype("datetime64[us]").view(np.int64)


def _add_months(values: pa.Array, count: int) -> pa.Array:
    """The same day of another month, or its last day where that month is shorter."""
    micros, valid = _micros(values)
    months, day, rest = _months(micros)
    first = (months + count).view("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    following = (months + count + 1).view("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    days = np.minimum(first + day, following - 1)
    return _again(days * 86_400 * MICROSECONDS + rest, valid, values.type)


def _last_day(values: pa.Array) -> pa.Array:
    micros, valid = _micros(values)
    months, _, _ = _months(micros)
    days = (months + 1).view("datetime64[M]").astype("datetime64[D]").astype(np.int64) - 1
    return _again(days * 86_400 * MICROSECONDS, valid, DATE)


def _diff(start: Any, end: Any, unit: str) -> Any:
    """How many boundaries of the unit lie between."""
    start, end = naive(start), naive(end)
    if unit == "month":
        years = pc.multiply(pc.years_between(start, end), 12)
        return pc.add(years, pc.subtract(pc.month(end), pc.month(start)))
    if unit == "week":  # Arrow counts weeks from the first of the two
        start, end = (pc.floor_temporal(side, unit="week") for side in (start, end))
    return BETWEEN[unit](start, end)


def _epoch(values: pa.Array, unit: str) -> pa.Array:
    micros, valid = _micros(values)
    counted = np.floor_divide(micros, MICROSECONDS // PER_SECOND[unit])
    return pc.if_else(valid, pa.array(counted, INT64), pa.scalar(None, INT64))


def _from_epoch(values: pa.Array, unit: str) -> pa.Array:
    return pc.multiply_checked(values.cast(INT64), MICROSECONDS // PER_SECOND[unit]).cast(TIMESTAMP)


def _bucket(values: pa.Array, size: datetime.timedelta, offset: datetime.timedelta) -> pa.Array:
    """The start of the bucket; buckets begin at 1970 plus the offset."""
    micros, valid = _micros(values)
    width, shift = (span // datetime.timedelta(microseconds=1) for span in (size, offset))
    return _again((micros - shift) // width * width + shift, valid, values.type)


def _grain_s(format_: str) -> int:
    """How many seconds share one text: those of a day, unless the format shows hours, minutes or seconds."""
    directives = set(re.findall(r"%[-_0^#]*[EO]?(.)", format_))
    if directives <= set("aAbBCdDeFgGhjmntuUVwWxyY%"):
        return 86_400
    return 60 if directives <= set("aAbBCdDeFgGhHIjmMnpRtuUVwWxyY%") else 1


def _strftime(values: pa.Array, format_: str) -> pa.Array:
    """Text once per different moment, as far as the format tells moments apart: formatting costs most of a microsecond."""
    micros, valid = _micros(values)
    grain = _grain_s(format_)
    moments = pc.dictionary_encode(pa.array(np.floor_divide(micros, MICROSECONDS * grain), INT64))
    seconds = pc.multiply(moments.dictionary, grain).cast(pa.timestamp("s"))
    texts = pc.strftime(seconds, format_, locale="C").take(moments.indices)
    return texts if values.null_count == 0 else pc.if_else(valid, texts, pa.scalar(None, STRING))


def _strptime(values: pa.Array, format_: str) -> pa.Array:
    return pc.strptime(values, format_, unit="us")


DATE_DIFF = Function(name="date_diff", fit=_fit_diff, result=lambda *_: INT64, compute=_diff)
ADD_MONTHS = Function(
    name="add_months",
    fit=_fit_dates,
    result=lambda type_, _: type_,
    compute=_add_months,
    text="{0}.add_months({1})",
)
LAST_DAY = Function(name="last_day", fit=_fit_dates, result=lambda *_: DATE, compute=_last_day, text="{0}.last_day()")
EPOCH = Function(name="epoch", fit=_fit_unit, result=lambda *_: INT64, compute=_epoch, text="{0}.epoch({1})")
FROM_EPOCH = Function(name="from_epoch", fit=_fit_unit, result=lambda *_: TIMESTAMP, compute=_from_epoch)
BUCKET = Function(
    name="bucket",
    fit=_fit_bucket,
    result=lambda type_, *_: type_,
    compute=_bucket,
    text="{0}.bucket({1}, {2})",
)
STRFTIME = Function(
    name="strftime", fit=_fit_format, result=lambda *_: STRING, compute=_strftime, text="{0}.strftime({1})"
)
STRPTIME = Function(
    name="strptime", fit=_fit_format, result=lambda *_: TIMESTAMP, compute=_strptime, text="{0}.strptime({1})"
)

FUNCTIONS = (DATE_DIFF, ADD_MONTHS, LAST_DAY, EPOCH, FROM_EPOCH, BUCKET, STRFTIME, STRPTIME)
