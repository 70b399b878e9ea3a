"""What a kind of aggregate says of itself, and what a group-by collects of its aggregates.

A kind is a frozen value. It says which type its result has for which arguments (`result`), how it is kept (`add`: measures
that are summed, or a part of its own), and what it is called in SQL (`sql`), which is what plans show and, in the tests, what
DuckDB is asked. A kind is one module of `dbsp.aggregates` with all of this and the functions that users call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import starmap
from typing import Protocol

import pyarrow as pa

from dbsp.expr.functions import UserFunction
from dbsp.operators.groups.covariance_part import CovariancePart, PairCall, PairForm
from dbsp.operators.groups.distinct_part import DistinctPart
from dbsp.operators.groups.ends_part import paired
from dbsp.operators.groups.extremes import Extreme, ExtremesForm
from dbsp.operators.groups.float_part import FloatCall, FloatForm, FloatPart
from dbsp.operators.groups.linear_form import Added, LinearForm
from dbsp.operators.groups.linear_part import Finish, LinearCall, LinearPart
from dbsp.operators.groups.part import Part
from dbsp.operators.groups.row_form import RowForm
from dbsp.operators.groups.variance_part import VarianceCall, VarianceForm, VariancePart
from dbsp.stored import stored
from dbsp.zset.schema import Column, OrderBy, Schema


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument as a type rule sees it: its text, how a user would write it, its type and whether it may be null."""

    text: str
    written: str
    type: pa.DataType
    nullable: bool


class Kind(Protocol):
    """One kind of aggregate; `keeps_nulls` if a null argument is a value to it, so that a filter must say which rows count."""

    @property
    def keeps_nulls(self) -> bool:
        """Whether rows with a null argument take part."""
        ...

    def result(self, name: str, arguments: tuple[Argument, ...]) -> Column:
        """The result column; `CircuitError` if it does not work on these arguments."""
        ...

    def add(self, call: AggregateCall, asked: Asked) -> None:
        """Ask for what it is kept by."""
        ...

    def sql(self, arguments: Sequence[str]) -> str:
        """The call in SQL."""
        ...


@stored("AggregateCall", "name kind columns order where")
@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateCall:
    """One aggregate of a group-by: its name, its kind, the input columns it reads, the order and filter it reads them in."""

    name: str
    kind: Kind
    columns: tuple[str, ...] = ()
    order: tuple[OrderBy, ...] = ()
    where: str | None = None

    def __str__(self) -> str:
        """As a reader would write it."""
        text = self.kind.sql(self.columns)
        if self.order:
            text = f"{text[:-1]} order by {', '.join(map(str, self.order))})"
        return f"{self.name} = {text}" + (f" filter (where {self.where})" if self.where else "")

    @property
    def function(self) -> str:
        """What SQL calls it."""
        return self.kind.sql(("",) * len(self.columns)).partition("(")[0]

    @property
    def column(self) -> str | None:
        """Its first argument."""
        return self.columns[0] if self.columns else None

    @property
    def reads(self) -> frozenset[str]:
        """All input columns it needs."""
        where = [] if self.where is None else [self.where]
        return frozenset([*self.columns, *(by.column for by in self.order), *where])


@dataclass(frozen=True, slots=True)
class VectorCall:
    """Columns of vectors that a user's function makes of the columns `reads`, which it sees as `shown`."""

    function: UserFunction
    reads: tuple[str, ...]
    shown: tuple[str, ...]
    where: str | None
    names: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Asked:
    """What the aggregates of one group-by ask for; equal measures and floats are kept once. With `appends` no row ever goes."""

    keys: Schema
    rows: Schema
    result: Schema
    appends: bool = False
    vectors: list[VectorCall] = field(default_factory=list)
    _measures: dict[Added | Extreme, None] = field(default_factory=dict)
    _linear: list[tuple[str, tuple[Added | Extreme | None, ...], Finish]] = field(default_factory=list)
    _floats: dict[str, int] = field(default_factory=dict)
    _float_calls: list[FloatCall] = field(default_factory=list)
    _variances: dict[str, list[VarianceCall]] = field(default_factory=dict)
    _pairs: dict[tuple[str, str], list[PairCall]] = field(default_factory=dict)
    _distinct: dict[RowForm, list[AggregateCall]] = field(default_factory=dict)
    _others: list[Part] = field(default_factory=list)

    def linear(self, name: str, measures: Sequence[Added | Extreme | None], finish: Finish) -> None:
        """A result made of sums, or of an extreme where no row ever goes; the measure None is the number of rows."""
        self._measures.update(dict.fromkeys(measure for measure in measures if measure is not None))
        self._linear.append((name, tuple(measures), finish))

    def float_sum(self, name: str, function: str, column: str) -> None:
        """The exact sum or mean of floats."""
        self._float_calls.append(FloatCall(name, function, self._floats.setdefault(column, len(self._floats))))

    def float_variance(self, call: VarianceCall, column: str) -> None:
        """An exact variance of floats."""
        self._variances.setdefault(column, []).append(call)

    def pairs(self, call: PairCall, x: str, y: str) -> None:
        """An exact function of pairs of numbers."""
        self._pairs.setdefault((x, y), []).append(call)

    def distinct(self, call: AggregateCall) -> None:
        """A distinct count of a column, perhaps under a filter."""
        self._distinct.setdefault(replace(self.row_form(call, present=True), where=None), []).append(call)

    def part(self, part: Part) -> None:
        """A part of its own."""
        self._others.append(part)

    def row_form(self, call: AggregateCall, present: bool) -> RowForm:
        """Rows with the call's arguments and its order; with `present` those alone whose arguments are not null."""
        names = dict.fromkeys([*call.columns, *(by.column for by in call.order)])
        columns = tuple(self.rows[name] for name in names)
        return RowForm(keys=self.keys, columns=columns, present=call.columns if present else (), where=call.where)

    def parts(self) -> tuple[LinearPart, tuple[Part, ...]]:
        """The linear part, and the others."""
        form = self._sums()
        calls = tuple(
            LinearCall(name=name, type=self.result[name].type, slots=tuple(map(form.slots, measures)), finish=finish)
            for name, measures, finish in self._linear
        )
        others: list[Part] = []
        if self._float_calls:
            bins = FloatForm(keys=self.keys, columns=tuple(self._floats))
            others.append(FloatPart(bins=bins, calls=tuple(self._float_calls)))
        for column, variances in self._variances.items():
            others.append(VariancePart(bins=VarianceForm(keys=self.keys, column=column), calls=tuple(variances)))
        for (x, y), pairs in self._pairs.items():
            others.append(CovariancePart(bins=PairForm(keys=self.keys, x=x, y=y), calls=tuple(pairs)))
        return LinearPart(rows=form if form.extremes else form.linear, calls=calls), (
            *others,
            *paired(self._others),
            *starmap(_distinct, self._distinct.items()),
        )

    def _sums(self) -> ExtremesForm:
        """The sums of all measures, and the extremes."""
        extremes = tuple(each for each in self._measures if isinstance(each, Extreme))
        sums = tuple(each for each in self._measures if not isinstance(each, Extreme))
        return ExtremesForm(linear=LinearForm(keys=self.keys, measures=sums), extremes=extremes)


def _distinct(values: RowForm, calls: Sequence[AggregateCall]) -> DistinctPart:
    """The distinct counts of one column."""
    names, filters = tuple(call.name for call in calls), tuple(call.where for call in calls)
    return DistinctPart(counts=names, values=values, filters=filters)
