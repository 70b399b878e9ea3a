"""Calculations with dates and times: differences, added months, buckets, epochs, and formatted text.

Time zones play no part: a UTC timestamp is counted in UTC.
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
from dbsp.expr.expression import Expression, Function, Operands
from dbsp.expr.names import nearest
from dbsp.expr.temporal import naive
from dbsp.expr.types import is_integer, is_timestamp, type_of, typed
from dbsp.zset.coded import plain, put_together
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
MONTHS_MAX = 120_000
DIFF_UNITS = (*BETWEEN, "month")
_DIRECTIVE = re.compile(r"%[-_0^#]*[EO]?(.)")
_READ = frozenset("aAbBcCdDeFhHIjmMnprRStTuUwWxXyYz%")
_WRITTEN = frozenset("aAbBcCdDeFgGhHIjmMnprRStTuUVwWxXyY%")
_PADDED = "dmHIMSjy"
_REFUSED = {
    "f": 'fractions of a second are read by .cast(dbsp.TIMESTAMP) from ISO texts, "2024-05-31T10:00:00.25"',
    "z": 'a UTC timestamp is written in UTC: append what you want to see, such as .concat(dbsp.lit("Z"))',
    "Z": 'the name of a zone is not read and not written: cut it off before, .regexp_replace(" [A-Z]+$", "")',
}


def _is_date(type_: pa.DataType) -> bool:
    return type_ == DATE or is_timestamp(type_)


def _fit_dates(operands: Operands) -> tuple[Expression, ...]:
    args = typed(operands)
    for arg, own in zip(args, operands.types, strict=True):
        if not _is_date(type_of(arg, own)):
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
    if not isinstance(unit, str):
        raise CircuitError(f"the unit is a constant text: unit={unit!r}", 'such as "second" or "millisecond"')
    if unit not in PER_SECOND:
        raise CircuitError(f"no such unit: unit={unit}", nearest(str(unit), PER_SECOND))
    return _fit_dates(operands) if operands.function == "epoch" else _fit_integer(operands)


def _fit_integer(operands: Operands) -> tuple[Expression, ...]:
    (arg,) = args = typed(operands, INT64)
    if not is_integer(type_of(arg, operands.types[0])):
        raise operands.refuse("an epoch is a whole number: cast to dbsp.INT64")
    return args


def _fit_bucket(operands: Operands) -> tuple[Expression, ...]:
    size, origin = operands.options
    if not isinstance(size, datetime.timedelta) or size <= datetime.timedelta(0):
        raise CircuitError(f"a bucket has a positive size: size={size!r}", "write datetime.timedelta(minutes=5)")
    if not isinstance(origin, datetime.timedelta):
        raise CircuitError(f"an offset is a time span: offset={origin!r}", "write datetime.timedelta(minutes=1)")
    (arg,) = args = _fit_dates(operands)
    if type_of(arg, operands.types[0]) == DATE:
        raise operands.refuse(f"it is for timestamps: write {arg}.cast(dbsp.TIMESTAMP)")
    return args


def _fit_format(operands: Operands) -> tuple[Expression, ...]:
    (format_,) = operands.options
    if not isinstance(format_, str) or not format_:
        raise CircuitError(f"the format must be a constant text: format={format_!r}", 'such as "%Y-%m-%d %H:%M:%S"')
    writes = operands.function == "strftime"
    for found in _DIRECTIVE.finditer(format_):
        directive, flags = found.group(1), found.group()[1:-1]
        if writes and flags and not (flags == "-" and directive in _PADDED):
            hint = "without zeros before them there are " + ", ".join(f"%-{letter}" for letter in _PADDED)
            raise CircuitError(f"strftime has no {found.group()}: format={format_!r}", hint)
        if directive not in (_WRITTEN if writes else _READ):
            hint = _REFUSED.get(directive, "such as %Y, %m, %d, %H, %M, %S")
            raise CircuitError(f"{operands.function} has no %{directive}: format={format_!r}", hint)
    if writes:
        return _fit_dates(operands)
    if _DIRECTIVE.search(_split_at_offset(format_)[1]):
        raise CircuitError(
            f"strptime reads %z only at the end: format={format_!r}", "put the rest of the format before it"
        )
    args = typed(operands, STRING)
    if type_of(args[0], operands.types[0]) != STRING:
        raise operands.refuse("it is for text")
    return args


def _split_at_offset(format_: str) -> tuple[str, str]:
    """Return the parts of the format before and after `%z`; the whole format and an empty text if there is none."""
    for found in _DIRECTIVE.finditer(format_):
        if found.group(1) == "z":
            return format_[: found.start()], format_[found.end() :]
    return format_, ""


def micros_of(values: pa.Array) -> tuple[np.ndarray[Any, np.dtype[np.int64]], pa.Array]:
    """Return microseconds since 1970 (nulls as 0), and which values are valid."""
    stamps = naive(values).cast(TIMESTAMP)
    numbers = stamps.cast(INT64)
    return np.asarray(numbers.fill_null(0) if numbers.null_count else numbers), pc.is_valid(stamps)


def moments_of(micros: Any, valid: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return microseconds as dates or timestamps, null where not `valid`."""
    made = pc.if_else(valid, pa.array(micros, INT64), pa.scalar(None, INT64))
    return made.cast(TIMESTAMP).cast(DATE, safe=False) if type_ == DATE else made.cast(type_)


def _months(micros: Any) -> tuple[Any, Any, Any]:
    """Return months since 1970, the day of the month from 0, and the microseconds of the day."""
    stamps = micros.view("datetime64[us]")
    months, days = stamps.astype("datetime64[M]"), stamps.astype("datetime64[D]")
    day = (days - months.astype("datetime64[D]")).astype(np.int64)
    return months.astype(np.int64), day, micros - days.astype("datetime64[us]").view(np.int64)


def months_of(micros: Any) -> Any:
    """Return months since 1970."""
    return _months(micros)[0]


def add_months(values: pa.Array, count: Any) -> pa.Array:
    """Return the same day of another month, or the last day of a shorter month.

    `count` is one number or one per value.
    """
    micros, valid = micros_of(values)
    months, day, rest = _months(micros)
    if np.abs(count).max(initial=0) > MONTHS_MAX:
        raise pa.ArrowInvalid(f"more months than a date can be moved by: limit={MONTHS_MAX}")
    first = (months + count).view("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    following = (months + count + 1).view("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    days = np.minimum(first + day, following - 1)
    return moments_of(days * 86_400 * MICROSECONDS + rest, valid, values.type)


def _last_day(values: pa.Array) -> pa.Array:
    micros, valid = micros_of(values)
    months, _, _ = _months(micros)
    days = (months + 1).view("datetime64[M]").astype("datetime64[D]").astype(np.int64) - 1
    return moments_of(days * 86_400 * MICROSECONDS, valid, DATE)


def _diff(start: Any, end: Any, unit: str) -> Any:
    """Count the boundaries of the unit from start to end."""
    start, end = naive(start), naive(end)
    if unit == "month":
        years = pc.multiply(pc.years_between(start, end), 12)
        return pc.add(years, pc.subtract(pc.month(end), pc.month(start)))
    if unit == "week":  # Arrow counts weeks from the first of the two
        start, end = (pc.floor_temporal(side, unit="week") for side in (start, end))
    return BETWEEN[unit](start, end)


def _epoch(values: pa.Array, unit: str) -> pa.Array:
    micros, valid = micros_of(values)
    counted = np.floor_divide(micros, MICROSECONDS // PER_SECOND[unit])
    return pc.if_else(valid, pa.array(counted, INT64), pa.scalar(None, INT64))


def _from_epoch(values: pa.Array, unit: str) -> pa.Array:
    return pc.multiply_checked(values.cast(INT64), MICROSECONDS // PER_SECOND[unit]).cast(TIMESTAMP)


def _bucket(values: pa.Array, size: datetime.timedelta, offset: datetime.timedelta) -> pa.Array:
    """Return the start of each value's bucket; buckets begin at 1970 plus the offset."""
    micros, valid = micros_of(values)
    width, shift = (span // datetime.timedelta(microseconds=1) for span in (size, offset))
    return moments_of((micros - shift) // width * width + shift, valid, values.type)


def _grain_s(format_: str) -> int:
    """Return how many seconds share one text: a day, or a minute or a second if the format shows them."""
    directives = set(_DIRECTIVE.findall(format_))
    if directives <= set("aAbBCdDeFgGhjmntuUVwWxyY%"):
        return 86_400
    return 60 if directives <= set("aAbBCdDeFgGhHIjmMnpRtuUVwWxyY%") else 1


def _strftime(values: pa.Array, format_: str) -> pa.Array:
    return plain(_strftime_coded(values, format_))


def _strftime_coded(values: pa.Array, format_: str) -> pa.Array:
    """Format each different moment once, since formatting one takes most of a microsecond.

    Moments differ only as far as the format tells them apart.

    **Cost** If all moments have one text, such as that of a day, the function only finds the least and the greatest.
    """
    micros, valid = micros_of(values)
    grain = _grain_s(format_)
    width = MICROSECONDS * grain
    if len(micros) and (first := int(micros.min()) // width) == int(micros.max()) // width:
        codes, texts = np.zeros(len(micros), np.int32), _texts(pa.array([first], INT64), grain, format_)
    else:
        moments = pc.dictionary_encode(pa.array(np.floor_divide(micros, width), INT64))
        found = _texts(moments.dictionary, grain, format_).dictionary_encode()
        codes, texts = np.asarray(found.indices).take(np.asarray(moments.indices)), found.dictionary
    return put_together(codes, texts, None if values.null_count == 0 else np.asarray(valid))


def _texts(moments: pa.Array, grain: int, format_: str) -> pa.Array:
    """Format moments, counted in units of `grain` seconds, as text."""
    at = pc.multiply(moments, grain).cast(pa.timestamp("s"))
    pieces = [_piece(at, piece) for piece in _pieces(format_)]
    return pc.binary_join_element_wise(*pieces, "") if len(pieces) > 1 else pieces[0]


def _pieces(format_: str) -> list[str]:
    """Split a format into its directives without zeros (`%-d`) and the texts between them."""
    pieces, begin = [], 0
    for found in _DIRECTIVE.finditer(format_):
        if found.group().startswith("%-"):
            pieces += [format_[begin : found.start()], found.group()]
            begin = found.end()
    return [piece for piece in (*pieces, format_[begin:]) if piece] or [""]


def _piece(at: pa.Array, piece: str) -> pa.Array:
    """Format one piece; Arrow's kernel knows no directives without zeros."""
    if not piece.startswith("%-"):
        return pc.strftime(at, piece, locale="C")
    return pc.replace_substring_regex(pc.strftime(at, f"%{piece[2:]}", locale="C"), r"^0+(\d)", r"\1")


def _strptime(values: pa.Array, format_: str) -> pa.Array:
    """Read texts by a format; refuse dates that do not exist.

    Arrow would read the 31st of April as the first of May.
    """
    moments = pc.strptime(values, format_, unit="us")
    local, behind = _split_at_offset(format_)
    if local == format_:
        _check_real(values, moments, format_)
    else:  # the text shows the local time, before the offset is subtracted
        offset = rf"\s*(Z|[+-]\d\d(:?\d\d)?)\s*{re.escape(behind.strip())}\s*$"
        _strptime(pc.replace_substring_regex(values, offset, ""), local)
    return moments


def _check_real(texts: pa.Array, moments: pa.Array, format_: str) -> None:
    """Refuse texts that show other numbers than the moment they were read as; compare only texts for which that can be.

    Arrow reads a day that its month does not have as one of the first three of the next month. A second of 60 or 61
    becomes 0 or 1 of the next minute. If a format has days of the year or weeks, any number may contradict another.
    """
    if not set("jUuWw") & set(_DIRECTIVE.findall(format_)):
        moved = pc.and_(pc.less_equal(pc.day(moments), 3), pc.is_in(pc.month(moments), pa.array([3, 5, 7, 10, 12])))
        if _grain_s(format_) == 1:
            moved = pc.or_(moved, pc.less_equal(pc.second(moments), 1))
        texts, moments = texts.filter(moved), moments.filter(moved)
        written = pc.match_substring_regex(texts, "29|3[01]|6[01]")
        texts, moments = texts.filter(written), moments.filter(written)
    same = pc.equal(_numbers(texts), _numbers(_strftime(moments, format_)))
    if not pc.all(same, min_count=0).as_py():
        text = texts.filter(pc.invert(same))[0]
        raise pa.ArrowInvalid(f"Failed to parse string: '{text}' is no day and time that exists")


def _numbers(texts: pa.Array) -> pa.Array:
    """Return the numbers in each text, one after the other, without leading zeros."""
    apart = pc.utf8_trim_whitespace(pc.replace_substring_regex(texts, r"[^0-9]+", " "))
    return pc.replace_substring_regex(apart, r"\b0+([0-9])", r"\1")


DATE_DIFF = Function(name="date_diff", fit=_fit_diff, result=lambda *_: INT64, compute=_diff)
ADD_MONTHS = Function(
    name="add_months",
    fit=_fit_dates,
    result=lambda type_, _: type_,
    compute=add_months,
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
    name="strftime",
    fit=_fit_format,
    result=lambda *_: STRING,
    compute=_strftime,
    coded=_strftime_coded,
    text="{0}.strftime({1})",
)
STRPTIME = Function(
    name="strptime", fit=_fit_format, result=lambda *_: TIMESTAMP, compute=_strptime, text="{0}.strptime({1})"
)

FUNCTIONS = (DATE_DIFF, ADD_MONTHS, LAST_DAY, EPOCH, FROM_EPOCH, BUCKET, STRFTIME, STRPTIME)
