"""Constants as texts: canonical ones, which fingerprints are made of, and ones for people."""

from __future__ import annotations

import datetime
import json
import math
from typing import Any

import pyarrow as pa

from dbsp.expr.type_names import type_name


def shown(value: Any) -> str:
    """Text of an option for people."""
    return f"[{', '.join(map(canonical, value))}]" if isinstance(value, tuple) else canonical(value)


def canonical(value: Any) -> str:
    """Text of a constant that is the same in every Python version, -0.0 as 0.0 and every NaN alike."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else repr(value + 0.0)
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, datetime.timedelta):
        return f"{value // datetime.timedelta(microseconds=1)}us"
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, pa.DataType):
        return type_name(value)
    if isinstance(value, tuple):
        return "[" + " ".join(canonical(item) for item in value) + "]"
    return str(value)
