"""Window functions: values that a row takes from the rows around it, in the order of its partition.

**Law** the result has the rows, each place with its functions' values over the sorted partition; its change is -old +new. The
operator reads only stretches of a partition, and computes them before and after the change. A stretch holds all rows that a
changed row influences, and all rows from which these take values. Other rows of a stretch have equal values before and after,
whether right or cut short by the stretch's end, and cancel out.

**State**

- All rows, keyed by the partition and sorted by the first ordering column.
- For row_number and rank, the rows that are deleted more often than inserted. They occur only if a delete is in an earlier step
  than its insert. Such a row takes no place, so its weight must not count among the places before a stretch. The number of
  places is the sum of all weights minus the sum of the negative weights.
- For dense_rank, the different values of each partition's order, once each.
- For each column whose nulls are skipped, the partition and order of the rows where it is not null.
- For aggregates of frames without a bound, a summary for every few hundred rows of a partition
  (`dbsp.operators.order.blocks`).

**Cost** per changed row a search in the partition's runs, and the stretch. The stretch of each function is:

- lag, lead and frames of k rows: k rows on either side. If nulls are skipped, as far as k rows with a value; for a first such
  value, all rows before it.
- frames of a range: twice the frame's range.
- row_number and rank: all rows after the first changed one, whose values shift. To count the rows before it, 8 bytes are read
  per row (its key too, if the hash does not decide equality).
- dense_rank: the rows that share its order code. All rows after it, only if a value of the order is added or removed. In
  either case 8 bytes are read per different value before it.
- aggregates of frames from the partition's start: all rows after the first changed one. To its end: all rows before the last.
  Over the whole partition: some hundred rows near each, and all rows if the total changes. Each also reads a summary for every
  few hundred rows of the partition.
- percent_rank, cume_dist and ntile: the whole partition. The same holds for modes, quantiles and folds of frames without a
  bound, because no summary of bounded size represents the values before a change.
- first_value, last_value and nth_value: the whole partition, if that value changes.

A fold (texts, lists, users' functions) assembles each influenced frame anew. Several functions of one window share a stretch. It
reaches as far as the widest function looks on either side, and as far again from the rows that the change influences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.errors import InternalError
from dbsp.operators.failures import report
from dbsp.operators.groups.part import group_of, of_same_keys
from dbsp.operators.monotone_bounds import Bound, MonotoneBounds, common
from dbsp.operators.operator import Integral, Operator, State, StepContext, Time
from dbsp.operators.order.blocks import Blocks, BlockTrace
from dbsp.operators.order.running import Seen, beyond, other_totals, totals
from dbsp.operators.order.summaries import Summing
from dbsp.operators.order.window_calls import DENSE, SHIFTING, WindowCall
from dbsp.operators.order.window_places import (
    I64,
    U64,
    EndValue,
    Mask,
    WindowPlaces,
    around,
    expanded,
    in_order,
    parted,
)
from dbsp.operators.order.window_values import Failed, values_of
from dbsp.stored import stored
from dbsp.trace.neighbours import FIRST, LAST, Positions
from dbsp.trace.spine import Spine
from dbsp.zset.arrays import valid_rows
from dbsp.zset.batch import Batch, arrange, concat, consolidate, keys_once
from dbsp.zset.equality import equal_keys
from dbsp.zset.kernels.ranges import join_ranges
from dbsp.zset.order import order_codes
from dbsp.zset.runs import begins
from dbsp.zset.schema import INT64, Arrangement, OrderBy, Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class _Points:
    """The positions in the order at which rows change (partition and order code), and the position of each changed row."""

    part: I64
    codes: U64
    of_delta: I64

    @staticmethod
    def of(delta: Batch, partitions: Batch) -> _Points:
        """Return the positions of changed rows, which are in the arrangement of the trace, by partition and code."""
        codes = delta.order_code
        if codes is None:
            raise InternalError("the changed rows are in order")
        part = group_of(partitions, delta)
        order = np.lexsort((codes, part))
        part, codes = part[order], codes[order]
        fresh = begins(part, codes)
        of_delta = np.empty(len(delta), np.int64)
        of_delta[order] = np.cumsum(fresh) - 1
        return _Points(part=part[fresh], codes=codes[fresh], of_delta=of_delta)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stretches:
    """The ranges of order codes that are read, each of one partition; and the range that contains each changed row."""

    part: I64
    key_hash: U64
    keys: Batch
    low: U64
    high: U64
    of_delta: I64


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The rows of stretches in order, with the number of their stretch, before and after the change.

    `lacking` and `lacking_now` are the rows with negative weight, before and after the change.
    """

    old: tuple[I64, Batch]
    new: tuple[I64, Batch]
    lacking: Batch
    lacking_now: Batch


@stored("Window", "input partition order calls schema")
@dataclass(frozen=True, slots=True, kw_only=True)
class WindowOperator(Operator):
    """Emit the input rows with the values of the window functions `calls` as further columns."""

    depends_on_time: ClassVar[Time] = Time.NOTHING
    input: Schema
    partition: tuple[str, ...]
    order: tuple[OrderBy, ...]
    calls: tuple[WindowCall, ...]
    schema: Schema

    def __str__(self) -> str:
        """Return the functions, the order and the partition as text."""
        order = ", ".join(map(str, self.order))
        return f"window {', '.join(map(str, self.calls))} by {order} per ({', '.join(self.partition)})"

    def arrangements(self) -> tuple[Arrangement, ...]:
        """Return the arrangements of the traces, of which only the first always exists.

        - The rows, by partition, then in order.
        - If places are counted, the rows of negative weight.
        - If values of the order are counted, each different value once.
        - If functions run to an end of the partition, the blocks.
        - For each column whose nulls are skipped, the places of the rows where it is not null.
        """
        rows = (self._rows_kept,) * (2 if self._counts else 1)
        values = [self._values_kept] if self._dense else []
        blocks = [self._blocks.arrangement()] if self._runs else []
        return (*rows, *values, *blocks, *(self._places_kept for _ in self._skipped))

    def integrals(self) -> tuple[Integral | None, ...]:
        """Return the input as the integral of the first trace; None for the others, which do not store all input rows."""
        return (Integral(stream=0), *(None for _ in self.arrangements()[1:]))

    def monotone_bounds(self, inputs: Sequence[MonotoneBounds]) -> MonotoneBounds:
        """Return the bounds of the partition: only partitions whose rows change have other output rows."""
        return {name: bound for name, bound in common(inputs).items() if name in self.partition}

    def closing(self, inputs: Sequence[MonotoneBounds]) -> tuple[tuple[str, Bound] | None, ...]:
        """Return the bound of a key: partitions below it are closed, so their rows are never read again."""
        kept = next(iter(self.monotone_bounds(inputs).items()), None)
        return tuple(kept for _ in self.arrangements())

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:
        """Return the rows that the change influences: the old ones with weight -1, the new ones with weight 1."""
        arrangement = self._rows_kept
        delta = arrange(inputs[0], arrangement) if len(inputs[0]) else inputs[0]
        if len(delta) == 0:
            return Batch.empty(self.schema)
        spine = state.spine(0)
        partitions = keys_once(delta)
        sparse, changes = self._sparse(state), self._changes(delta)
        edges = [self._edges(spine, sparse, partitions)]
        after = {column: there.with_batch(changes[column]) for column, there in sparse.items()}
        edges.append(self._edges(spine.with_batch(delta), after, partitions))
        moved = self._moved(edges[0], edges[1], len(partitions))
        points = _Points.of(delta, partitions)
        shifts, values = self._shifts(spine, delta, partitions, points)

        def read(moved: Mask, blocks: Blocks | None = None) -> tuple[_Stretches, _Found]:
            stretches = self._stretches((spine, sparse), partitions, points, moved, shifts, blocks)
            return stretches, self._found(spine, stretches, delta)

        if self._runs:
            stretches, found, seen = self._beside_blocks(state, delta, partitions, points, moved, read)
        else:
            (stretches, found), seen = read(moved), ({}, {})
        before = self._before(state, stretches)
        old = self._answer(*found.old, stretches, edges[0], before, seen[0])
        new = self._answer(*found.new, stretches, edges[1], before, seen[1])
        state.append(0, delta)
        if self._counts and (len(found.lacking) or len(found.lacking_now)):
            state.append(1, arrange(concat([found.lacking.negate(), found.lacking_now], self.input), arrangement))
        if len(values):
            state.append(2 if self._counts else 1, values)
        for index, change in enumerate(changes.values(), self._sparse_at):
            if len(change):
                state.append(index, change)
        return self._change(context, old, new)

    @property
    def _rows_kept(self) -> Arrangement:
        """Return the arrangement of the rows by partition, in order."""
        return Arrangement(schema=self.input, key=self.partition, order=self.order)

    @property
    def _places_kept(self) -> Arrangement:
        """Return the arrangement of the partition and place of some rows."""
        names = dict.fromkeys((*self.partition, self.order[0].column))
        return Arrangement(schema=self.input.select(names), key=self.partition, order=self.order[:1])

    @property
    def _sparse_at(self) -> int:
        """Return the index of the first trace of places where a column is not null."""
        return 1 + self._counts + self._dense + self._runs

    @property
    def _skipped(self) -> tuple[str, ...]:
        """Return the columns whose nulls are skipped."""
        return tuple(dict.fromkeys(str(call.column) for call in self.calls if call.skips))

    @property
    def _runs(self) -> bool:
        """Return whether the frame of a call reaches to an end of the partition, so that block summaries are stored."""
        return any(call.runs for call in self.calls)

    @property
    def _blocks(self) -> BlockTrace:
        """Return the stored form of the block summaries that `_runs` calls for."""
        return BlockTrace(partition=self.input.select(self.partition), summing=Summing.of_calls(self.calls, self.input))

    def _beside_blocks(
        self, state: State, delta: Batch, partitions: Batch, points: _Points, moved: Mask,
        read: Callable[[Mask, Blocks], tuple[_Stretches, _Found]],
    ) -> tuple[_Stretches, _Found, tuple[Seen, Seen]]:  # fmt: skip
        """Return the stretches, made of whole blocks, with their rows and the summaries beyond them before and after the change.

        The blocks in which rows change are part of the stretches, and are summed up anew. If that gives another total of a
        partition, the whole partition is read.
        """
        trace, index = self._blocks, 1 + self._counts + self._dense
        blocks = trace.read(state.spine(index), partitions)
        stretches, found = read(moved, blocks)
        segment, rows = found.new
        if trace.needless(blocks, stretches.part[segment]):
            return stretches, found, ({}, {})
        codes = order_codes(rows.column(self.order[0].column), self.order[0])
        touched = blocks.number(points.part, points.codes)
        change = trace.change(blocks, touched, stretches.part[segment], codes, rows)
        sums = totals(self.calls, trace.summing, change)
        other = other_totals(self.calls, trace.summing, sums, delta.loose(), self.order, self.schema)
        if (other & ~moved).any():
            stretches, found = read(moved | other, blocks)
        state.append(index, trace.delta(change))
        where = stretches.part, stretches.low, stretches.high
        return stretches, found, beyond(self.calls, trace.summing, blocks, sums, *where)

    def _found(self, spine: Spine, stretches: _Stretches, delta: Batch) -> _Found:
        """Read the rows of the stretches."""
        segment, rows = of_same_keys(stretches.keys, *spine.ranges(stretches.key_hash, stretches.low, stretches.high))
        old, lacking = parted(segment, rows, self.order)
        both = np.concatenate([segment, stretches.of_delta]), concat([rows.loose(), delta.loose()], self.input)
        new, lacking_now = parted(*both, self.order)
        return _Found(old=old, new=new, lacking=lacking, lacking_now=lacking_now)

    def _sparse(self, state: State) -> dict[str, Spine]:
        """Return for each column whose nulls are skipped the trace of the places where it is not null."""
        return {column: state.spine(index) for index, column in enumerate(self._skipped, self._sparse_at)}

    def _changes(self, delta: Batch) -> dict[str, Batch]:
        """Return the changes of the traces of `_sparse`, by column."""
        arrangement, made = self._places_kept, {}
        for column in self._skipped:
            valid = valid_rows(delta.column(column))
            rows = (delta if valid is None else delta.filter(valid)).loose().project(arrangement.schema.names)
            made[column] = arrange(rows.but(schema=arrangement.schema), arrangement)
        return made

    def _edges(
        self, spine: Spine, sparse: Mapping[str, Spine], partitions: Batch
    ) -> dict[EndValue, tuple[pa.Array, I64]]:
        """Return for each edge that a call reads its values, and the index of each partition's value (-1: none).

        An edge is one row of a partition, such as the first row, whose value all rows of the partition take.
        """
        wanted = dict.fromkeys(call.edge for call in self.calls if call.edge is not None)
        return {edge: self._edge(spine, sparse.get(edge.column, spine), partitions, edge) for edge in wanted}

    def _edge(self, spine: Spine, sparse: Spine, partitions: Batch, edge: EndValue) -> tuple[pa.Array, I64]:
        """Return the values at one edge, and the index of each partition's value.

        If nulls are skipped, `sparse` has the places of the rows where the column is not null.
        """
        key_hash, count = partitions.words[0], len(partitions)
        low, high = np.full(count, FIRST), np.full(count, LAST)
        asked = Positions(key_hash=key_hash, first=low, last=high, backward=edge.backward)
        end = (sparse if edge.skips else spine).reach(asked, edge.place, partitions)
        ranges = (end, high) if edge.backward else (low, end)
        part, rows = in_order(*of_same_keys(partitions, *spine.ranges(key_hash, *ranges)), self.order)
        valid = valid_rows(rows.column(edge.column)) if edge.skips else None
        if valid is not None:
            part, rows = part[valid], rows.filter(valid)
        if edge.place > 1:
            part, rows = expanded(part, rows)
        numbers = np.arange(count)
        last = part.searchsorted(numbers, "right") - 1
        at = last if edge.backward else part.searchsorted(numbers, "left") + edge.place - 1
        found = np.clip(at, 0, max(len(part) - 1, 0))
        some = (part[found] == numbers) & (at == found) if len(part) else np.zeros(count, np.bool_)
        return rows.column(edge.column), np.where(some, found, -1)

    def _moved(
        self,
        old: Mapping[EndValue, tuple[pa.Array, I64]],
        new: Mapping[EndValue, tuple[pa.Array, I64]],
        partitions: int,
    ) -> Mask:
        """Return the mask of the partitions in which every row may change.

        All partitions if a call depends on whole partitions; else the partitions whose value at an edge changed.
        """
        moved = np.full(partitions, any(call.whole for call in self.calls))
        for edge, (column, at) in old.items():
            column_now, at_now = new[edge]
            moved |= (at >= 0) != (at_now >= 0)
            both = np.flatnonzero((at >= 0) & (at_now >= 0))
            moved[both[~equal_keys(column, at[both], column_now, at_now[both])]] = True
        return moved

    def _shifts(self, spine: Spine, delta: Batch, partitions: Batch, points: _Points) -> tuple[Mask, Batch]:
        """Return the mask of the points at which a value of the order appears or disappears, and the change of the values."""
        count = len(points.part)
        if not self._dense:
            return np.zeros(count, np.bool_), Batch.empty(self.input)
        key_hash = partitions.words[0][points.part]
        keys = partitions.take(points.part)
        point, rows = of_same_keys(keys, *spine.ranges(key_hash, points.codes, points.codes))
        both = np.concatenate([point, points.of_delta]), concat([rows.loose(), delta.loose()], self.input)
        old, new = self._values(*in_order(point, rows, self.order)), self._values(*in_order(*both, self.order))
        shifts = np.bincount(old[0], minlength=count) != np.bincount(new[0], minlength=count)
        return shifts, arrange(concat([old[1].negate(), new[1]]), self._values_kept)

    def _values(self, point: I64, rows: Batch) -> tuple[I64, Batch]:
        """Return the different values of the order among the rows of each point, once each, with their partition."""
        none = np.zeros(0, np.int64)
        places = WindowPlaces(rows=rows, segment=point, order=self.order, before=none, values_before=none)
        fresh, schema = places.fresh, self._values_kept.schema
        found = rows.filter(fresh).loose().project(schema.names)
        return point[fresh], found.but(schema=schema, weights=np.ones((len(found), 1), np.int64))

    def _stretches(
        self, spines: tuple[Spine, Mapping[str, Spine]], partitions: Batch, points: _Points, moved: Mask, shifts: Mask,
        blocks: Blocks | None,
    ) -> _Stretches:  # fmt: skip
        """Return the stretches around changed rows, extended to whole blocks if there are any; overlapping ones are joined."""
        part = points.part
        low, high = self._extent(*spines, partitions, part, points.codes)
        high[shifts] = LAST
        low[moved[part]], high[moved[part]] = FIRST, LAST
        if blocks is not None:
            low, high = blocks.around(part, low)[0], blocks.around(part, high)[1]
        by_low = np.lexsort((low, part))
        joined = np.empty(len(part), np.int64)
        count = join_ranges(part[by_low], low[by_low], high[by_low], joined)
        starts = joined.searchsorted(np.arange(count))
        of_point = np.empty(len(part), np.int64)
        of_point[by_low] = joined
        part, low = part[by_low][starts], low[by_low][starts]
        keys = partitions.take(part)
        return _Stretches(
            part=part, key_hash=partitions.words[0][part], keys=keys, low=low,
            high=np.maximum.reduceat(high[by_low], starts), of_delta=of_point[points.of_delta],
        )  # fmt: skip

    def _extent(
        self, spine: Spine, sparse: Mapping[str, Spine], partitions: Batch, part: I64, codes: U64
    ) -> tuple[U64, U64]:
        """Return the least extent of the stretch of each changed position.

        A stretch reaches to the outermost rows that see the change, and from them as far as any of their functions looks.
        To look at the rows before the change is enough: outside the outermost changes of a stretch they are the same.
        """
        span = self._sight("range")
        sights = [(spine, self._sight("rows")), *((there, self._skipping(column)) for column, there in sparse.items())]
        back = [(there, rows[::-1]) for there, rows in sights]
        low, high = self._beyond(back, partitions, part, (codes, codes), span[::-1])
        low, high = self._beyond(sights, partitions, part, (low, high), span)
        if any(call.function in SHIFTING or call.from_start for call in self.calls):
            high[:] = LAST
        if any(call.to_end for call in self.calls):
            low[:] = FIRST
        return low, high

    def _sight(self, kind: str) -> tuple[int, int]:
        """Return how far before and after its own position a row looks for any of its functions."""
        seen = [call.sees(kind) for call in self.calls]
        return max(before for before, _ in seen), max(behind for _, behind in seen)

    def _skipping(self, column: str) -> tuple[int, int]:
        """Return how many rows with a value in this column lag and lead look at, before and after their own row."""
        seen = [call.reaches for call in self.calls if call.skips and call.column == column and call.edge is None]
        return max((before for before, _ in seen), default=0), max((behind for _, behind in seen), default=0)

    def _beyond(
        self, sights: Sequence[tuple[Spine, tuple[int, int]]], partitions: Batch, part: I64, between: tuple[U64, U64],
        span: tuple[int, int],
    ) -> tuple[U64, U64]:  # fmt: skip
        """Return the codes before the first positions and after the second ones, at the distances of `span` and `sights`.

        `span` is a distance in the order column. `sights` has distances in rows, each in a trace. The farthest code counts.
        """
        key_hash = partitions.words[0][part]
        low, high = around(between[0], span[0], 0)[0], around(between[1], 0, span[1])[1]
        for spine, rows in sights:
            if rows[0]:
                first, last = np.full(len(low), FIRST), around(between[0], 1, 0)[0]
                asked = Positions(key_hash=key_hash, first=first, last=last, backward=True)
                low = np.minimum(low, spine.reach(asked, rows[0], partitions.take(part)))
            if rows[1]:
                first, last = around(between[1], 0, 1)[1], np.full(len(high), LAST)
                asked = Positions(key_hash=key_hash, first=first, last=last, backward=False)
                high = np.maximum(high, spine.reach(asked, rows[1], partitions.take(part)))
        return low, high

    @property
    def _counts(self) -> bool:
        """Return whether a value depends on the number of places before it."""
        return any(call.function in SHIFTING for call in self.calls)

    @property
    def _dense(self) -> bool:
        """Return whether a value depends on the number of different values of the order before it."""
        return any(call.function == DENSE for call in self.calls)

    @property
    def _values_kept(self) -> Arrangement:
        """Return the arrangement of the different values of the order in each partition."""
        names = dict.fromkeys((*self.partition, *(by.column for by in self.order)))
        return Arrangement(schema=self.input.select(names), key=self.partition, order=self.order[:1])

    def _before(self, state: State, stretches: _Stretches) -> tuple[I64, I64]:
        """Return the number of places of its partition, and of different values, before each stretch.

        The step does not change these numbers.
        """
        none = np.zeros(len(stretches.part), np.int64)
        start = np.full(len(stretches.low), FIRST)
        empty = stretches.low == FIRST
        end = np.where(empty, FIRST, stretches.low - np.uint64(1))
        start = np.where(empty, LAST, start)

        def weight(index: int) -> I64:
            return state.spine(index).weight_between(stretches.key_hash, start, end, stretches.keys)

        places = weight(0) - weight(1) if self._counts else none
        return places, weight(2 if self._counts else 1) if self._dense else none

    def _answer(
        self, segment: I64, rows: Batch, stretches: _Stretches, edges: Mapping[EndValue, tuple[pa.Array, I64]],
        before: tuple[I64, I64], seen: Seen,
    ) -> tuple[Batch, Failed]:  # fmt: skip
        """Return the stretches' rows with their functions, and the mask of the failed rows by reason; a row has one reason."""
        segment, rows = expanded(segment, rows)
        per_stretch = {
            edge: pc.take(values, pa.array(at[stretches.part], INT64, mask=at[stretches.part] < 0))
            for edge, (values, at) in edges.items()
        }
        places = WindowPlaces(
            rows=rows, segment=segment, order=self.order, before=before[0], values_before=before[1], edges=per_stretch,
            beyond=seen,
        )  # fmt: skip
        failed: dict[str, Mask] = {}
        seen_failed = np.zeros(len(places), np.bool_)
        columns: list[pa.Array] = []
        if len(places) == 0:
            return Batch.empty(self.schema), failed
        for call in self.calls:
            column, wrong = values_of(call, places, self.schema)
            columns.append(column)
            for reason, mask in wrong.items():
                failed[reason] = failed.get(reason, np.zeros(len(places), np.bool_)) | (mask & ~seen_failed)
                seen_failed = seen_failed | mask
        return Batch(schema=self.schema, columns=(*rows.columns, *columns), weights=rows.weights), failed

    def _change(self, context: StepContext, old: tuple[Batch, Failed], new: tuple[Batch, Failed]) -> Batch:
        """Return the removed and the added rows; rows that fail leave the stream by the error policy."""
        before, after = old[0], new[0]
        if context.error_policy != "null" and (old[1] or new[1]):
            names = self.input.names
            for reason in sorted({*old[1], *new[1]}):
                failed = consolidate(concat([_failed(*old, reason).negate(), _failed(*new, reason)]).project(names))
                report(context, failed, names, failed.weight, dict.fromkeys(range(len(failed)), reason))
            before, after = _without(*old), _without(*new)
        return consolidate(concat([before.negate(), after], self.schema))


def _failed(rows: Batch, failed: Failed, reason: str) -> Batch:
    """Return the rows that failed for a reason."""
    return rows.filter(failed.get(reason, np.zeros(len(rows), np.bool_)))


def _without(rows: Batch, failed: Failed) -> Batch:
    """Return the rows that did not fail."""
    return rows.filter(~np.logical_or.reduce([np.zeros(len(rows), np.bool_), *failed.values()]))
