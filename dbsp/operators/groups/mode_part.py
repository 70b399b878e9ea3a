"""The most frequent value of a group.

**Law** of the values with positive weight, the one with the greatest weight; of several such values, the least.
**State** per group the different values with their weights; the same values sorted by weight; and the mode itself.
**Cost** one look-up per changed value, as long as the mode gains, stays, or is passed by a value that changed too. No other
value can have passed it. The most frequent values, with all ties, are read only in the remaining case. In that case the mode
loses, and no changed value reaches its former weight.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.operators.groups.first_part import first_rows
from dbsp.operators.groups.group_rows import rows_of
from dbsp.operators.groups.linear_part import checked_sum
from dbsp.operators.groups.part import Positions, Values, group_of
from dbsp.operators.groups.value_part import ValuePart
from dbsp.operators.operator import State
from dbsp.stored import stored
from dbsp.trace.spine import Spine
from dbsp.zset.arrays import from_values, gather, value_view
from dbsp.zset.batch import Batch, arrange, concat
from dbsp.zset.batch_rows import sort_rows
from dbsp.zset.runs import begins
from dbsp.zset.schema import INT64, Arrangement, Column, OrderBy, Schema

Counts = npt.NDArray[np.int64]
_TIMES, _GROUP, _PLACE = "__times__", "__group__", "__place__"
_VALUES, _RANKED, _MODES = range(3)


@stored("ModePart", "name text values")
@dataclass(frozen=True, slots=True, kw_only=True)
class ModePart(ValuePart):
    """The most frequent value that is not null."""

    @property
    def order(self) -> tuple[OrderBy, ...]:
        """Return the order of frequency: the most frequent first, then the least value."""
        return OrderBy(_TIMES, descending=True), OrderBy(self.value)

    def arrangements(self) -> tuple[Arrangement, ...]:
        """Return the arrangements of the three traces, of which the first and the last have the frequency as weight.

        They are the values of each group; the values with their frequency as a column, the most frequent first; the mode.
        """
        schema, key = self.values.schema, self.values.keys.names
        ranked = Schema((*schema.columns, Column(_TIMES, INT64, nullable=False)))
        plain = Arrangement(schema=schema, key=key)
        return plain, Arrangement(schema=ranked, key=key, order=self.order), plain

    def step(self, state: State, groups: Batch, delta: Batch) -> tuple[Values, Values]:
        """Return the mode before and after the change."""
        group, modes = rows_of(state.spine(_MODES), groups)
        old = _One(group=group, values=modes.columns[0], times=modes.weight)
        if len(delta) == 0:
            return old.shown(len(groups)), old.shown(len(groups))
        counted = state.spine(_VALUES)
        before = counted.sums(delta)
        after = checked_sum(before, delta.weights)
        ranked = self._ranked(delta, before[:, 0], after[:, 0])
        new = self._best(groups, old, counted.with_batch(delta), delta, after[:, 0])
        behind = new.group[new.times < 0]
        if len(behind):
            new = new.without(behind).and_(self._searched(state.spine(_RANKED).with_batch(ranked), groups, behind))
        moved = arrange(concat([self._rows(groups, old).negate(), self._rows(groups, new)], self.values.schema),
                        self.arrangements()[_MODES])  # fmt: skip
        for index, batch in enumerate((delta, ranked, moved)):
            if len(batch):
                state.append(index, batch)
        return old.shown(len(groups)), new.shown(len(groups))

    def _ranked(self, delta: Batch, before: Counts, after: Counts) -> Batch:
        """Return the change of the trace by frequency, for the changed values."""
        arrangement = self.arrangements()[_RANKED]
        parts = []
        for times, sign in ((before, -1), (after, 1)):
            there = np.flatnonzero((times > 0) & (before != after))
            columns = (*(gather(column, there) for column in delta.columns), from_values(times[there], INT64))
            weights = np.full((len(there), 1), sign, np.int64)
            parts.append(Batch(schema=arrangement.schema, columns=columns, weights=weights))
        return arrange(concat(parts, arrangement.schema), arrangement)

    def _best(self, groups: Batch, old: _One, counted: Spine, delta: Batch, after: Counts) -> _One:
        """Return the best of the changed values and the old mode; its times are -1 if a value outside these may be better.

        The old mode is a row twice: with its present weight, and with its former weight as a marker. A row that sorts before the
        marker is the mode. If the marker is first, the old mode was better than all these rows now are.
        """
        held = arrange(self._rows(groups, old).with_weights(np.ones((len(old.group), 1), np.int64)),
                       self.arrangements()[_VALUES])  # fmt: skip
        times = counted.sums(held)[:, 0]
        some, still = np.flatnonzero(after > 0), np.flatnonzero(times > 0)
        group = np.concatenate([group_of(groups, delta)[some], group_of(groups, held)[still], old.group])
        place = np.repeat(np.arange(3), [len(some), len(still), len(old.group)])
        columns = [gather(delta.column(self.value), some), gather(held.column(self.value), still), old.values]
        schema = Schema(
            (Column(_GROUP, INT64), Column(_TIMES, INT64), self.values.values.columns[0], Column(_PLACE, INT64))
        )
        each = (
            from_values(group, INT64), from_values(np.concatenate([after[some], times[still], old.times]), INT64),
            pa.concat_arrays(columns), from_values(place, INT64),
        )  # fmt: skip
        rows = Batch(schema=schema, columns=each, weights=np.ones((len(group), 1), np.int64))
        rows = rows.take(sort_rows(rows, (OrderBy(_GROUP), *self.order, OrderBy(_PLACE))))
        group = np.array(value_view(rows.columns[0]))
        first = np.flatnonzero(begins(group))
        best = rows.take(first)
        former = value_view(best.column(_PLACE)) == 2  # noqa: PLR2004 (the place of what was)
        return _One(
            group=group[first],
            values=best.column(self.value),
            times=np.where(former, -1, value_view(best.column(_TIMES))),
        )

    def _searched(self, spine: Spine, groups: Batch, behind: Positions) -> _One:
        """Return the modes of some groups, read from the trace by frequency."""
        some = np.zeros(len(groups), np.bool_)
        some[behind] = True
        group, rows = first_rows(spine, groups.filter(some), self.order)
        times = np.array(value_view(rows.column(_TIMES)))
        return _One(group=np.flatnonzero(some)[group], values=rows.column(self.value), times=times)

    def _rows(self, groups: Batch, modes: _One) -> Batch:
        """Return modes as rows of their groups, with their frequency as weight."""
        columns = (*(gather(key, modes.group) for key in groups.columns), modes.values)
        return Batch(schema=self.values.schema, columns=columns, weights=modes.times.reshape(-1, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class _One:
    """The mode of each of some groups (`group` has their indices), with its frequency in `times`."""

    group: Positions
    values: pa.Array
    times: Counts

    def without(self, group: Positions) -> _One:
        """Return the values of the groups other than these."""
        kept = np.flatnonzero(~np.isin(self.group, group))
        return replace(self, group=self.group[kept], values=gather(self.values, kept), times=self.times[kept])

    def and_(self, other: _One) -> _One:
        """Return the values of both sets of groups."""
        return _One(
            group=np.concatenate([self.group, other.group]), values=pa.concat_arrays([self.values, other.values]),
            times=np.concatenate([self.times, other.times]),
        )  # fmt: skip

    def shown(self, groups: int) -> Values:
        """Return one value per group, null where there is none."""
        at, absent = np.zeros(groups, np.int64), np.ones(groups, np.bool_)
        at[self.group], absent[self.group] = np.arange(len(self.group)), False
        return Values(columns=(pc.take(self.values, pa.array(at, mask=absent)),))
