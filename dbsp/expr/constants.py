"""Write constants as text: canonical text for fingerprints, and readable text for people."""

from __future__ import annotations

import datetime
import json
import math
from typing import Any

import pyarrow as pa

from dbsp.expr.type_names import type_name


def shown(value: Any) -> str:
    """Return the readable text of an option: a tuple becomes a list in brackets, separated by commas."""
    if hasattr(value, "token"):
        return str(value)
    return f"[{', '.join(map(canonical, value))}]" if isinstance(value, tuple) else canonical(value)


def canonical(value: Any) -> str:
    """Return a text of a constant that is equal in every Python version; -0.0 is written as 0.0, and every NaN as `nan`."""
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
    return str(value.token()) if hasattr(value, "token") else str(value)
