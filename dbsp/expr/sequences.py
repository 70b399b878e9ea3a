"""Lists of evenly spaced numbers, days or times from one value of a row to another: SQL's `generate_series`."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.errors import CircuitError
from dbsp.expr.cast import cast_hint, to_type
from dbsp.expr.dates import add_months, micros_of, moments_of, months_of
from dbsp.expr.expression import Expression, Function, Operands, broadcast
from dbsp.expr.types import is_integer, is_timestamp, meet, type_of
from dbsp.zset.schema import DATE, INT64, list_of

ELEMENTS_MAX = 1_000_000
"""Limit of elements in one row's sequence; a row with more fails, so that a mistyped bound does not fill the memory."""
MONTHS = {"month": 1, "quarter": 3, "year": 12}
DAY = datetime.timedelta(days=1)
Wholes = npt.NDArray[np.int64]


def _fit(operands: Operands) -> tuple[Expression, ...]:
    (step,) = operands.options
    args, type_ = meet(operands, cast_hint)
    if is_integer(type_):
        if isinstance(step, bool) or not isinstance(step, int) or step == 0:
            raise CircuitError(f"a sequence of whole numbers has a step that is one: step={step!r}", "such as 1 or -1")
    elif type_ == DATE or is_timestamp(type_):
        _check_span(step, type_)
    else:
        raise operands.refuse(
            "a sequence is of whole numbers, dates or timestamps: cast to dbsp.INT64, dbsp.DATE or dbsp.TIMESTAMP"
        )
    sources = (type_of(arg, own) for arg, own in zip(args, operands.types, strict=True))
    return tuple(to_type(arg, source, type_) for arg, source in zip(args, sources, strict=True))


def _check_span(step: Any, type_: pa.DataType) -> None:
    """Refuse a step that is no span; a step of dates is of whole days.

    Months are steps by name, because their lengths differ.
    """
    if step in MONTHS or (isinstance(step, datetime.timedelta) and step and (type_ != DATE or not step % DAY)):
        return
    hint = 'write step=dbsp.days(1) or another span, or "month", "quarter", "year"'
    raise CircuitError(f"not a step for this type: step={step!r} type={type_}", hint)


def _sequence(start: Any, end: Any, step: Any) -> pa.Array:
    """Return a list of every `step` from `start` on that does not pass `end`."""
    rows = max(len(side) for side in (start, end) if not isinstance(side, pa.Scalar))
    start, end = broadcast(start, rows), broadcast(end, rows)
    valid = np.asarray(pc.and_(start.is_valid(), end.is_valid()))
    if isinstance(step, str):
        return _months(start, end, MONTHS[step], valid)
    if is_integer(start.type):
        first, last, by = _whole(start), _whole(end), int(step)
    else:
        (first, _), (last, _), by = micros_of(start), micros_of(end), step // datetime.timedelta(microseconds=1)
    low, high = (first, last) if by > 0 else (last, first)
    there = valid & (low <= high)
    away = np.where(there, high.view(np.uint64) - low.view(np.uint64), 0)  # a distance may need all 64 bits
    steps = away // np.uint64(abs(by))
    counts = _counts(steps, there)
    values = np.repeat(first, counts) + by * _places(counts)
    made = values if is_integer(start.type) else moments_of(values, pa.scalar(True), start.type)
    return _lists(pa.array(made), counts, valid, start.type)


def _months(start: pa.Array, end: pa.Array, by: int, valid: npt.NDArray[np.bool_]) -> pa.Array:
    """Return moments `by` months apart, each on the start's day or the last day of a shorter month."""
    (first, _), (last, _) = micros_of(start), micros_of(end)
    between = months_of(last) - months_of(first)
    reached = np.asarray(pc.less_equal(add_months(start, between // by * by), end).fill_null(False))
    steps = np.maximum(between // by - ~reached, 0)
    counts = _counts(steps, valid & (first <= last))
    rows = np.repeat(np.arange(len(start)), counts)
    return _lists(add_months(start.take(pa.array(rows)), by * _places(counts)), counts, valid, start.type)


def _whole(values: pa.Array) -> Wholes:
    return np.asarray(values.cast(INT64).fill_null(0))


def _counts(steps: Any, there: npt.NDArray[np.bool_]) -> Wholes:
    """Return the number of elements of each row; `ArrowInvalid` if a row has too many."""
    if len(steps) and steps.max() >= ELEMENTS_MAX:
        raise pa.ArrowInvalid(f"a sequence of too many elements: elements={int(steps.max()) + 1} limit={ELEMENTS_MAX}")
    return np.where(there, steps.astype(np.int64) + 1, 0)


def _places(counts: Wholes) -> Wholes:
    """Return the positions 0, 1, 2, … of the elements of each row, all rows in one array."""
    firsts = np.cumsum(counts) - counts
    return np.arange(int(counts.sum())) - np.repeat(firsts, counts)


def _lists(values: pa.Array, counts: Wholes, valid: npt.NDArray[np.bool_], type_: pa.DataType) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    mask = None if valid.all() else pa.array(~valid)
    return pa.ListArray.from_arrays(pa.array(offsets), values.cast(type_), type=list_of(type_), mask=mask)


SEQUENCE = Function(
    name="sequence",
    fit=_fit,
    result=lambda start, *_: list_of(start),
    compute=_sequence,
    text="sequence({0}, {1}, {2})",
)

FUNCTIONS = (SEQUENCE,)
