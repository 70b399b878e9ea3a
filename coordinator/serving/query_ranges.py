"""Turn the bounds of a statement into ranges of a view's columns.

**Law** A range leaves out no row for which DuckDB finds the comparison true. DuckDB may compare in another type than the
column's: decimals and whole numbers as floats, for instance. So bounds are widened where a cast may round. They are dropped
where it is not known how DuckDB compares.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.coordinator.query.pushdown import Bound
from dbsp.runtime.ranges import ColumnRange
from dbsp.zset.schema import Schema

_NUMBER = re.compile(r"-?\d{1,18}(\.\d{1,18})?")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}:\d{2}(\.\d{1,6})?)?")
_DIGITS_MAX = 38
_ZONES = timedelta(days=1)
_EXACT = Context(prec=80)


def ranges_of(bounds: Sequence[Bound], schema: Schema) -> tuple[ColumnRange, ...]:
    """Return the range of each column that the bounds limit.

    >>> from dbsp.zset.schema import DATE, INT64
    >>> schema = Schema.of({"id": INT64, "day": DATE})
    >>> bounds = [("id", ">", "INTEGER", "3"), ("day", "<", "DATE", "2024-02-01"), ("id", "<=", "NUMERIC", "7.5")]
    >>> [str(each) for each in ranges_of(bounds, schema)]
    ['id > 3 and id <= 8', "day < '2024-02-01'"]
    """
    found: dict[str, ColumnRange] = {}
    for column, sign, kind, text in bounds:
        same = [each for each in schema if each.name.lower() == column]
        if len(same) != 1:
            continue
        name, is_low = same[0].name, sign[0] == ">"
        end = _end(same[0].type, kind, text, is_low)
        if end is None:
            continue
        value, exact = end
        before = found.get(name, ColumnRange(column=name))
        found[name] = _narrower(before, is_low, value, is_in=not exact or len(sign) > 1)
    return tuple(found.values())


def _narrower(before: ColumnRange, is_low: bool, value: pa.Scalar, is_in: bool) -> ColumnRange:
    """Return the range with a further bound."""
    now, now_in = (before.low, before.low_in) if is_low else (before.high, before.high_in)
    if now is not None:
        same = pc.equal(now, value).as_py()
        closer = (pc.greater if is_low else pc.less)(value, now).as_py()
        if not closer and not (same and now_in and not is_in):
            return before
    low = (value, is_in) if is_low else (before.low, before.low_in)
    high = (before.high, before.high_in) if is_low else (value, is_in)
    return ColumnRange(column=before.column, low=low[0], low_in=low[1], high=high[0], high_in=high[1])


def _end(type_: pa.DataType, kind: str, text: str, is_low: bool) -> tuple[pa.Scalar, bool] | None:
    """Return the value of a bound in the column's type, and whether it is exact; None if it cannot be used."""
    try:
        if kind == "STRING" and pa.types.is_string(type_):
            return pa.scalar(text, type_), True
        if kind in ("STRING", "DATE") and pa.types.is_date32(type_) and _DAY.fullmatch(text):
            return pa.scalar(date.fromisoformat(text), type_), True
        if kind not in ("INTEGER", "NUMERIC"):
            return _moment(type_, kind, text, is_low)
        if not _NUMBER.fullmatch(text):
            return None
        return _number(type_, Decimal(text), is_low)
    except (pa.ArrowException, ValueError, OverflowError):
        return None


def _moment(type_: pa.DataType, kind: str, text: str, is_low: bool) -> tuple[pa.Scalar, bool] | None:
    """Return a moment in the type of a timestamp; one with a zone is widened by more than any zone differs from another."""
    if not pa.types.is_timestamp(type_) or kind not in ("STRING", "DATE", "TIMESTAMP"):
        return None
    if not (_DAY if kind == "DATE" else _MOMENT).fullmatch(text):
        return None
    moment = datetime.fromisoformat(text)
    if type_.tz is not None:  # the text is a moment in the session's zone
        moment += -_ZONES if is_low else _ZONES
    return pa.scalar(moment, type_), type_.tz is None


def _number(type_: pa.DataType, value: Decimal, is_low: bool) -> tuple[pa.Scalar, bool] | None:
    """Return a number in the column's type, rounded away from the range."""
    rounding = ROUND_FLOOR if is_low else ROUND_CEILING
    if pa.types.is_integer(type_):
        whole = value.to_integral_value(rounding)
        return pa.scalar(int(whole), type_), whole == value
    if pa.types.is_decimal128(type_):
        literal_scale = max(0, -_exponent(value))
        if type_.precision - type_.scale + max(type_.scale, literal_scale) > _DIGITS_MAX:
            return None
        near = value.quantize(Decimal(1).scaleb(-type_.scale), rounding, context=_EXACT)
        return pa.scalar(near, type_), near == value
    if pa.types.is_float64(type_) or pa.types.is_float32(type_):
        number: Any = np.float32 if pa.types.is_float32(type_) else np.float64
        wide = np.nextafter(number(value), number(-math.inf if is_low else math.inf))
        return pa.scalar(float(wide), type_), False
    return None


def _exponent(value: Decimal) -> int:
    found = value.as_tuple().exponent
    return found if isinstance(found, int) else 0
