"""Min and max inside a recursion: the extreme of each group as a function of the iteration.

**Law** Let g(s, r) be the rows of a group, integrated over the steps up to s and the iterations up to r.
The group's row at (s, r) contains the extremes of g(s, r). The output is its change against the previous step and iteration.

**State** The rows of each group, with the iterations in which they were inserted and deleted.

**Cost** Per changed group all rows of the group. The least value depends on the iteration, so no single sort order gives the
extreme for all iterations. A group contains the rows that one key gets from its neighbours in the loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.operators.iterations.histories import ITERATION, Histories, histories, iterations_of
from dbsp.operators.operator import Operator, State, StepContext, Time
from dbsp.stored import stored
from dbsp.zset.arrays import from_values, valid_rows
from dbsp.zset.batch import Batch, arrange, concat, consolidate
from dbsp.zset.batch_rows import sort_rows
from dbsp.zset.equality import equal_columns
from dbsp.zset.kernels import expand_ranges
from dbsp.zset.schema import INT64, Arrangement, Column, OrderBy, Schema

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Spans = tuple[Integers, Integers, Integers]
_NONE = np.int64(-1)
_RUN, _AT = "__run__", "__at__"


@stored("Extreme", "name column descending")
@dataclass(frozen=True, slots=True, kw_only=True)
class IterationExtreme:
    """A min or max aggregate with its output name and input column."""

    name: str
    column: str
    descending: bool

    def __str__(self) -> str:
        """Return the aggregate as text."""
        return f"{self.name} = {'max' if self.descending else 'min'}({self.column})"


@stored("RoundExtremes", "rows keys extremes schema")
@dataclass(frozen=True, slots=True, kw_only=True)
class ExtremesOverIterations(Operator):
    """Aggregate each group's extremes by iteration.

    Output one row per group and iteration in which the group's row changes: the keys, the extremes, the iteration.
    """

    depends_on_time: ClassVar[Time] = Time.NOTHING
    rows: Schema
    keys: tuple[str, ...]
    extremes: tuple[IterationExtreme, ...]
    schema: Schema

    def __str__(self) -> str:
        """Return the keys and the aggregates as text."""
        return f"group by ({', '.join(self.keys)}) {', '.join(map(str, self.extremes))} by round".replace("  ", " ")

    def arrangements(self) -> tuple[Arrangement, ...]:
        """Return the arrangement of the input rows by group."""
        return (Arrangement(schema=self.rows, key=self.keys),)

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """Return the changes of the groups' rows, dated with the iterations at which they change."""
        (arrangement,) = self.arrangements()
        delta = arrange(inputs[0], arrangement)
        if len(delta) == 0:
            return Batch.empty(self.schema)
        found = histories(state.spine(0), delta, self.keys)
        state.append(0, delta)
        by_value, same = _by_value(found)
        old = self._chosen(found, _spans(found, by_value, found.before[by_value, 0], same))
        new = self._chosen(found, _spans(found, by_value, (found.before + found.change)[by_value, 0], same))
        return self._change(found, old, new)

    def _chosen(self, found: Histories, spans: Spans) -> Integers:
        """Return per aggregate and moment the index of the row with the extreme, or -1 if there is none.

        The last line is 0 at moments when the group has a row, and -1 at others.
        """
        held, first, last = spans
        lines = [_least(found, held, first, last, extreme) for extreme in self.extremes]
        alive = np.full(found.moments, _NONE)
        _, moment = expand_ranges(first, last)
        alive[moment] = 0
        return np.stack([*lines, alive])

    def _change(self, found: Histories, old: Integers, new: Integers) -> Batch:
        """Return the rows' double difference over steps and iterations: new(r) - new(r - 1) - old(r) + old(r - 1).

        Only moments where old and new differ, or differed at the moment before, contribute.
        """
        at = np.arange(found.moments)
        before = np.where(found.begins, _NONE, at - 1)
        differs = (old != new).any(axis=0)
        touched = np.flatnonzero(differs | (differs[before] & (before >= 0)))
        earlier = before[touched]
        later, behind = touched[earlier >= 0], earlier[earlier >= 0]
        parts = [
            self._rows(found, new, touched, touched, 1),
            self._rows(found, old, touched, touched, -1),
            self._rows(found, new, behind, later, -1),
            self._rows(found, old, behind, later, 1),
        ]
        whole = consolidate(concat(parts, self.schema))
        return Batch(schema=self.schema, columns=whole.columns, weights=whole.weights)

    def _rows(self, found: Histories, chosen: Integers, at: Integers, shown: Integers, weight: int) -> Batch:
        """Return the groups' rows as of the moments `at`, dated with the moments `shown`; skip groups without rows."""
        lives = chosen[-1, at] >= 0
        at, shown = at[lives], shown[lives]
        place = found.last_rows
        columns = {name: found.rows.column(name).take(pa.array(place[at])) for name in self.keys}
        for extreme, line in zip(self.extremes, chosen[:-1], strict=True):
            rows = line[at]
            wanted = pa.array(np.where(rows >= 0, rows, 0), mask=rows < 0)
            columns[extreme.name] = pc.take(found.rows.column(extreme.column), wanted)
        columns[ITERATION] = from_values(iterations_of(found.rows)[place[shown]], INT64)
        weights = np.full((len(at), 1), weight, np.int64)
        return Batch(schema=self.schema, columns=tuple(columns[n] for n in self.schema.names), weights=weights)


def _by_value(found: Histories) -> tuple[Integers, Mask]:
    """Return the order that sorts each group's rows by value and then iteration, and the mask of repeated values."""
    names = tuple(name for name in found.rows.schema.names if name != ITERATION)
    schema = Schema((Column(_RUN, INT64, nullable=False), *(found.rows.schema[n] for n in names), Column(_AT, INT64)))
    columns = (
        from_values(found.run, INT64),
        *(found.rows.column(name) for name in names),
        from_values(np.arange(len(found.rows)), INT64),
    )
    listed = Batch.of(schema, columns)
    order = sort_rows(listed, tuple(OrderBy(name) for name in schema.names))
    at = np.arange(1, len(order))
    compared = list(columns[:-1])
    same = equal_columns(compared, order[at], compared, order[at - 1])
    return order, np.concatenate([np.zeros(min(1, len(order)), np.bool_), same])


def _spans(found: Histories, row: Integers, weight: Integers, same: Mask) -> Spans:
    """Return the spans in which values exist: (row, first moment, moment after the last).

    A span is a time during which the summed weight of a value is positive. A value may be inserted at one iteration and deleted
    at a later one. Equal rows of a group are one value.
    """
    if len(row) == 0:
        return row, row, row
    starts = np.flatnonzero(~same)
    value = np.cumsum(~same) - 1
    total = np.cumsum(weight)
    total = total - (total - weight)[starts][value]
    moment = found.moment[row]
    ends = np.append(np.flatnonzero(np.diff(found.run[found.last_rows])) + 1, found.moments)  # after each group's last
    group_end = ends[found.run[row]]
    until = np.append(moment[1:], 0)
    until = np.where(np.append(same[1:], False), until, group_end)
    positive = (total > 0) & (until > moment)
    return row[positive], moment[positive], until[positive]


def _least(found: Histories, held: Integers, first: Integers, last: Integers, extreme: IterationExtreme) -> Integers:
    """Return per moment the index of the row with the extreme value among the existing rows, ignoring nulls; -1 for none."""
    chosen = np.full(found.moments, _NONE)
    valid = valid_rows(found.rows.column(extreme.column))
    if valid is not None:
        some = valid[held]
        held, first, last = held[some], first[some], last[some]
    if len(held) == 0:
        return chosen
    column = found.rows.schema[extreme.column]
    values = Batch.of(
        Schema((Column(column.name, column.type),)), (found.rows.column(column.name).take(pa.array(held)),)
    )
    order = sort_rows(values, (OrderBy(column.name, descending=extreme.descending),))[::-1]
    spans, moment = expand_ranges(first[order], last[order])
    chosen[moment] = held[order][spans]  # the best value is written last
    return chosen
