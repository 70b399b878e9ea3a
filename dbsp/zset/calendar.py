"""The range of dates: the years 1 to 9999, which Python's dates and the texts of JSON and SQL can express.

A date counts days and a timestamp microseconds in integers that reach much further. A value outside the range is
refused at the inputs, and an expression that computes one fails its row. So every stored value can be read.
"""

from __future__ import annotations

import datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.zset.schema import DATE, is_list, is_struct

OUTSIDE = "a day outside of the years 1 to 9999"
_EPOCH = datetime.datetime(1970, 1, 1)
_ENDS = (datetime.datetime.min, datetime.datetime.max)
DAYS = tuple((moment - _EPOCH).days for moment in _ENDS)
"""The first day and the last one, counted from 1970."""
MICROS = tuple((moment - _EPOCH) // datetime.timedelta(microseconds=1) for moment in _ENDS)
"""The first moment and the last one, in microseconds from 1970."""
_MICROS_OF = {"s": 1_000_000, "ms": 1000, "us": 1}


def counts_days(type_: pa.DataType) -> bool:
    """Return whether values of the type are, or contain, dates or timestamps."""
    if is_list(type_):
        return counts_days(type_.value_type)
    if is_struct(type_):
        return any(counts_days(field.type) for field in type_)
    return bool(type_ == DATE or pa.types.is_timestamp(type_))


def outside(values: pa.Array) -> npt.NDArray[np.bool_]:
    """Return which of the dates or timestamps are out of range; lists and structs count if they contain one."""
    found = np.zeros(len(values), np.bool_)
    if _within(values):
        return found
    if pa.types.is_nested(values.type):
        return np.array([not _within(values.slice(row, 1)) for row in range(len(values))])
    first, last = _ends(values.type)
    counts = np.asarray(values.cast(pa.int32() if values.type == DATE else pa.int64()).fill_null(0))
    found |= (counts < first) | (counts > last)
    return found


def check_days(values: pa.Array | pa.ChunkedArray) -> None:
    """Refuse a column with a day outside of the years 1 to 9999.

    **Cost** One pass over the values.

    **Errors** `ArrowInvalid`.

    >>> check_days(pa.array([datetime.date.max, None]))
    >>> check_days(pa.array([4_000_000], pa.int32()).cast(DATE))
    Traceback (most recent call last):
    ...
    pyarrow.lib.ArrowInvalid: a day outside of the years 1 to 9999
    """
    if counts_days(values.type) and not _within(values):
        raise pa.ArrowInvalid(OUTSIDE)


def _ends(type_: pa.DataType) -> tuple[int, ...]:
    """Return the first and the last count of the type in range; a query's timestamps may have other units."""
    if type_ == DATE:
        return DAYS
    if type_.unit == "ns":
        return tuple(micros * 1000 for micros in MICROS)
    return tuple(micros // _MICROS_OF[type_.unit] for micros in MICROS)


def _within(values: pa.Array | pa.ChunkedArray) -> bool:
    """Return whether all days of the column are in range."""
    if not counts_days(values.type) or len(values) == values.null_count:
        return True
    if is_list(values.type):
        return _within(pc.list_flatten(values))
    if is_struct(values.type):
        return all(_within(pc.struct_field(values, index)) for index in range(values.type.num_fields))
    first, last = _ends(values.type)
    found = pc.min_max(values)
    return bool(first <= found["min"].value and found["max"].value <= last)
