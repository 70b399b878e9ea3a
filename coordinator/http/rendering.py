"""Values as JSON has them, and rows as an Arrow stream."""

from __future__ import annotations

import base64
import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

ARROW = "application/vnd.apache.arrow.stream"
EXACT_MAX = 1 << 53


def ipc(table: pa.Table) -> bytes:
    """Return a table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def plain(value: Any) -> Any:
    """Return a value as JSON has it: decimals, times and numbers that JSON lacks as text, bytes in base64."""
    match value:
        case dict():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case float():
            return value if math.isfinite(value) else str(value)
        case Decimal() if value == value.to_integral_value() and abs(value) < EXACT_MAX and not _has_point(value):
            return int(value)
        case Decimal() | date() | datetime() | time() | timedelta():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
    return value


def _has_point(value: Decimal) -> bool:
    """Return whether the decimal's type has digits after the point."""
    exponent = value.as_tuple().exponent
    return not isinstance(exponent, int) or exponent < 0
