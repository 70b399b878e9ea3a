"""Segments of ordered partitions, row by row: what window functions are computed from.

A segment is a stretch of one partition, in order, without a gap. A row of weight w takes w places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbsp.errors import CapacityError
from dbsp.stored import stored
from dbsp.zset.arrays import from_values, valid_rows
from dbsp.zset.batch import Batch
from dbsp.zset.batch_rows import equal_rows, sort_rows
from dbsp.zset.kernels import ROWS_MAX, sum_runs
from dbsp.zset.kernels.ranges import cut_ranges
from dbsp.zset.order import order_codes
from dbsp.zset.schema import INT64, Column, OrderBy, Schema

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

_SEGMENT = "__segment"
_MOST = (1 << 64) - 1


@stored("Frame", "kind preceding following")
@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Which rows around a row an aggregate sees: so many `rows` or so much `range` of the order column, both ends
    included; None has no bound, and a negative number lies on the other side. A range of None and 0 is one of ties."""

    kind: str
    preceding: int | None
    following: int | None

    def __str__(self) -> str:
        """Much as in SQL."""
        ends = (self.preceding, "preceding"), (self.following, "following")
        return f"{self.kind} " + " ".join(f"{'unbounded' if end is None else end} {side}" for end, side in ends)

    @property
    def of_ties(self) -> bool:
        """Whether it starts and ends where ties do, which needs no distances."""
        return self.kind == "range" and self.preceding in (None, 0) and self.following in (None, 0)

    @property
    def bounded(self) -> bool:
        """Whether it ends on both sides."""
        return self.preceding is not None and self.following is not None

    @property
    def sees(self) -> tuple[int, int]:
        """How far before and behind its own row it must be known row by row.

        A frame without a bound on one side that ends before its own row holds what lies in front of that end: of the rows
        between, all must be seen that are not in it.
        """
        before, behind = self.preceding, self.following
        return (
            max(-(behind or 0) - 1, 0) if before is None else max(before, 0),
            max(-(before or 0) - 1, 0) if behind is None else max(behind, 0),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EndValue:
    """The value of a column in the `place`-th row from one end of a partition; with `skips` of those where it is not null."""

    column: str
    place: int = 1
    backward: bool = False
    skips: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Beyond:
    """What lies in the frames of a segment and not in the segment, summed up: row `which` of the sums and of the values. The
    first row of these stands for nothing."""

    which: I64
    sums: I64
    values: tuple[pa.Array, ...]


@dataclass(frozen=True, kw_only=True)
class WindowPlaces:
    """Rows in order, one per place, segment by segment.

    `before` counts the places of the partition ahead of each segment, `values_before` the different values of its order there,
    each where it is asked for, else 0; `edges` holds, for each such row that is asked for, the
    values of one column there, one per segment; `beyond` what functions see outside their segments, by their names.
    """

    rows: Batch
    segment: I64
    order: tuple[OrderBy, ...]
    before: I64
    values_before: I64
    edges: Mapping[EndValue, pa.Array] = field(default_factory=dict)
    beyond: Mapping[str, Beyond] = field(default_factory=dict)

    def __len__(self) -> int:
        """How many places there are."""
        return len(self.segment)

    @cached_property
    def at(self) -> I64:
        """The number of each place."""
        return np.arange(len(self.segment))

    @cached_property
    def start(self) -> I64:
        """Where the segment of each place starts."""
        return self.segment.searchsorted(self.segment, "left")

    @cached_property
    def end(self) -> I64:
        """Where the segment of each place ends."""
        return self.segment.searchsorted(self.segment, "right")

    @cached_property
    def fresh(self) -> Mask:
        """Which places differ from the one before in an ordering column, or start a segment."""
        fresh: Mask = np.asarray(self.at == self.start)
        inner = np.flatnonzero(~fresh)
        names = [by.column for by in self.order]
        fresh[inner] = ~equal_rows(self.rows, inner - 1, self.rows, inner, names)
        return fresh

    @cached_property
    def peers_start(self) -> I64:
        """The first place that ties with each."""
        return np.maximum.accumulate(np.where(self.fresh, self.at, 0))

    @cached_property
    def peers_end(self) -> I64:
        """Behind the last place that ties with each."""
        starts = np.append(np.flatnonzero(self.fresh), len(self))
        return np.asarray(starts[np.cumsum(self.fresh)])

    def frames(self, frame: Frame) -> tuple[I64, I64]:
        """Where the frame of each place starts and ends; neither ever goes back."""
        if frame.of_ties:
            return (
                self.start if frame.preceding is None else self.peers_start,
                self.end if frame.following is None else self.peers_end,
            )
        if frame.kind == "range":
            return self._ranges(frame)
        before, behind = frame.preceding, frame.following
        starts = self.start if before is None else np.clip(self.at - _near(before), self.start, self.end)
        ends = self.end if behind is None else np.clip(self.at + _near(behind) + 1, starts, self.end)
        return starts, ends

    def _ranges(self, frame: Frame) -> tuple[I64, I64]:
        """By the codes of the ordering column, which are as far apart as its values; nulls are their own range."""
        by = self.order[0]
        column = self.rows.column(by.column)
        codes, valid = order_codes(column, by), valid_rows(column)
        starts, ends = self.start.copy(), self.end.copy()
        if valid is not None:
            nulls = np.bincount(self.segment, ~valid, minlength=len(self.before)).astype(np.int64)[self.segment]
            if by.nulls_first:
                starts, ends = np.where(valid, starts + nulls, starts), np.where(valid, ends, starts + nulls)
            else:
                starts, ends = np.where(valid, starts, ends - nulls), np.where(valid, ends - nulls, ends)
        first, last = around(codes, frame.preceding, frame.following)
        if valid is not None:
            first[~valid], last[~valid] = codes[~valid], codes[~valid]
        cut_ranges(starts, ends, first, last, codes)
        above, below = _beyond(codes, frame.preceding, frame.following)
        if valid is not None:
            above, below = above & valid, below & valid
        starts, ends = np.where(above, ends, starts), np.where(below, starts, ends)
        return (
            self.start if frame.preceding is None else starts,
            self.end if frame.following is None else ends,
        )


def around(codes: U64, before: int | None, behind: int | None) -> tuple[U64, U64]:
    """The codes so far before and behind each, a negative distance on the other side; at most the least and greatest."""
    return _moved(codes, -_MOST if before is None else -before), _moved(codes, _MOST if behind is None else behind)


def _moved(codes: U64, distance: int) -> U64:
    """The codes at this distance; at most the least and the greatest code."""
    by = np.uint64(min(abs(distance), _MOST))
    if distance < 0:
        return np.where(codes >= by, codes - by, np.uint64(0))
    return np.where(codes <= np.uint64(_MOST) - by, codes + by, np.uint64(_MOST))


def _beyond(codes: U64, before: int | None, behind: int | None) -> tuple[Mask, Mask]:
    """Where a frame that leaves its own row out starts above the greatest code, and where it ends below the least."""
    above = codes > np.uint64(_MOST - min(max(-(before or 0), 0), _MOST))
    below = codes < np.uint64(min(max(-(behind or 0), 0), _MOST))
    return np.asarray(above), np.asarray(below)


def _near(count: int) -> int:
    """A number of rows that cannot overflow when a position is added."""
    return max(-ROWS_MAX, min(count, ROWS_MAX))


def in_order(segment: I64, rows: Batch, order: Sequence[OrderBy]) -> tuple[I64, Batch]:
    """The rows of each segment in exact order, equal ones added up, none that is not there.

    **Errors** `CapacityError` where the weights of a row overflow.
    """
    return parted(segment, rows, order)[0]


def parted(segment: I64, rows: Batch, order: Sequence[OrderBy]) -> tuple[tuple[I64, Batch], Batch]:
    """As `in_order`; and the rows that are deleted more often than they came, which take no place."""
    schema = Schema((Column(_SEGMENT, INT64, nullable=False), *rows.schema.columns))
    numbered = Batch(schema=schema, columns=(from_values(segment, INT64), *rows.columns), weights=rows.weights)
    numbered = numbered.take(sort_rows(numbered, (OrderBy(_SEGMENT), *order)))
    at = np.arange(1, len(numbered))
    starts = np.append(np.zeros(min(1, len(rows)), np.int64), at[~equal_rows(numbered, at - 1, numbered, at)])
    summed = sum_runs(numbered.weights, starts)

    def kept(mask: Mask) -> tuple[I64, Batch]:
        some = np.flatnonzero(mask)
        found = numbered.take(starts[some])
        return np.asarray(found.columns[0]), Batch(schema=rows.schema, columns=found.columns[1:], weights=summed[some])

    return kept(summed[:, 0] > 0), kept(summed[:, 0] < 0)[1]


def expanded(segment: I64, rows: Batch) -> tuple[I64, Batch]:
    """One row of weight 1 per place.

    **Errors** `CapacityError` for more places than a batch may hold.
    """
    weight = rows.weight
    if (weight == 1).all():
        return segment, rows
    if float(weight.astype(np.float64).sum()) > ROWS_MAX:
        raise CapacityError(f"too many places in one step: places_max={ROWS_MAX}", "equal rows take a place each")
    source = np.repeat(np.arange(len(rows)), weight)
    return segment[source], rows.take(source).with_weights(np.ones(len(source), np.int64))
