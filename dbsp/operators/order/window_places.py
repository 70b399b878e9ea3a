"""Segments of ordered partitions, row by row, from which window functions are computed.

A segment is a contiguous part of one partition, in order. A row of weight w takes w places.
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
    """The rows around a row that an aggregate sees: a number of `rows` or a `range` of the order column, both ends included.

    None means no bound; a negative number denotes the other side of the row. A range whose ends are None or 0 is a frame of
    ties: it starts and ends with rows that are equal in the order.
    """

    kind: str
    preceding: int | None
    following: int | None

    def __str__(self) -> str:
        """Return the frame as text that resembles SQL."""
        ends = (self.preceding, "preceding"), (self.following, "following")
        return f"{self.kind} " + " ".join(f"{'unbounded' if end is None else end} {side}" for end, side in ends)

    @property
    def of_ties(self) -> bool:
        """Return whether the frame starts and ends where ties do, which needs no distances."""
        return self.kind == "range" and self.preceding in (None, 0) and self.following in (None, 0)

    @property
    def bounded(self) -> bool:
        """Return whether the frame has a bound on both sides."""
        return self.preceding is not None and self.following is not None

    @property
    def sees(self) -> tuple[int, int]:
        """Return how far before and after its own row the frame must be known row by row.

        A frame may have no bound on one side and end before its own row on the other. It then holds the rows up to that end. The
        rows between that end and its own row, which are not in the frame, must all be known.
        """
        before, behind = self.preceding, self.following
        return (
            max(-(behind or 0) - 1, 0) if before is None else max(before, 0),
            max(-(before or 0) - 1, 0) if behind is None else max(behind, 0),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EndValue:
    """The value of a column in the `place`-th row from one end of a partition; with `skips`, of the rows where it is not null."""

    column: str
    place: int = 1
    backward: bool = False
    skips: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Beyond:
    """The summary of the rows that are in the frames of a segment and not in the segment.

    `which` is for each segment a row of the sums and of the values; row 0 denotes no rows.
    """

    which: I64
    sums: I64
    values: tuple[pa.Array, ...]


@dataclass(frozen=True, kw_only=True)
class WindowPlaces:
    """Rows in order, one per place, segment by segment.

    - `before`: the number of places of the partition before each segment, if a call needs it, else 0.
    - `values_before`: the number of different values of its order there, if a call needs it, else 0.
    - `edges`: for each edge that a call reads, the values of one column there, one per segment.
    - `beyond`: the summaries of rows outside the segments, by the names of the calls.
    """

    rows: Batch
    segment: I64
    order: tuple[OrderBy, ...]
    before: I64
    values_before: I64
    edges: Mapping[EndValue, pa.Array] = field(default_factory=dict)
    beyond: Mapping[str, Beyond] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of places."""
        return len(self.segment)

    @cached_property
    def at(self) -> I64:
        """Return the number of each place."""
        return np.arange(len(self.segment))

    @cached_property
    def start(self) -> I64:
        """Return the first place of the segment of each place."""
        return self.segment.searchsorted(self.segment, "left")

    @cached_property
    def end(self) -> I64:
        """Return the end of the segment of each place."""
        return self.segment.searchsorted(self.segment, "right")

    @cached_property
    def fresh(self) -> Mask:
        """Return the mask of the places that differ from the place before in an ordering column, or start a segment."""
        fresh: Mask = np.asarray(self.at == self.start)
        inner = np.flatnonzero(~fresh)
        names = [by.column for by in self.order]
        fresh[inner] = ~equal_rows(self.rows, inner - 1, self.rows, inner, names)
        return fresh

    @cached_property
    def peers_start(self) -> I64:
        """Return the first place that ties with each place."""
        return np.maximum.accumulate(np.where(self.fresh, self.at, 0))

    @cached_property
    def peers_end(self) -> I64:
        """Return the place after the last one that ties with each place."""
        starts = np.append(np.flatnonzero(self.fresh), len(self))
        return np.asarray(starts[np.cumsum(self.fresh)])

    def frames(self, frame: Frame) -> tuple[I64, I64]:
        """Return the start and the end of the frame of each place; neither ever moves backwards."""
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
        """Return frames of a range by the codes of the ordering column, whose distances are those of its values.

        Nulls are a range of their own.
        """
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
    """Return the codes this far before and after each code, limited to the least and the greatest code.

    A negative distance is on the other side.
    """
    return _moved(codes, -_MOST if before is None else -before), _moved(codes, _MOST if behind is None else behind)


def _moved(codes: U64, distance: int) -> U64:
    """Return the codes at this distance, limited to the least and the greatest code."""
    by = np.uint64(min(abs(distance), _MOST))
    if distance < 0:
        return np.where(codes >= by, codes - by, np.uint64(0))
    return np.where(codes <= np.uint64(_MOST) - by, codes + by, np.uint64(_MOST))


def _beyond(codes: U64, before: int | None, behind: int | None) -> tuple[Mask, Mask]:
    """Return the masks where a frame that excludes its own row starts above the greatest code, and ends below the least."""
    above = codes > np.uint64(_MOST - min(max(-(before or 0), 0), _MOST))
    below = codes < np.uint64(min(max(-(behind or 0), 0), _MOST))
    return np.asarray(above), np.asarray(below)


def _near(count: int) -> int:
    """Return a number of rows, limited so that it cannot overflow when a position is added."""
    return max(-ROWS_MAX, min(count, ROWS_MAX))


def in_order(segment: I64, rows: Batch, order: Sequence[OrderBy]) -> tuple[I64, Batch]:
    """Return the rows of each segment with positive weight, in exact order, equal rows added up.

    **Errors** `CapacityError` where the weights of a row overflow.
    """
    return parted(segment, rows, order)[0]


def parted(segment: I64, rows: Batch, order: Sequence[OrderBy]) -> tuple[tuple[I64, Batch], Batch]:
    """Return the result of `in_order`, and the rows that are deleted more often than inserted, which take no place."""
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
    """Return one row of weight 1 per place.

    **Errors** `CapacityError` for more places than a batch may hold.
    """
    weight = rows.weight
    if (weight == 1).all():
        return segment, rows
    if float(weight.astype(np.float64).sum()) > ROWS_MAX:
        raise CapacityError(
            f"too many rows to number in one step: rows_max={ROWS_MAX}",
            "equal rows count one by one: number fewer rows in a step (max_rows_per_step)",
        )
    source = np.repeat(np.arange(len(rows)), weight)
    return segment[source], rows.take(source).with_weights(np.ones(len(source), np.int64))
