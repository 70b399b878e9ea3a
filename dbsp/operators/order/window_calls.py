"""Window functions, each for all places of some segments at once.

**Law** for a place whose frame, neighbours or rank lie within its segment the value is that over the whole partition.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.errors import InternalError
from dbsp.operators.groups.quantile_part import Place
from dbsp.operators.order.frame_aggregates import AGGREGATES, over_frames
from dbsp.operators.order.summaries import SUMMED
from dbsp.operators.order.window_places import I64, Edge, Frame, Mask, Places
from dbsp.zset.arrays import from_values, gather, join, valid_rows
from dbsp.zset.schema import FLOAT64, INT64, OrderBy, Schema

NEIGHBOURS = ("lag", "lead")
EDGES = ("first_value", "last_value", "nth_value")
SHIFTING = ("row_number", "rank")
DENSE = "dense_rank"
WHOLE = ("percent_rank", "cume_dist", "ntile")


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowCall:
    """One function: its name in the output, what it is, of which column, and its parameters.

    `offset` is how far lag and lead look, the place of nth_value, or the parts of ntile; `default` a column for where there is no
    such row; with `skips` only rows count where `column` is not null. `other` is an aggregate's second column, `place` which
    quantile it is; `by` is the order that first and last go by, and `where` the column that says which rows they see.
    """

    name: str
    function: str
    column: str | None = None
    offset: int = 0
    default: str | None = None
    frame: Frame | None = None
    skips: bool = False
    other: str | None = None
    place: Place | None = None
    by: tuple[OrderBy, ...] = ()
    where: str | None = None

    def __str__(self) -> str:
        """Much as in SQL."""
        values = [
            str(v) for v in (self.column, self.other, self.place, self.offset or None, self.default) if v is not None
        ]
        values += [f"by {', '.join(map(str, self.by))}"] if self.by else []
        values += [f"where {self.where}"] if self.where is not None else []
        over = f" over {self.frame}" if self.frame is not None else " ignore nulls" if self.skips else ""
        return f"{self.name} = {self.function}({', '.join(values)}){over}"

    def sees(self, kind: str) -> tuple[int, int]:
        """How far before and behind its own row it looks, in "rows" or "range"."""
        if self.function in NEIGHBOURS and kind == "rows":
            return (0, 0) if self.skips else self.reaches
        return (0, 0) if self.frame is None or self.frame.kind != kind else self.frame.sees

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
        return self.function in WHOLE or (self.frame is not None and not self.frame.bounded and not self.runs)

    @property
    def runs(self) -> bool:
        """Whether its frame reaches to an end of the partition, and what lies there can be summed up."""
        return self.frame is not None and not self.frame.bounded and self.function in SUMMED

    @property
    def from_start(self) -> bool:
        """Whether it runs from the partition's start: a change touches all rows behind it."""
        return self.runs and self.frame is not None and self.frame.following is not None

    @property
    def to_end(self) -> bool:
        """Whether it runs to the partition's end: a change touches all rows before it."""
        return self.runs and self.frame is not None and self.frame.preceding is not None

    @property
    def total(self) -> bool:
        """Whether it has one value for all rows of the partition."""
        return self.runs and not self.from_start and not self.to_end

    def values(self, places: Places, schema: Schema) -> tuple[pa.Array, Mask | None]:
        """The column, and which places have a value that does not fit its type."""
        if self.function in AGGREGATES:
            return over_frames(self, places, schema)
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
                within = np.asarray(count - count[places.start] + 1)
                return from_values(places.values_before[places.segment] + within, INT64)
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


def _tile(within: I64, size: I64, parts: int) -> npt.NDArray[np.int64]:
    """The number of the part, from 1: the first parts are longer by one where the rows do not divide."""
    least, longer = size // parts, size % parts
    edge = longer * (least + 1)
    return np.where(within < edge, within // (least + 1), longer + (within - edge) // np.maximum(least, 1)) + 1
