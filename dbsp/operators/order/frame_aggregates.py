"""Aggregates over frames of sorted rows, each for all places of some segments at once.

**Law** each value is the aggregate of the rows of its frame, to the bit: sums, variances and covariances are exact until they
are rounded once, whatever the frame before held.

**Cost** neither end of a frame ever goes back from one place to the next, so each row enters and leaves once: constant work
for count, sum, avg and variances, count_distinct and the extremes (for these and the next beside one sort of the values), a
logarithm of the values for quantiles and mode. Covariances and variances of floats are worked out in long numbers: a few
microseconds per place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.errors import CapacityError, InternalError
from dbsp.operators.columns import column_of
from dbsp.operators.groups.covariance_part import Moments, PairCall, number_bits
from dbsp.operators.groups.limbs import limbs_of, square_limbs_of
from dbsp.operators.groups.linear_part import Measure
from dbsp.operators.groups.measures import Limbs, Squares, Valid
from dbsp.operators.groups.quantile_part import value_between
from dbsp.operators.groups.sums import Averaged, Summed
from dbsp.operators.order.window_places import I64, Mask, Places
from dbsp.zset.arrays import canonical_floats, from_values, gather, valid_rows, value_view
from dbsp.zset.equality import equal_keys
from dbsp.zset.kernels import OVERFLOW_HINT, floats, frames, variances
from dbsp.zset.order import sort_columns
from dbsp.zset.schema import FLOAT64, INT64, Schema

if TYPE_CHECKING:
    from dbsp.operators.order.window_calls import WindowCall

VARIANCES = ("var_pop", "var_samp", "stddev_pop", "stddev_samp")
COVARIANCES = ("covar_pop", "covar_samp", "corr", "regr_slope", "regr_intercept", "regr_r2")
LEAST, GREATEST = ("min", "bool_and"), ("max", "bool_or")
ARGS = ("arg_min", "arg_max")
QUANTILES = ("quantile_cont", "quantile_disc")
AGGREGATES = (
    *("count", "sum", "avg", *LEAST, *GREATEST, *VARIANCES),
    *("count_distinct", "mode", *QUANTILES, *ARGS, *COVARIANCES),
)

Ends = tuple[I64, I64]


def over_frames(call: WindowCall, places: Places, schema: Schema) -> tuple[pa.Array, Mask | None]:
    """The column, and which places have a value that does not fit its type."""
    if call.frame is None:
        raise InternalError("an aggregate over a window has a frame")
    ends = places.frames(call.frame)
    if call.column is None:
        return from_values(ends[1] - ends[0], INT64), None
    array = places.rows.column(call.column)
    valid = _valid(places, call)
    if call.function == "count":
        return from_values(_between(valid.astype(np.int64), *ends), INT64), None
    if call.function in ("sum", "avg"):
        return _sum(call, places, valid, ends, schema[call.name].type)
    return _other(call, places, array, valid, ends), None


def _other(call: WindowCall, places: Places, array: pa.Array, valid: Mask, ends: Ends) -> pa.Array:
    """An aggregate whose values always fit."""
    match call.function:
        case function if function in (*LEAST, *GREATEST):
            return _first(array, _ranks([array], valid, [function in GREATEST]), ends)
        case function if function in ARGS:
            by = places.rows.column(str(call.other))
            return _first(array, _ranks([by, array], valid, [function == "arg_max", False]), ends)
        case function if function in VARIANCES:
            return _variance(call, places, array, valid, ends)
        case function if function in COVARIANCES:
            return _covariance(call, places, array, valid, ends)
        case "count_distinct":
            codes, rows = _codes(array, valid)
            found = np.empty(len(array), np.int64)
            frames.slide_distinct(codes, len(rows), *ends, found)
            return from_values(found, INT64)
        case "mode":
            codes, rows = _codes(array, valid)
            found = np.empty(len(array), np.int64)
            frames.slide_mode(codes, len(rows), *ends, found)
            return _rows_or_null(array, rows, found)
        case function if function in QUANTILES:
            return _quantile(call, array, valid, ends)
    raise InternalError(f"no such aggregate over a window: function={call.function}")


def _valid(places: Places, call: WindowCall) -> Mask:
    """The rows without a null in what it is of."""
    valid = np.ones(len(places), np.bool_)
    for name in (call.column, call.other):
        some = None if name is None else valid_rows(places.rows.column(name))
        valid = valid if some is None else valid & some
    return valid


def _sum(call: WindowCall, places: Places, valid: Mask, ends: Ends, type_: pa.DataType) -> tuple[pa.Array, Mask | None]:
    """The exact sum or mean of each frame, rounded once."""
    array = places.rows.column(str(call.column))
    if not pa.types.is_floating(array.type):
        sums = _sums(places, (Valid(str(call.column)), Limbs(str(call.column), limbs_of(array.type))), ends)
        scale = array.type.scale if pa.types.is_decimal(array.type) else 0
        return (Summed() if call.function == "sum" else Averaged(scale)).column(sums, type_)
    bits = np.ascontiguousarray(value_view(array).astype(np.float64)).view(np.int64)
    total, count = np.empty(len(valid), np.float64), np.empty(len(valid), np.int64)
    if not floats.slide_bins(bits, valid, *ends, total, count):
        raise CapacityError("a sum of floats overflows its bins: rows_max=268435456", OVERFLOW_HINT)
    some = count != 0
    if call.function == "avg":
        total = total / np.where(some, count, 1)
    return canonical_floats(column_of(total, some, FLOAT64)), None


def _variance(call: WindowCall, places: Places, array: pa.Array, valid: Mask, ends: Ends) -> pa.Array:
    """The exact variance or standard deviation of each frame, rounded once."""
    less, result = int(call.function.endswith("samp")), np.empty(len(valid), np.float64)
    if pa.types.is_floating(array.type):
        bits = np.ascontiguousarray(value_view(array).astype(np.float64)).view(np.int64)
        count = np.empty(len(valid), np.int64)
        fits = variances.slide_variances(bits, valid, *ends, less, result, count)
    else:
        column, type_ = str(call.column), array.type
        measures = Valid(column), Limbs(column, limbs_of(type_)), Squares(column, square_limbs_of(type_))
        counts, ones, squares = _sums(places, measures, ends)
        scale, count = type_.scale if pa.types.is_decimal(type_) else 0, counts[:, 0].copy()
        fits = variances.limb_variances(count, ones, squares, less, scale, result)
    if not fits:
        raise CapacityError("a variance has too many rows: rows_max=268435456", OVERFLOW_HINT)
    values = np.sqrt(result) if call.function.startswith("stddev") else result
    return canonical_floats(column_of(values, count > less, FLOAT64))


def _covariance(call: WindowCall, places: Places, y: pa.Array, valid: Mask, ends: Ends) -> pa.Array:
    """A function of the exact sums of each frame's pairs; the first column depends on the other."""
    made = Moments.room(len(places))
    x = places.rows.column(str(call.other))
    if not variances.slide_moments(number_bits(x), number_bits(y), valid, *ends, *made.parts()):
        raise CapacityError("a covariance overflows its bins: rows_max=134217728", OVERFLOW_HINT)
    return PairCall(name=call.name, text=call.function, function=call.function).column(made)


def _quantile(call: WindowCall, array: pa.Array, valid: Mask, ends: Ends) -> pa.Array:
    """The value of each frame at a place of its sorted values, or between two."""
    if call.place is None:
        raise InternalError("a quantile has a place")
    order = _sorted([array], valid, [False])
    ranks = np.full(len(array), -1, np.int64)
    ranks[order] = np.arange(len(order))
    count = _between(valid.astype(np.int64), *ends)
    lower, upper = np.empty(len(array), np.int64), np.empty(len(array), np.int64)
    frames.slide_nth(ranks, len(order), *ends, call.place.index(count), lower, upper)
    low = _rows_or_null(array, order, lower)
    if not call.place.between:
        return low
    return value_between(low, _rows_or_null(array, order, upper), call.place.beyond(count))


def _sums(places: Places, measures: Sequence[Measure], ends: Ends) -> list[I64]:
    """The sums of each measure over each frame."""
    return [
        np.ascontiguousarray(np.column_stack([_between(s, *ends) for s in measure.of(places.rows)]))
        for measure in measures
    ]


def _between(values: I64, starts: I64, ends: I64) -> I64:
    """The sum of each frame's values."""
    sums = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=sums[1:])
    return np.asarray(sums[ends] - sums[starts])


def _first(array: pa.Array, ranks: I64, ends: Ends) -> pa.Array:
    """The value in the row of the least rank of each frame, null where it has none."""
    found = np.empty(len(array), np.int64)
    frames.slide_least(ranks, *ends, found)
    return _rows_or_null(array, np.arange(len(array)), found)


def _rows_or_null(array: pa.Array, rows: I64, found: I64) -> pa.Array:
    """The values in some of the rows, null where the number of the row is negative."""
    if (found >= 0).all():
        return gather(array, rows[found])
    at = rows[np.maximum(found, 0)] if len(rows) else found
    return pc.take(array, pa.array(at, INT64, mask=found < 0))


def _ranks(columns: Sequence[pa.Array], valid: Mask, descending: Sequence[bool]) -> I64:
    """The place of each row in the order of the columns, -1 for rows that take no part."""
    order = _sorted(columns, valid, descending)
    ranks = np.full(len(valid), -1, np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


def _sorted(columns: Sequence[pa.Array], valid: Mask, descending: Sequence[bool]) -> I64:
    """The rows that take part in the order of the columns."""
    if len(columns) == 1 and not descending[0]:
        order = sort_columns(columns, np.zeros(len(valid), np.int64))
        return np.asarray(order[valid[order]])
    codes = [_codes(column, valid)[0] for column in columns]
    order = np.lexsort([-code if down else code for code, down in zip(codes, descending, strict=True)][::-1])
    return np.asarray(order[valid[order]])


def _codes(array: pa.Array, valid: Mask) -> tuple[I64, I64]:
    """The number of each row's value among the different ones, in order, -1 for rows that take no part; a row of each value."""
    order = _sorted([array], valid, [False])
    fresh = np.ones(len(order), np.bool_)
    fresh[1:] = ~equal_keys(array, order[:-1], array, order[1:])
    codes = np.full(len(array), -1, np.int64)
    codes[order] = np.cumsum(fresh) - 1
    return codes, order[fresh]
