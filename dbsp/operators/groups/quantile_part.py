"""Exact medians and quantiles: the values of a group in two heaps that meet at the requested place.

**State** per group the values in two sorted traces: `low` has those up to a pivot, in descending order, `high` the others, in
ascending order. Two further traces have the pivot, and the number of values in all and in `low`. The last trace has the values
with negative weight, which are not the group's values. They occur only if a delete is in an earlier step than its insert.
**Law** with n values and the place i, the value at i is the greatest of `low`. The value at i + 1 is that value again or the
least of `high`. A step puts its change on the right side of the pivot, then moves rows until the heaps meet at i again.
A value counts as often as its weight is above zero: the result is that of the Z-set, whatever its history.

**Cost** in proportion to the change: an inserted or deleted row shifts the place by one at most. So at most that many rows
move between the heaps; each move reads the front of a heap. A deleted value is looked up in its heap. A group's first load
moves i rows once.

Source: the running median with two heaps; here the heaps are traces, so rows can also leave from their middle.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.errors import CapacityError
from dbsp.operators.columns import column_of
from dbsp.operators.exact_order import sorted_within
from dbsp.operators.groups.between import between
from dbsp.operators.groups.first_part import first_values, front, in_code_order
from dbsp.operators.groups.group_rows import rows_of
from dbsp.operators.groups.linear_part import as_queries, checked_sum
from dbsp.operators.groups.part import Mask, Positions, Values, group_of
from dbsp.operators.groups.row_form import RowForm
from dbsp.operators.groups.value_part import ValuePart
from dbsp.operators.operator import State
from dbsp.stored import stored
from dbsp.trace.spine import Spine
from dbsp.zset.arrays import canonical_floats, gather, is_decimal
from dbsp.zset.batch import Batch, arrange, concat
from dbsp.zset.kernels import scatter_add
from dbsp.zset.order import not_above
from dbsp.zset.runs import begins, ends, lengths
from dbsp.zset.schema import FLOAT64, Arrangement, OrderBy

Counts = npt.NDArray[np.int64]
ROWS_MAX = 1 << 32
_FIRST_READ, _GROWTH = 4, 4
_LOW, _HIGH, _SIZES, _PIVOTS, _OWED = range(5)


@stored("Place", "part whole between")
@dataclass(frozen=True, slots=True, kw_only=True)
class QuantilePlace:
    """The quantile `part / whole` of n values: between two of them (`between`), or at one."""

    part: int
    whole: int
    between: bool

    def __str__(self) -> str:
        """Return the quantile as a fraction."""
        return f"{self.part}/{self.whole}"

    def index(self, count: Counts) -> Counts:
        """Return the index, from 0, of the quantile among `count` sorted values; of the lower value if it lies between two."""
        if self.between:
            return np.maximum(count - 1, 0) * self.part // self.whole
        return np.maximum(-(-count * self.part // self.whole) - 1, 0)

    def beyond(self, count: Counts) -> Counts:
        """Return how far the quantile lies from the value at `index` towards the next value, in units of 1/`whole`."""
        if not self.between:
            return np.zeros(len(count), np.int64)
        return np.asarray(np.maximum(count - 1, 0) * self.part % self.whole)


@stored("QuantilePart", "name text values place")
@dataclass(frozen=True, slots=True, kw_only=True)
class QuantilePart(ValuePart):
    """A quantile of the values that are not null."""

    place: QuantilePlace

    def orders(self) -> tuple[tuple[OrderBy, ...], tuple[OrderBy, ...]]:
        """Return the sort orders of the low and of the high heap."""
        return (OrderBy(self.value, descending=True),), (OrderBy(self.value),)

    def arrangements(self) -> tuple[Arrangement, ...]:
        """Return the arrangements: low values, high values, counts (all, low), pivots, values with negative weight."""
        schema, keys = self.values.schema, self.values.keys
        low, high = (Arrangement(schema=schema, key=keys.names, order=order) for order in self.orders())
        counts = Arrangement(schema=keys, key=keys.names, weights=2)
        return low, high, counts, Arrangement(schema=schema, key=keys.names), low

    def step(self, state: State, groups: Batch, delta: Batch) -> tuple[Values, Values]:
        """Return the quantile before and after the change."""
        arrangements = self.arrangements()
        counts = state.spine(_SIZES).sums(as_queries(groups, arrangements[_SIZES]))
        pivots = _Pivots.of(state.spine(_PIVOTS), groups)
        heaps = _Heaps(part=self, groups=groups, counts=counts, pivots=pivots,
                       spines=[state.spine(_LOW), state.spine(_HIGH)])  # fmt: skip
        old = self._answer(heaps)
        if len(delta) == 0:
            return old, old
        owed = heaps.add(delta, state.spine(_OWED))
        heaps.balance()
        new = self._answer(heaps)
        change = groups.but(weights=heaps.counts - counts, row_hash=None, arrangement=arrangements[_SIZES])
        kept = [
            arrange(concat(moved, self.values.schema), at)
            for moved, at in zip(heaps.changes, arrangements[:2], strict=True)
        ]
        kept.append(change.filter((change.weights != 0).any(axis=1)))
        kept.append(arrange(heaps.pivots.change(pivots, groups, self.values), arrangements[_PIVOTS]))
        kept.append(owed)
        for index, batch in enumerate(kept):
            if len(batch):
                state.append(index, batch)
        return old, new

    def _answer(self, heaps: _Heaps) -> Values:
        """Return each group's quantile, computed from the first row of each heap."""
        low_order, high_order = self.orders()
        total, in_low = heaps.counts[:, 0], heaps.counts[:, 1]
        lower = first_values(heaps.spines[_LOW], heaps.groups, low_order, self.value)
        lower = pc.if_else(pa.array(total > 0), lower, pa.scalar(None, lower.type))
        if not self.place.between:
            return Values(columns=(lower,))
        upper = first_values(heaps.spines[_HIGH], heaps.groups, high_order, self.value)
        upper = pc.if_else(pa.array(in_low > self.place.index(total) + 1), lower, upper)
        return Values(columns=(value_between(lower, upper, self.place, total),))


def value_between(lower: pa.Array, upper: pa.Array, place: QuantilePlace, count: Counts) -> pa.Array:
    """Return the quantile of `count` values between its two neighbours: decimals exactly, other numbers as float64.

    The quantile is `lower` itself where it lies on that value.
    """
    rest = place.beyond(count)
    if is_decimal(lower):
        return between(lower, upper, rest, place.whole)
    beyond = rest / place.whole
    valid = np.asarray(lower.is_valid())
    low, high = _floats(lower), _floats(upper)
    with np.errstate(invalid="ignore", over="ignore"):
        mixed = low * (1 - beyond) + high * beyond
        same = (beyond == 0) | (low == high)
    return canonical_floats(column_of(np.where(same, low, mixed), valid, FLOAT64))


def _floats(array: pa.Array) -> npt.NDArray[np.float64]:
    """Return numbers as float64; nulls give any value."""
    array = array.cast(FLOAT64, safe=False)
    values: npt.NDArray[np.float64] = array.fill_null(0).to_numpy(zero_copy_only=False)
    return values


@dataclass(frozen=True, slots=True)
class _Pivots:
    """The pivot of each group: the greatest value that may be in the low heap; null if the low heap takes no value."""

    values: pa.Array

    @staticmethod
    def of(spine: Spine, groups: Batch) -> _Pivots:
        """Return the stored pivots."""
        group, rows = rows_of(spine, groups)
        at, absent = np.zeros(len(groups), np.int64), np.ones(len(groups), np.bool_)
        at[group], absent[group] = np.arange(len(group)), False
        return _Pivots(pc.take(rows.columns[0], pa.array(at, mask=absent)))

    def moved(self, group: Positions, values: pa.Array) -> _Pivots:
        """Return the pivots, with other values for some groups."""
        at = np.arange(len(self.values))
        at[group] = len(self.values) + np.arange(len(group))
        return _Pivots(gather(pa.concat_arrays([self.values, values]), at))

    def without(self, group: Positions) -> _Pivots:
        """Return the pivots, with none for some groups."""
        return self.moved(group, pa.nulls(len(group), self.values.type)) if len(group) else self

    def change(self, old: _Pivots, groups: Batch, form: RowForm) -> Batch:
        """Return the removed and the added pivots, as loose rows."""
        parts = []
        for values, sign in ((old.values, -1), (self.values, 1)):
            there = np.flatnonzero(np.asarray(values.is_valid()))
            columns = (*(gather(key, there) for key in groups.columns), gather(values, there))
            weights = np.full((len(there), 1), sign, np.int64)
            parts.append(Batch(schema=form.schema, columns=columns, weights=weights))
        return concat(parts, form.schema)


@dataclass(slots=True, kw_only=True)
class _Heaps:
    """The two heaps of some groups while a step adds, removes and moves rows."""

    part: QuantilePart
    groups: Batch
    counts: Counts
    pivots: _Pivots
    spines: list[Spine]
    changes: tuple[list[Batch], list[Batch]] = field(default_factory=lambda: ([], []))

    def add(self, delta: Batch, owed: Spine) -> Batch:
        """Put the change of values above zero on its side of the pivot; return the change of the values below zero."""
        group = group_of(self.groups, delta)
        below = not_above(delta.column(self.part.value), gather(self.pivots.values, group))
        old = owed.sums(delta)[:, 0]
        gone = (delta.weight < 0) & (old == 0)  # only deletions are looked up in a heap; insertions need no look-up
        for heap, side in ((_LOW, below), (_HIGH, ~below)):
            some = np.flatnonzero(gone & side)
            if len(some):
                old[some] = self._held(heap, delta.take(some))
        new = checked_sum(old.reshape(-1, 1), delta.weights)[:, 0]
        came = np.maximum(new, 0) - np.maximum(old, 0)
        change = np.zeros_like(self.counts)
        scatter_add(change, group, np.column_stack([came, np.where(below, came, 0)]))
        self.counts = checked_sum(self.counts, change)
        if int(self.counts.max(initial=0)) >= ROWS_MAX:
            raise CapacityError(f"a quantile has too many values: rows_max={ROWS_MAX}", "group by more columns")
        rows = delta.loose().with_weights(came.reshape(-1, 1))
        self._put(_LOW, rows.filter(below & (came != 0)))
        self._put(_HIGH, rows.filter(~below & (came != 0)))
        lacking = np.minimum(new, 0) - np.minimum(old, 0)
        return delta.but(weights=lacking.reshape(-1, 1)).filter(lacking != 0)

    def _held(self, heap: int, rows: Batch) -> Counts:
        """Return the weight of each row in a heap; temporary weights number the rows, to find them again in the heap's order."""
        numbered = rows.loose().with_weights(np.arange(1, len(rows) + 1).reshape(-1, 1))
        asked = arrange(numbered, self.part.arrangements()[heap])
        found = np.empty(len(rows), np.int64)
        found[asked.weight - 1] = self.spines[heap].sums(asked)[:, 0]
        return found

    def balance(self) -> None:
        """Move rows between the heaps until the value at the place is the greatest of the low heap.

        Each round reads more rows than the round before, for the groups that may have more rows to move.
        """
        waiting = np.ones(len(self.groups), np.bool_)
        read = _FIRST_READ
        while waiting.any():
            waiting &= self._sink(waiting, read) | self._rise(waiting, read)
            read *= _GROWTH
        self._forget()

    def _rise(self, among: Mask, read: int) -> Mask:
        """Move rows from high to low where the place is not in low; return the mask of groups with perhaps more to move."""
        wanted = self.part.place.index(self.counts[:, 0])
        short = among & (self.counts[:, 1] <= wanted) & (self.counts[:, 0] > 0)
        group, rows = self._front(_HIGH, short, read)
        before = self.counts[group, 1] + _running(group, rows.weight) - rows.weight
        moving = _prefix(group, before <= wanted[group])
        moved, last = np.flatnonzero(moving), _last_of(group, moving)
        self._move(group[moved], rows.take(moved), _HIGH, _LOW)
        self.pivots = self.pivots.moved(group[last], rows.column(self.part.value).take(pa.array(last)))
        return _seen(len(among), group) & (self.counts[:, 1] <= wanted)

    def _sink(self, among: Mask, read: int) -> Mask:
        """Move rows from low to high where low has too many; return the mask of groups with perhaps more to move."""
        wanted = self.part.place.index(self.counts[:, 0])
        group, rows = self._front(_LOW, among & (self.counts[:, 1] != 0), read)
        left = self.counts[group, 1] - _running(group, rows.weight)
        gone = (self.counts[group, 0] == 0) & (rows.weight != 0)
        moving = _prefix(group, (left > wanted[group]) & ~gone)
        moved = np.flatnonzero(moving)
        lost = ~np.asarray(self.pivots.values.is_valid())  # no pivot: every row that an earlier round read has moved
        stays = _first_after(group, moving, lost)
        self._move(group[moved], rows.take(moved), _LOW, _HIGH)
        self.pivots = self.pivots.moved(group[stays], rows.column(self.part.value).take(pa.array(stays)))
        more = _seen(len(among), group) & ~_seen(len(among), group[~moving])
        self.pivots = self.pivots.without(np.flatnonzero(more))
        return more

    def _forget(self) -> None:
        """Drop the pivots of groups without any rows."""
        empty: Mask = ~np.asarray(self.counts.any(axis=1))
        group, _ = self._front(_LOW, empty, 1)
        self.pivots = self.pivots.without(np.flatnonzero(empty & ~_seen(len(empty), group)))

    def _front(self, heap: int, among: Mask, read: int) -> tuple[Positions, Batch]:
        """Return the first rows of some groups in exact order, with their group."""
        chosen = np.flatnonzero(among)
        group, rows = front(self.spines[heap], self.groups.filter(among), read)
        order = self.part.orders()[heap]
        if not in_code_order(rows, order):
            sequence = sorted_within(group, rows, order)
            group, rows = group[sequence], rows.take(sequence)
        return chosen[group], rows

    def _move(self, group: Positions, rows: Batch, source: int, target: int) -> None:
        """Move rows from one heap to the other."""
        change = np.zeros_like(self.counts)
        weight = rows.weight if target == _LOW else -rows.weight
        scatter_add(change, group, np.column_stack([np.zeros_like(weight), weight]))
        self.counts = checked_sum(self.counts, change)
        self._put(source, rows.negate())
        self._put(target, rows)

    def _put(self, heap: int, rows: Batch) -> None:
        """Add rows to a heap, and to the change that is appended at the end."""
        if len(rows):
            self.spines[heap] = self.spines[heap].with_batch(arrange(rows, self.part.arrangements()[heap]))
            self.changes[heap].append(rows)


def _running(group: Positions, weight: Counts) -> Counts:
    """Return the sum of weights up to and including each row within its group; rows are sorted by group."""
    total = np.cumsum(weight)
    starts = np.flatnonzero(begins(group))
    return np.asarray(total - np.repeat(total[starts] - weight[starts], lengths(starts, len(group))))


def _prefix(group: Positions, wanted: Mask) -> Mask:
    """Return the mask of the rows before the first row of their group that is not wanted."""
    return np.asarray(_running(group, (~wanted).astype(np.int64)) == 0)


def _last_of(group: Positions, among: Mask) -> Positions:
    """Return the last row of each group among some rows."""
    rows = np.flatnonzero(among)
    return np.asarray(rows[ends(group[rows])])


def _first_after(group: Positions, moving: Mask, lost: Mask) -> Positions:
    """Return the first row that stays, of each group in which the rows before it move or moved in an earlier round (`lost`)."""
    first = begins(group)
    after = first & lost[group]
    after[1:] |= moving[:-1] & ~first[1:]
    return np.flatnonzero(after & ~moving)


def _seen(groups: int, group: Positions) -> Mask:
    """Return the mask of the groups that have a row."""
    seen = np.zeros(groups, np.bool_)
    seen[group] = True
    return seen
