"""Values as JSON has them."""

from __future__ import annotations

import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

EXACT_MAX = 1 << 53


def plain(value: Any) -> Any:
    """Return a value as JSON has it: decimals, times and numbers that JSON lacks as text, bytes as hexadecimal digits."""
    match value:
        case dict():
            return {str(key): plain(item) for key, item in value.items()}
        case pa.MonthDayNano():
            return _interval(value)
        case list() | tuple():
            return [plain(item) for item in value]
        case float():
            return value if math.isfinite(value) else str(value)
        case Decimal() if value == value.to_integral_value() and abs(value) < EXACT_MAX and not _has_point(value):
            return int(value)
        case Decimal() | date() | datetime() | time() | timedelta():
            return str(value)
        case bytes():
            return value.hex()
    return value


def _interval(value: pa.MonthDayNano) -> str:
    """Return an interval of a query as a span of a view is shown, after its months."""
    rest = str(timedelta(days=value.days, microseconds=value.nanoseconds // 1000))
    return f"{value.months} months, {rest}" if value.months else rest


def _has_point(value: Decimal) -> bool:
    """Return whether the decimal's type has digits after the point."""
    exponent = value.as_tuple().exponent
    return not isinstance(exponent, int) or exponent < 0
