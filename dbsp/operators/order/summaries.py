"""Summaries: a bounded description of rows that are in an aggregate's frame and are not read.

**Law** the summary of some rows is that of the summaries of their parts, however the rows are cut into parts. An aggregate of a
frame is the same, to the bit, whether it reads rows or their summary.

A summary is a vector of integers that add up, or the values of the row that is first in an order. The integers are counts,
limbs of whole numbers, or bins of floats, of their squares and of their products. Aggregates that need all values (distinct
counts, modes, quantiles) have no summary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.operators.groups.covariance_part import PairForm
from dbsp.operators.groups.float_part import FloatForm
from dbsp.operators.groups.limbs import limbs_of, square_limbs_of
from dbsp.operators.groups.linear_form import Measure
from dbsp.operators.groups.measures import Bits, Limbs, Squares, Valid, bits_of
from dbsp.operators.groups.variance_part import VarianceForm
from dbsp.operators.order.value_order import Way, all_valid, sorted_by
from dbsp.operators.order.window_calls import ARGS, BITS, FIRSTS, GREATEST, LEAST, VARIANCES, WindowCall
from dbsp.operators.order.window_places import I64, Beyond, Mask
from dbsp.zset.arrays import bool_values, from_values, gather, join, value_view
from dbsp.zset.batch import Batch
from dbsp.zset.kernels import floats, scatter_add, variances
from dbsp.zset.schema import INT64, Column, Schema

_GROUP = "__group"
_GROUPS = Schema((Column(_GROUP, INT64, nullable=False),))


class SummaryForm(Protocol):
    """The form in which the bins of each group's values are summed."""

    def of(self, batch: Batch) -> Batch:
        """Return rows of (group, bin) with their sums."""
        ...


@dataclass(frozen=True, slots=True)
class RowCount:
    """Measure 1 for each row."""

    @property
    def slots(self) -> int:
        """Return 1: a count needs one slot."""
        return 1

    def of(self, batch: Batch) -> list[I64]:
        """Return the weights of the rows."""
        return [batch.weight]


@dataclass(frozen=True, slots=True)
class Measured:
    """The sums of measures, in consecutive slots."""

    measures: tuple[Measure, ...]

    @property
    def slots(self) -> int:
        """Return the number of slots of all measures."""
        return sum(measure.slots for measure in self.measures)

    def of(self, rows: Batch, group: I64, groups: int) -> I64:
        """Return the sums of each group's rows."""
        made = np.zeros((groups, self.slots), np.int64)
        terms = [term for measure in self.measures for term in measure.of(rows)]
        scatter_add(made, group, np.column_stack(terms))
        return made


@dataclass(frozen=True, slots=True)
class Binned:
    """The bins of `sums` sums of floats, one sum after another; each sum has `specials` slots and then `bins` slots."""

    columns: tuple[str, ...]
    form: SummaryForm
    sums: int
    specials: int
    bins: int

    @property
    def slots(self) -> int:
        """Return the number of slots of all sums."""
        return self.sums * (self.specials + self.bins)

    def of(self, rows: Batch, group: I64, groups: int) -> I64:
        """Return the bins of each group's rows."""
        names = tuple(dict.fromkeys(self.columns))
        schema = Schema((*_GROUPS.columns, *(rows.schema[name] for name in names)))
        columns = from_values(group, INT64), *(rows.column(name) for name in names)
        found = self.form.of(Batch(schema=schema, columns=columns, weights=rows.weights))
        made = np.zeros((groups, self.sums, self.specials + self.bins), np.int64)
        place = value_view(found.columns[1]).astype(np.int64) + self.specials
        made[value_view(found.columns[0]), :, place] = found.weights
        return made.reshape(groups, self.slots)


@dataclass(frozen=True, slots=True)
class First:
    """The values of `columns` in the first row by these columns; the aggregate's result is the value of the last column.

    Rows with a null in one of the columns are ignored, unless `nulls` is set. With `where`, the first column selects the rows.
    """

    columns: tuple[str, ...]
    ways: tuple[Way, ...]
    nulls: bool = False
    where: bool = False

    @property
    def slots(self) -> int:
        """Return 0: the first row needs no sums."""
        return 0

    def part(self, columns: Sequence[pa.Array]) -> Mask:
        """Return the mask of the rows that may be the first row."""
        if not self.nulls:
            return all_valid(columns)
        return all_valid(columns[:1]) & bool_values(columns[0]) if self.where else np.ones(len(columns[0]), np.bool_)

    def of(self, columns: Sequence[pa.Array], group: I64, groups: int) -> I64:
        """Return the first row of each group; -1 for a group without such a row."""
        order = sorted_by(columns, self.part(columns), self.ways)
        found = np.full(groups, -1, np.int64)
        found[group[order[::-1]]] = order[::-1]
        return found


Summary = Measured | Binned | First


def summary_of(call: WindowCall, schema: Schema) -> Summary:
    """Return the kind of summary that represents rows for the call, whose function is in `SUMMED`."""
    if call.column is None:
        return Measured((RowCount(),))
    column = call.column
    if call.function in FIRSTS:
        return _first_in_order(call, column)
    if call.function in (*LEAST, *GREATEST):
        return First((column,), ((call.function in GREATEST, False),))
    if call.other is None:
        return _of_values(call.function, column, schema[column].type)
    if call.function in ARGS:
        return First((call.other, column), ((call.function == "arg_max", False), (False, False)))
    pairs = PairForm(keys=_GROUPS, x=call.other, y=column)
    return Binned((column, call.other), pairs, 5, variances.SPECIALS, variances.BINS)


def _of_values(function: str, column: str, type_: pa.DataType) -> Measured | Binned:
    """Return the summary of sums over the values of one column."""
    varies = function in VARIANCES
    if pa.types.is_floating(type_) and function != "count":
        if varies:
            return Binned((column,), VarianceForm(keys=_GROUPS, column=column), 2, variances.SPECIALS, variances.BINS)
        return Binned((column,), FloatForm(keys=_GROUPS, columns=(column,)), 1, floats.SPECIALS, floats.BINS)
    measures: list[Measure] = [Valid(column)]
    if function in BITS:
        measures.append(Bits(column, bits_of(type_)))
    elif function != "count":
        measures.append(Limbs(column, limbs_of(type_)))
    if varies:
        measures.append(Squares(column, square_limbs_of(type_)))
    return Measured(tuple(measures))


def _first_in_order(call: WindowCall, column: str) -> First:
    """Return the summary of the first row by the call's own order, ties by the value.

    The last row is the first one of the reverse order.
    """
    ways = [*((by.descending, by.nulls_first) for by in call.by), (False, False)]
    if call.function == "last":
        ways = [(not descending, not nulls_first) for descending, nulls_first in ways]
    names = (*(by.column for by in call.by), column)
    if call.where is None:
        return First(names, tuple(ways), nulls=True)
    return First((call.where, *names), ((True, False), *ways), nulls=True, where=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summaries:
    """The summaries of groups of rows for several calls: all sums in one row (groups, slots), each value as a column."""

    sums: I64
    values: tuple[pa.Array, ...]

    def take(self, groups: I64) -> Summaries:
        """Return the summaries of some groups."""
        return Summaries(sums=self.sums[groups], values=tuple(gather(column, groups) for column in self.values))

    def and_of(self, more: Summaries) -> Summaries:
        """Return the summaries of these groups, followed by those of others."""
        values = [join(both) for both in zip(self.values, more.values, strict=True)]
        return Summaries(sums=np.concatenate([self.sums, more.sums]), values=tuple(values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Summing:
    """The kinds of summary for each of some calls, by the calls' names."""

    names: tuple[str, ...]
    kinds: tuple[Summary, ...]
    rows: Schema

    @staticmethod
    def of_calls(calls: Sequence[WindowCall], rows: Schema) -> Summing:
        """Return the kinds of summary for the calls that run to an end of the partition."""
        some = [call for call in calls if call.runs]
        return Summing(
            names=tuple(call.name for call in some), kinds=tuple(summary_of(call, rows) for call in some), rows=rows
        )

    @property
    def slots(self) -> int:
        """Return the number of sums."""
        return sum(kind.slots for kind in self.kinds)

    @property
    def types(self) -> list[pa.DataType]:
        """Return the types of the values."""
        return [self.rows[name].type for kind in self.kinds if isinstance(kind, First) for name in kind.columns]

    def of(self, rows: Batch, group: I64, groups: int) -> Summaries:
        """Return the summary of each group's rows."""
        sums = [kind.of(rows, group, groups) for kind in self.kinds if not isinstance(kind, First)]
        values = [rows.column(name) for kind in self.kinds if isinstance(kind, First) for name in kind.columns]
        summed = np.concatenate(sums, axis=1) if sums else np.zeros((groups, 0), np.int64)
        return Summaries(sums=summed, values=self._first(values, group, groups))

    def merged(self, parts: Summaries, group: I64, groups: int) -> Summaries:
        """Return the summary of each group's parts."""
        sums = np.zeros((groups, self.slots), np.int64)
        scatter_add(sums, group, np.ascontiguousarray(parts.sums))
        return Summaries(sums=sums, values=self._first(parts.values, group, groups))

    def _first(self, columns: Sequence[pa.Array], group: I64, groups: int) -> tuple[pa.Array, ...]:
        """Return the columns of each group's first row, for every aggregate whose summary is a first row (`First`)."""
        made: list[pa.Array] = []
        for kind in self.kinds:
            if isinstance(kind, First):
                mine = columns[len(made) : len(made) + len(kind.columns)]
                found = kind.of(mine, group, groups)
                at = pa.array(found, INT64, mask=found < 0)
                made += [pc.take(column, at) for column in mine]
        return tuple(made)

    def beyond(self, found: Summaries, which: I64) -> dict[str, Beyond]:
        """Return for each call the summary of the rows beyond each segment: one of the groups, or -1 for no rows."""
        nothing = Summaries(
            sums=np.zeros((1, self.slots), np.int64), values=tuple(pa.nulls(1, type_) for type_ in self.types)
        )
        rows, made, slot, value = nothing.and_of(found), {}, 0, 0
        for name, kind in zip(self.names, self.kinds, strict=True):
            kept = len(kind.columns) if isinstance(kind, First) else 0
            sums = np.ascontiguousarray(rows.sums[:, slot : slot + kind.slots])
            made[name] = Beyond(which=which + 1, sums=sums, values=rows.values[value : value + kept])
            slot, value = slot + kind.slots, value + kept
        return made
