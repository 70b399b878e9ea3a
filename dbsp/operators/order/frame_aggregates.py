"""Aggregates over frames of sorted rows, each for all places of some segments at once.

**Law** each value is the aggregate of the rows of its frame, to the bit. Sums, variances and covariances are exact until they
are rounded once, independent of the frames before. Rows of a frame beyond the segment are represented by their summary.

**Cost** neither end of a frame moves backwards from one place to the next, so each row enters and leaves once. The work per row
is:

- constant for count, sum, avg and variances;
- constant for count_distinct and the extremes, after one sort of the values;
- a logarithm of the number of values for quantiles and mode, after one sort of the values;
- a few microseconds per place for covariances and variances of floats, which are computed in long numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.errors import CapacityError, InternalError
from dbsp.operators.columns import column_of
from dbsp.operators.groups.covariance_part import PairCall, PairMoments, number_bits
from dbsp.operators.groups.float_part import float_bits
from dbsp.operators.groups.linear_form import Measure
from dbsp.operators.groups.measures import Bits, bits_of
from dbsp.operators.groups.quantile_part import value_between
from dbsp.operators.groups.sums import Averaged, SumOfLimbs, held_by
from dbsp.operators.order.summaries import First, Measured, Summary, summary_of
from dbsp.operators.order.value_order import all_valid, codes_of, ranks_by, sorted_by
from dbsp.operators.order.window_calls import BITS, COVARIANCES, QUANTILES, SUMMED, VARIANCES, WindowCall
from dbsp.operators.order.window_places import I64, Mask, WindowPlaces
from dbsp.zset.arrays import canonical_floats, from_values, gather, join, storage_type
from dbsp.zset.kernels import OVERFLOW_HINT, floats, frames, variances
from dbsp.zset.schema import FLOAT64, INT64, Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameRows:
    """The frame of each row of a window, as a range of gathered rows and a summary of the frame's other rows.

    Row i's frame has the gathered rows `starts[i]` to `ends[i]`. The rows that were not gathered are summed in row
    `which[i]` of `sums` and `values`.
    """

    starts: I64
    ends: I64
    which: I64
    sums: I64
    values: tuple[pa.Array, ...]

    @staticmethod
    def of(call: WindowCall, places: WindowPlaces, summary: Summary | None) -> FrameRows:
        """Return the rows of the frames, and the known summaries of rows beyond their segments.

        For a total with a summary, the frame has no rows of its own, since the summary covers all rows.
        """
        if call.frame is None:
            raise InternalError("an aggregate over a window lacks its frame")
        starts, ends = places.frames(call.frame)
        beyond = places.beyond.get(call.name)
        if beyond is None:
            sums = np.zeros((1, 0 if summary is None else summary.slots), np.int64)
            return FrameRows(starts=starts, ends=ends, which=np.zeros(len(starts), np.int64), sums=sums, values=())
        which = beyond.which[places.segment]
        ends = np.where(which > 0, starts, ends) if call.total else ends
        return FrameRows(starts=starts, ends=ends, which=which, sums=beyond.sums, values=beyond.values)

    @property
    def rows(self) -> tuple[I64, I64]:
        """Return the starts and the ends of the frames."""
        return self.starts, self.ends

    def sum(self, values: I64, slot: int) -> I64:
        """Return the sum of each frame's values, plus the sum in this slot of the rows beyond the segment."""
        return np.asarray(_between(values, *self.rows) + self.sums[self.which, slot])


def over_frames(call: WindowCall, places: WindowPlaces, schema: Schema) -> tuple[pa.Array, Mask | None]:
    """Return the column, and the mask of the places whose value does not fit its type."""
    summary = summary_of(call, places.rows.schema) if call.function in SUMMED else None
    held = FrameRows.of(call, places, summary)
    if call.column is None:
        return from_values(held.sum(np.ones(len(places), np.int64), 0), INT64), None
    if isinstance(summary, First):
        return _first(summary, places, held), None
    array = places.rows.column(call.column)
    valid = all_valid([places.rows.column(name) for name in (call.column, call.other) if name is not None])
    if call.function == "count":
        return from_values(held.sum(valid.astype(np.int64), 0), INT64), None
    if call.function in ("sum", "avg"):
        return _sum(call, places, valid, held, summary, schema[call.name].type)
    if call.function in BITS:
        return _bits(call, places, valid, held), None
    if call.function in VARIANCES:
        return _variance(call, places, valid, held, summary), None
    if call.function in COVARIANCES:
        return _covariance(call, places, array, valid, held), None
    return _of_all_values(call, array, valid, held), None


def _of_all_values(call: WindowCall, array: pa.Array, valid: Mask, held: FrameRows) -> pa.Array:
    """Return an aggregate that needs all values of each frame."""
    if call.function in QUANTILES:
        return _quantile(call, array, valid, held)
    codes, rows = codes_of(array, valid)
    found = np.empty(len(array), np.int64)
    match call.function:
        case "count_distinct":
            frames.slide_distinct(codes, len(rows), *held.rows, found)
            return from_values(found, INT64)
        case "mode":
            frames.slide_mode(codes, len(rows), *held.rows, found)
            return _rows_or_null(array, rows, found)
    raise InternalError(f"no such aggregate over a window: function={call.function}")


def _sum(
    call: WindowCall, places: WindowPlaces, valid: Mask, held: FrameRows, summary: Summary | None, type_: pa.DataType
) -> tuple[pa.Array, Mask | None]:
    """Return the exact sum or mean of each frame, rounded once."""
    array = places.rows.column(str(call.column))
    if isinstance(summary, Measured):
        sums = _sums(places, summary.measures, held)
        scale = array.type.scale if pa.types.is_decimal(array.type) else 0
        return (SumOfLimbs() if call.function == "sum" else Averaged(scale)).column(sums, type_)
    total, count, mean = np.empty(len(valid), np.float64), np.empty(len(valid), np.int64), call.function == "avg"
    if not floats.slide_bins(float_bits(array), valid, *held.rows, held.which, held.sums, mean, total, count):
        raise CapacityError("a sum of floats overflows its bins: rows_max=268435456", OVERFLOW_HINT)
    return canonical_floats(column_of(total, count != 0, FLOAT64)), None


def _variance(
    call: WindowCall, places: WindowPlaces, valid: Mask, held: FrameRows, summary: Summary | None
) -> pa.Array:
    """Return the exact variance or standard deviation of each frame, rounded once."""
    array = places.rows.column(str(call.column))
    less, result = int(call.function.endswith("samp")), np.empty(len(valid), np.float64)
    if isinstance(summary, Measured):
        counts, ones, squares = _sums(places, summary.measures, held)
        scale, count = array.type.scale if pa.types.is_decimal(array.type) else 0, counts[:, 0].copy()
        fits = variances.limb_variances(count, ones, squares, less, scale, result)
    else:
        count = np.empty(len(valid), np.int64)
        more = held.which, held.sums
        fits = variances.slide_variances(float_bits(array), valid, *held.rows, *more, less, result, count)
    if not fits:
        raise CapacityError("a variance has too many rows: rows_max=268435456", OVERFLOW_HINT)
    values = np.sqrt(result) if call.function.startswith("stddev") else result
    return canonical_floats(column_of(values, count > less, FLOAT64))


def _covariance(call: WindowCall, places: WindowPlaces, y: pa.Array, valid: Mask, held: FrameRows) -> pa.Array:
    """Return a function of the exact sums of each frame's pairs; the first column depends on the other."""
    made = PairMoments.room(len(places))
    x = number_bits(places.rows.column(str(call.other)))
    if not variances.slide_moments(x, number_bits(y), valid, *held.rows, held.which, held.sums, *made.parts()):
        raise CapacityError("a covariance overflows its bins: rows_max=134217728", OVERFLOW_HINT)
    return PairCall(name=call.name, text=call.function, function=call.function).column(made)


def _quantile(call: WindowCall, array: pa.Array, valid: Mask, held: FrameRows) -> pa.Array:
    """Return the value of each frame at a place of its sorted values, or between two."""
    if call.place is None:
        raise InternalError("a quantile has a place")
    order = sorted_by([array], valid, [(False, False)])
    ranks = np.full(len(array), -1, np.int64)
    ranks[order] = np.arange(len(order))
    count = _between(valid.astype(np.int64), *held.rows)
    lower, upper = np.empty(len(array), np.int64), np.empty(len(array), np.int64)
    frames.slide_nth(ranks, len(order), *held.rows, call.place.index(count), lower, upper)
    low = _rows_or_null(array, order, lower)
    if not call.place.between:
        return low
    return value_between(low, _rows_or_null(array, order, upper), call.place, count)


def _sums(places: WindowPlaces, measures: Sequence[Measure], held: FrameRows) -> list[I64]:
    """Return the sums of each measure over each frame."""
    made: list[I64] = []
    slot = 0
    for measure in measures:
        parts = [held.sum(values, slot + at) for at, values in enumerate(measure.of(places.rows))]
        made.append(np.ascontiguousarray(np.column_stack(parts)))
        slot += len(parts)
    return made


def _between(values: I64, starts: I64, ends: I64) -> I64:
    """Return the sum of each frame's values."""
    sums = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=sums[1:])
    return np.asarray(sums[ends] - sums[starts])


def _bits(call: WindowCall, places: WindowPlaces, valid: Mask, held: FrameRows) -> pa.Array:
    """Return the and, or, or xor of each frame's values, bit by bit, from the number of values that have the bit."""
    type_ = places.rows.schema[str(call.column)].type
    count, words = held.sum(valid.astype(np.int64), 0), np.zeros(len(places), np.uint64)
    for bit, set_ in enumerate(Bits(str(call.column), bits_of(type_)).each(places.rows)):
        has = held_by(call.function.removeprefix("bit_"), held.sum(set_, 1 + bit), count)
        words |= has.astype(np.uint64) << np.uint64(bit)
    return column_of(words.astype(storage_type(type_)), count != 0, type_)


def _first(by: First, places: WindowPlaces, held: FrameRows) -> pa.Array:
    """Return the last column's value in the first row of each frame; null for a frame without such a row."""
    columns = [places.rows.column(name) for name in by.columns]
    here, valid = len(places), by.part(columns)
    if held.values:
        columns = [join([mine, more]) for mine, more in zip(columns, held.values, strict=True)]
        nothing = np.arange(len(held.values[0])) == 0
        valid = np.concatenate([valid, by.part(held.values) & ~nothing])
    ranks = ranks_by(columns, valid, by.ways)
    found = np.empty(here, np.int64)
    frames.slide_least(ranks[:here], *held.rows, found)
    if held.values:
        beyond = ranks[here + held.which]
        found = np.where((beyond >= 0) & ((found < 0) | (beyond < ranks[found])), here + held.which, found)
    return _rows_or_null(columns[-1], np.arange(len(valid)), found)


def _rows_or_null(array: pa.Array, rows: I64, found: I64) -> pa.Array:
    """Return the values in some of the rows; null where the number of the row is negative."""
    if (found >= 0).all():
        return gather(array, rows[found])
    at = rows[np.maximum(found, 0)] if len(rows) else found
    return pc.take(array, pa.array(at, INT64, mask=found < 0))
