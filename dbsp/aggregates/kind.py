"""The protocol of kinds of aggregates, and the collection of their requests in a group-by.

A kind is a frozen value with three methods. Method `result` gives the type of the result for the arguments. Method
`add` requests the state: measures that are summed, or a part of its own. Method `sql` gives the call in SQL, which
plans show, and which the tests run on DuckDB. A kind is defined in one module of `dbsp.aggregates`, with the functions
that users call.
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
from dbsp.operators.groups.extremes import ExtremeMeasure, ExtremesForm
from dbsp.operators.groups.float_part import FloatCall, FloatForm, FloatPart
from dbsp.operators.groups.linear_form import Added, LinearForm
from dbsp.operators.groups.linear_part import FinishSums, LinearCall, LinearPart
from dbsp.operators.groups.part import AggregatePart
from dbsp.operators.groups.row_form import RowForm
from dbsp.operators.groups.variance_part import VarianceCall, VarianceForm, VariancePart
from dbsp.stored import stored
from dbsp.zset.schema import Column, OrderBy, Schema


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument as a type rule sees it: its text, its form in a user's code, its type and nullability."""

    text: str
    written: str
    type: pa.DataType
    nullable: bool


class AggregateKind(Protocol):
    """A kind of aggregate; `keeps_nulls` says that a null argument is a value, so that a filter must be passed separately."""

    @property
    def keeps_nulls(self) -> bool:
        """Return whether rows with a null argument take part."""
        ...

    def result(self, name: str, arguments: tuple[Argument, ...]) -> Column:
        """Return the result column; raise `CircuitError` for arguments that the kind does not accept."""
        ...

    def add(self, call: AggregateCall, asked: Asked) -> None:
        """Request the measures or the part that the aggregate is computed from."""
        ...

    def sql(self, arguments: Sequence[str]) -> str:
        """Return the call in SQL."""
        ...


@stored("AggregateCall", "name kind columns order where")
@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateCall:
    """An aggregate of a group-by: its name, its kind, the input columns it reads, and the order and filter of the rows."""

    name: str
    kind: AggregateKind
    columns: tuple[str, ...] = ()
    order: tuple[OrderBy, ...] = ()
    where: str | None = None

    def __str__(self) -> str:
        """Return the call as a reader would write it."""
        text = self.kind.sql(self.columns)
        if self.order:
            text = f"{text[:-1]} order by {', '.join(map(str, self.order))})"
        return f"{self.name} = {text}" + (f" filter (where {self.where})" if self.where else "")

    @property
    def function(self) -> str:
        """Return the function's name in SQL."""
        return self.kind.sql(("",) * len(self.columns)).partition("(")[0]

    @property
    def column(self) -> str | None:
        """Return the first argument, or None."""
        return self.columns[0] if self.columns else None

    @property
    def reads(self) -> frozenset[str]:
        """Return all input columns that the aggregate reads."""
        where = [] if self.where is None else [self.where]
        return frozenset([*self.columns, *(by.column for by in self.order), *where])


@dataclass(frozen=True, slots=True)
class VectorCall:
    """Columns of vectors that a user's function computes from the columns `reads`, which it gets under the names `shown`."""

    function: UserFunction
    reads: tuple[str, ...]
    shown: tuple[str, ...]
    where: str | None
    names: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Asked:
    """The requests of the aggregates of one group-by; equal measures and float columns are computed once.

    With `appends` no row is ever deleted.
    """

    keys: Schema
    rows: Schema
    result: Schema
    appends: bool = False
    vectors: list[VectorCall] = field(default_factory=list)
    _measures: dict[Added | ExtremeMeasure, None] = field(default_factory=dict)
    _linear: list[tuple[str, tuple[Added | ExtremeMeasure | None, ...], FinishSums]] = field(default_factory=list)
    _floats: dict[str, int] = field(default_factory=dict)
    _float_calls: list[FloatCall] = field(default_factory=list)
    _variances: dict[str, list[VarianceCall]] = field(default_factory=dict)
    _pairs: dict[tuple[str, str], list[PairCall]] = field(default_factory=dict)
    _distinct: dict[RowForm, list[AggregateCall]] = field(default_factory=dict)
    _others: list[AggregatePart] = field(default_factory=list)

    def linear(self, name: str, measures: Sequence[Added | ExtremeMeasure | None], finish: FinishSums) -> None:
        """Request a result made of sums, or of an extreme if no row is ever deleted; the measure None is the number of rows."""
        self._measures.update(dict.fromkeys(measure for measure in measures if measure is not None))
        self._linear.append((name, tuple(measures), finish))

    def float_sum(self, name: str, function: str, column: str) -> None:
        """Request the exact sum or mean of floats."""
        self._float_calls.append(FloatCall(name, function, self._floats.setdefault(column, len(self._floats))))

    def float_variance(self, call: VarianceCall, column: str) -> None:
        """Request an exact variance of floats."""
        self._variances.setdefault(column, []).append(call)

    def pairs(self, call: PairCall, x: str, y: str) -> None:
        """Request an exact function of pairs of numbers."""
        self._pairs.setdefault((x, y), []).append(call)

    def distinct(self, call: AggregateCall) -> None:
        """Request a distinct count of a column, perhaps with a filter."""
        self._distinct.setdefault(replace(self.row_form(call, present=True), where=None), []).append(call)

    def part(self, part: AggregatePart) -> None:
        """Request a part that no other aggregate shares."""
        self._others.append(part)

    def row_form(self, call: AggregateCall, present: bool) -> RowForm:
        """Return the form of rows with the call's arguments and order columns; `present` selects rows with non-null arguments."""
        names = dict.fromkeys([*call.columns, *(by.column for by in call.order)])
        columns = tuple(self.rows[name] for name in names)
        return RowForm(keys=self.keys, columns=columns, present=call.columns if present else (), where=call.where)

    def parts(self) -> tuple[LinearPart, tuple[AggregatePart, ...]]:
        """Return the linear part, and the others."""
        form = self._sums()
        calls = tuple(
            LinearCall(name=name, type=self.result[name].type, slots=tuple(map(form.slots, measures)), finish=finish)
            for name, measures, finish in self._linear
        )
        others: list[AggregatePart] = []
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
        """Return the form of the sums of all measures, and of the extremes."""
        extremes = tuple(each for each in self._measures if isinstance(each, ExtremeMeasure))
        sums = tuple(each for each in self._measures if not isinstance(each, ExtremeMeasure))
        return ExtremesForm(linear=LinearForm(keys=self.keys, measures=sums), extremes=extremes)


def _distinct(values: RowForm, calls: Sequence[AggregateCall]) -> DistinctPart:
    """Return the part with the distinct counts of one column."""
    names, filters = tuple(call.name for call in calls), tuple(call.where for call in calls)
    return DistinctPart(counts=names, values=values, filters=filters)
