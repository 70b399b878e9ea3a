"""The values of window functions, each for all places of some segments at once.

**Law** if the frame, the neighbours or the rank of a place are within its segment, its value is that over the whole partition.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.errors import InternalError
from dbsp.operators.order.frame_aggregates import over_frames
from dbsp.operators.order.frame_folds import fold_frames
from dbsp.operators.order.window_calls import AGGREGATES, EDGES, NEIGHBOURS, WindowCall
from dbsp.operators.order.window_places import I64, Mask, WindowPlaces
from dbsp.zset.arrays import from_values, gather, join, valid_rows
from dbsp.zset.schema import FLOAT64, INT64, Schema

UNFIT = "a sum does not fit its type"
Failed = Mapping[str, Mask]
"""For each failure reason, the mask of the places that have no value for this reason."""


def values_of(call: WindowCall, places: WindowPlaces, schema: Schema) -> tuple[pa.Array, Failed]:
    """Return the column, and the masks of the failed places by reason."""
    if call.fold is not None and call.frame is not None:
        column, reasons = fold_frames(call.fold, call.frame, places)
        return column, _by_reason(reasons, len(places))
    if call.function in AGGREGATES:
        column, unfit = over_frames(call, places, schema)
        return column, {} if unfit is None else {UNFIT: unfit}
    if call.function in (*NEIGHBOURS, *EDGES):
        return _moved(call, places), {}
    return _place(call, places), {}


def _by_reason(reasons: Mapping[int, str], count: int) -> Failed:
    """Return for each reason the mask of its places."""
    failed = {reason: np.zeros(count, np.bool_) for reason in reasons.values()}
    for place, reason in reasons.items():
        failed[reason][place] = True
    return failed


def _place(call: WindowCall, places: WindowPlaces) -> pa.Array:
    """Return the values of a function that reads no column, such as row_number: it depends on the order alone."""
    within, size = places.at - places.start, places.end - places.start
    peers = places.peers_start - places.start
    match call.function:
        case "row_number":
            return from_values(places.before[places.segment] + within + 1, INT64)
        case "rank":
            return from_values(places.before[places.segment] + peers + 1, INT64)
        case "dense_rank":
            count = np.cumsum(places.fresh)
            within = np.asarray(count - count[places.start] + 1)
            return from_values(places.values_before[places.segment] + within, INT64)
        case "percent_rank":
            return from_values(peers / np.maximum(size - 1, 1), FLOAT64)
        case "cume_dist":
            return from_values((places.peers_end - places.start) / size, FLOAT64)
        case "ntile":
            return from_values(_tile(within, size, call.offset), INT64)
    raise InternalError(f"no such window function: function={call.function}")


def _moved(call: WindowCall, places: WindowPlaces) -> pa.Array:
    """Return the values of a function that takes a value of another row."""
    if call.edge is not None:
        return gather(places.edges[call.edge], places.segment)
    column = places.rows.column(str(call.column))
    target = _target(call, places, column)
    there = (target >= places.start) & (target < places.end)
    if there.all():
        return gather(column, target)
    if call.default is None:
        return pc.take(column, pa.array(target, INT64, mask=~there))
    both = join([column, places.rows.column(call.default)])
    return gather(both, np.where(there, target, places.at + len(places)))


def _target(call: WindowCall, places: WindowPlaces, column: pa.Array) -> I64:
    """Return the place whose value each place takes; any place outside its segment if there is none."""
    valid = valid_rows(column) if call.skips else None
    if valid is None:
        return np.asarray(places.at + (call.offset if call.function == "lead" else -call.offset))
    some = np.flatnonzero(valid)
    upto = np.cumsum(valid)
    at = upto + call.offset - 1 if call.function == "lead" else upto - valid - call.offset
    inside = (at >= 0) & (at < len(some))
    found = some[np.clip(at, 0, len(some) - 1)] if len(some) else places.at
    return np.where(inside, found, -1)


def _tile(within: I64, size: I64, parts: int) -> npt.NDArray[np.int64]:
    """Return the number of each row's part, from 1; the first parts are longer by one if the rows do not divide evenly."""
    least, longer = size // parts, size % parts
    edge = longer * (least + 1)
    return np.where(within < edge, within // (least + 1), longer + (within - edge) // np.maximum(least, 1)) + 1
