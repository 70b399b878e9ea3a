"""Window functions, each for all places of some segments at once.

**Law** for a place whose frame, neighbours or rank lie within its segment the value is that over the whole partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.errors import CapacityError, InternalError
from dbsp.operators.columns import column_of
from dbsp.operators.groups.limbs import limbs_of, square_limbs_of
from dbsp.operators.groups.linear_part import Measure
from dbsp.operators.groups.measures import Limbs, Squares, Valid
from dbsp.operators.groups.sums import Averaged, Summed
from dbsp.operators.order.window_places import I64, Edge, Frame, Mask, Places
from dbsp.zset.arrays import canonical_floats, from_values, gather, join, valid_rows, value_view
from dbsp.zset.kernels import OVERFLOW_HINT, floats, frames, variances
from dbsp.zset.order import sort_columns
from dbsp.zset.schema import FLOAT64, INT64, Schema

NEIGHBOURS = ("lag", "lead")
EDGES = ("first_value", "last_value", "nth_value")
SHIFTING = ("row_number", "rank")
WHOLE = ("dense_rank", "percent_rank", "cume_dist", "ntile")
VARIANCES = ("var_pop", "var_samp", "stddev_pop", "stddev_samp")
AGGREGATES = ("count", "sum", "avg", "min", "max", *VARIANCES)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowCall:
    """One function: its name in the output, what it is, of which column, and its parameters.

    `offset` is how far lag and lead look, the place of nth_value, or the parts of ntile; `default` a column for where there is no
    such row; with `skips` only rows count where `column` is not null.
    """

    name: str
    function: str
    column: str | None = None
    offset: int = 0
    default: str | None = None
    frame: Frame | None = None
    skips: bool = False

    def __str__(self) -> str:
        """Much as in SQL."""
        values = [str(v) for v in (self.column, self.offset or None, self.default) if v is not None]
        over = f" over {self.frame}" if self.frame is not None else " ignore nulls" if self.skips else ""
        return f"{self.name} = {self.function}({', '.join(values)}){over}"

    def sees(self, kind: str) -> tuple[int, int]:
        """How far before and behind its own row it looks, in "rows" or "range"."""
        if self.function in NEIGHBOURS and kind == "rows":
            return (0, 0) if self.skips else self.reaches
        if self.frame is None or self.frame.kind != kind:
            return (0, 0)
        return max(self.frame.preceding or 0, 0), max(self.frame.following or 0, 0)

    @property
    def reaches(self) -> tuple[int, int]:
        """How many rows before and behind its own lag and lead look; with `skips` of those where the column is not null."""
        return (self.offset, 0) if self.function == "lag" else (0, self.offset)

    @property
    def edge(self) -> Edge | None:
        """The row of the partition that every row takes its value from."""
        if self.function not in EDGES:
            return None
        place = self.offset if self.function == "nth_value" else 1
        return Edge(column=str(self.column), place=place, backward=self.function == "last_value", skips=self.skips)

    @property
    def whole(self) -> bool:
        """Whether any change touches the whole partition."""
        return self.function in WHOLE or (self.frame is not None and not self.frame.bounded)

    def values(self, places: Places, schema: Schema) -> tuple[pa.Array, Mask | None]:
        """The column, and which places have a value that does not fit its type."""
        if self.function in AGGREGATES:
            return self._aggregate(places, schema)
        if self.function in (*NEIGHBOURS, *EDGES):
            return self._moved(places), None
        return self._place(places), None

    def _place(self, places: Places) -> pa.Array:
        """What depends on the order alone."""
        within, size = places.at - places.start, places.end - places.start
        peers = places.peers_start - places.start
        match self.function:
            case "row_number":
                return from_values(places.before[places.segment] + within + 1, INT64)
            case "rank":
                return from_values(places.before[places.segment] + peers + 1, INT64)
            case "dense_rank":
                count = np.cumsum(places.fresh)
                return from_values(np.asarray(count - count[places.start] + 1), INT64)
            case "percent_rank":
                return from_values(peers / np.maximum(size - 1, 1), FLOAT64)
            case "cume_dist":
                return from_values((places.peers_end - places.start) / size, FLOAT64)
            case "ntile":
                return from_values(_tile(within, size, self.offset), INT64)
        raise InternalError(f"no such window function: function={self.function}")

    def _moved(self, places: Places) -> pa.Array:
        """A value of another row."""
        if self.edge is not None:
            return gather(places.edges[self.edge], places.segment)
        column = places.rows.column(str(self.column))
        target = self._target(places, column)
        there = (target >= places.start) & (target < places.end)
        if there.all():
            return gather(column, target)
        if self.default is None:
            return pc.take(column, pa.array(target, INT64, mask=~there))
        both = join([column, places.rows.column(self.default)])
        return gather(both, np.where(there, target, places.at + len(places)))

    def _target(self, places: Places, column: pa.Array) -> I64:
        """The place whose value each place takes; any place outside its segment where there is none."""
        valid = valid_rows(column) if self.skips else None
        if valid is None:
            return np.asarray(places.at + (self.offset if self.function == "lead" else -self.offset))
        some = np.flatnonzero(valid)
        upto = np.cumsum(valid)
        at = upto + self.offset - 1 if self.function == "lead" else upto - valid - self.offset
        inside = (at >= 0) & (at < len(some))
        found = some[np.clip(at, 0, len(some) - 1)] if len(some) else places.at
        return np.where(inside, found, -1)

    def _aggregate(self, places: Places, schema: Schema) -> tuple[pa.Array, Mask | None]:
        """An aggregate of each place's frame."""
        if self.frame is None:
            raise InternalError("an aggregate over a window has a frame")
        starts, ends = places.frames(self.frame)
        if self.column is None:
            return from_values(ends - starts, INT64), None
        array = places.rows.column(self.column)
        valid = valid_rows(array)
        valid = np.ones(len(array), np.bool_) if valid is None else valid
        if self.function == "count":
            return from_values(_between(valid.astype(np.int64), starts, ends), INT64), None
        if self.function in ("min", "max"):
            return _extreme(array, valid, starts, ends, greatest=self.function == "max"), None
        if self.function in VARIANCES:
            return self._variance(places, array, valid, (starts, ends)), None
        if pa.types.is_floating(array.type):
            return self._float_sum(array, valid, starts, ends), None
        sums = _sums(places, (Valid(self.column), Limbs(self.column, limbs_of(array.type))), (starts, ends))
        scale = array.type.scale if pa.types.is_decimal(array.type) else 0
        finish = Summed() if self.function == "sum" else Averaged(scale)
        return finish.column(sums, schema[self.name].type)

    def _variance(self, places: Places, array: pa.Array, valid: Mask, frame: tuple[I64, I64]) -> pa.Array:
        """The exact variance or standard deviation of each frame, rounded once."""
        less, result = int(self.function.endswith("samp")), np.empty(len(valid), np.float64)
        if pa.types.is_floating(array.type):
            bits = np.ascontiguousarray(value_view(array).astype(np.float64)).view(np.int64)
            count = np.empty(len(valid), np.int64)
            fits = variances.slide_variances(bits, valid, *frame, less, result, count)
        else:
            column, type_ = str(self.column), array.type
            measures = Valid(column), Limbs(column, limbs_of(type_)), Squares(column, square_limbs_of(type_))
            counts, ones, squares = _sums(places, measures, frame)
            scale, count = type_.scale if pa.types.is_decimal(type_) else 0, counts[:, 0].copy()
            fits = variances.limb_variances(count, ones, squares, less, scale, result)
        if not fits:
            raise CapacityError("a variance has too many rows: rows_max=268435456", OVERFLOW_HINT)
        values = np.sqrt(result) if self.function.startswith("stddev") else result
        return canonical_floats(column_of(values, count > less, FLOAT64))

    def _float_sum(self, array: pa.Array, valid: Mask, starts: I64, ends: I64) -> pa.Array:
        """The exact sum or mean of each frame, rounded once."""
        bits = np.ascontiguousarray(value_view(array).astype(np.float64)).view(np.int64)
        total, count = np.empty(len(starts), np.float64), np.empty(len(starts), np.int64)
        if not floats.slide_bins(bits, valid, starts, ends, total, count):
            raise CapacityError("a sum of floats overflows its bins: rows_max=268435456", OVERFLOW_HINT)
        some = count != 0
        if self.function == "avg":
            total = total / np.where(some, count, 1)
        return canonical_floats(column_of(total, some, FLOAT64))


def _sums(places: Places, measures: Sequence[Measure], frame: tuple[I64, I64]) -> list[I64]:
    """The sums of each measure over each frame."""
    return [
        np.ascontiguousarray(np.column_stack([_between(s, *frame) for s in measure.of(places.rows)]))
        for measure in measures
    ]


def _between(values: I64, starts: I64, ends: I64) -> I64:
    """The sum of each frame's values."""
    sums = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=sums[1:])
    return np.asarray(sums[ends] - sums[starts])


def _extreme(array: pa.Array, valid: Mask, starts: I64, ends: I64, *, greatest: bool) -> pa.Array:
    """The least or greatest value of each frame, null where it has none."""
    order = sort_columns([array], np.zeros(len(array), np.int64))
    ranks = np.empty(len(array), np.int64)
    ranks[order] = np.arange(len(array))[::-1] if greatest else np.arange(len(array))
    found = np.empty(len(array), np.int64)
    frames.slide_least(np.where(valid, ranks, -1), starts, ends, found)
    if (found >= 0).all():
        return gather(array, found)
    return pc.take(array, pa.array(found, INT64, mask=found < 0))


def _tile(within: I64, size: I64, parts: int) -> npt.NDArray[np.int64]:
    """The number of the part, from 1: the first parts are longer by one where the rows do not divide."""
    least, longer = size // parts, size % parts
    edge = longer * (least + 1)
    return np.where(within < edge, within // (least + 1), longer + (within - edge) // np.maximum(least, 1)) + 1
