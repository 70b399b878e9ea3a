"""Aggregates of how the values of a group are spread: skewness, kurtosis, histogram.

Each is computed anew from the sorted values of a changed group. So a result depends on the current values alone,
whatever was inserted and deleted before, and in whatever steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbsp.aggregates.aggregate import Aggregate, argument_of
from dbsp.aggregates.kind import AggregateCall, Argument, Asked
from dbsp.aggregates.lists import first_of_each, lists_of, value_order
from dbsp.aggregates.sums import number
from dbsp.expr.build import Expr
from dbsp.expr.decimals import as_floats
from dbsp.expr.types import is_decimal
from dbsp.operators.groups.fold_part import Fold, FoldPart
from dbsp.operators.groups.part import Positions
from dbsp.operators.groups.row_form import value_name
from dbsp.stored import stored
from dbsp.zset.batch import Batch
from dbsp.zset.schema import FLOAT64, INT64, Column, list_of, struct_of

SKEWNESS = 3
KURTOSIS = 4
Floats = npt.NDArray[np.float64]


def _asked(call: AggregateCall, asked: Asked, fold: Fold) -> None:
    """Request a fold over the values that are not null."""
    text = str(call).split(" = ", 1)[1]
    values = asked.row_form(call, present=True)
    asked.part(FoldPart(name=call.name, text=text, values=values, order=value_order(call), fold=fold))


@stored("ShapeOfValues", "column power")
@dataclass(frozen=True, slots=True)
class ShapeOfValues:
    """A fold that computes the skewness (`power` = 3) or the kurtosis (`power` = 4)."""

    column: str
    power: int

    def of(self, rows: Batch, bounds: Positions) -> tuple[pa.Array, Mapping[int, str]]:
        """Return one float per group."""
        values = rows.column(self.column)
        floats = np.asarray(as_floats(values) if is_decimal(values.type) else values.cast(FLOAT64, safe=False))
        shape = _skewness if self.power == SKEWNESS else _kurtosis
        return pa.array([shape(floats[a:b]) for a, b in pairwise(bounds)], FLOAT64), {}


def _deviations(values: Floats) -> Floats | None:
    """Return the deviations from the mean, scaled to at most 1; None if all values are equal.

    The scale cancels out in both shapes. Without it the powers of large and of small values would leave the floats.
    """
    scaled = np.ldexp(values, -int(np.frexp(np.abs(values).max())[1]))
    apart = scaled - math.fsum(scaled) / len(scaled)
    apart -= math.fsum(apart) / len(apart)
    peak = np.abs(apart).max()
    return None if values.min() == values.max() or peak == 0 else apart / peak


def _moment(apart: Floats, power: int) -> float:
    """Return the sum of the deviations' powers, rounded once."""
    made = apart * apart
    for _ in range(power - 2):
        made = made * apart
    return math.fsum(made)


def _skewness(values: Floats) -> float | None:
    """Return the skewness of a sample; None for fewer than three values or equal ones, NaN if one is no number."""
    n = len(values)
    if n < SKEWNESS:
        return None
    if not np.isfinite(values).all():
        return math.nan
    apart = _deviations(values)
    if apart is None:
        return None
    spread = _moment(apart, 2) / n
    return math.sqrt(n * (n - 1)) / (n - 2) * (_moment(apart, 3) / n) / (spread * math.sqrt(spread))


def _kurtosis(values: Floats) -> float | None:
    """Return the excess kurtosis of a sample; None for fewer than four values or equal ones, NaN if one is no number."""
    n = len(values)
    if n < KURTOSIS:
        return None
    if not np.isfinite(values).all():
        return math.nan
    apart = _deviations(values)
    if apart is None:
        return None
    ratio = n * _moment(apart, 4) / _moment(apart, 2) ** 2
    return (n - 1) / ((n - 2) * (n - 3)) * ((n + 1) * ratio - 3 * (n - 1))


@stored("Shape", "power")
@dataclass(frozen=True, slots=True)
class Shape:
    """The skewness or the kurtosis of the values that are not null."""

    power: int
    keeps_nulls = False

    @property
    def name(self) -> str:
        """Return the function's name in SQL."""
        return "skewness" if self.power == SKEWNESS else "kurtosis"

    def result(self, name: str, arguments: tuple[Argument, ...]) -> Column:
        """Return a float64 column; raise `CircuitError` for an argument that is no number."""
        number(self.name, arguments[0])
        return Column(name, FLOAT64)

    def add(self, call: AggregateCall, asked: Asked) -> None:
        """Request a fold."""
        _asked(call, asked, ShapeOfValues(value_name(call.columns[0]), self.power))

    def sql(self, arguments: Sequence[str]) -> str:
        """Return the call in SQL."""
        return f"{self.name}({arguments[0]})"


@stored("CountedValues", "column")
@dataclass(frozen=True, slots=True)
class CountedValues:
    """A fold that counts each different value."""

    column: str

    def of(self, rows: Batch, bounds: Positions) -> tuple[pa.Array, Mapping[int, str]]:
        """Return one list of values and their counts per group."""
        values = rows.column(self.column)
        first = first_of_each(values, bounds)
        starts = np.flatnonzero(first)
        counts = np.diff(np.append(starts, len(values)))
        pairs = pa.StructArray.from_arrays(
            [values.take(pa.array(starts)), pa.array(counts, INT64)], fields=list(pair_of(values.type))
        )
        return lists_of(pairs, np.concatenate([[0], np.cumsum(first)])[bounds], list_of(pairs.type)), {}


def pair_of(type_: pa.DataType) -> pa.DataType:
    """Return the type of a value with its count, named as the entries of DuckDB's maps are."""
    return struct_of({"key": type_, "value": INT64})


@stored("Histogram")
@dataclass(frozen=True, slots=True)
class HistogramAgg:
    """The different values that are not null, in order, each with its count."""

    keeps_nulls = False

    def result(self, name: str, arguments: tuple[Argument, ...]) -> Column:
        """Return a column of lists of structs."""
        return Column(name, list_of(pair_of(arguments[0].type)))

    def add(self, call: AggregateCall, asked: Asked) -> None:
        """Request a fold."""
        _asked(call, asked, CountedValues(value_name(call.columns[0])))

    def sql(self, arguments: Sequence[str]) -> str:
        """Return the call in SQL."""
        return f"histogram({arguments[0]})"


def skewness(argument: str | Expr) -> Aggregate:
    """Return the skewness of the values as a sample; float64, null for fewer than three values and for equal ones.

    **Law** A function of the current values alone. Its last digits may differ from those of other programs, because
    every program rounds at other places.

    **State** The rows of each group.

    **Cost** A changed group is read anew.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"x": dbsp.INT64})
    >>> lean = t.aggregate(lean=dbsp.skewness("x"))
    >>> with dbsp.open(dbsp.circuit("demo", {"lean": lean})) as run:
    ...     run.push("t", [{"x": x} for x in (1, 2, 3, 10)])
    ...     _ = run.step()
    ...     print(round(run.view("lean").to_pylist()[0]["lean"], 6))
    ...     run.delete("t", [{"x": 10}])
    ...     _ = run.step()
    ...     print(run.view("lean").to_pylist())
    1.763633
    [{'lean': 0.0}]
    """
    return Aggregate(Shape(SKEWNESS), (argument_of(argument),))


def kurtosis(argument: str | Expr) -> Aggregate:
    """Return the excess kurtosis of the values as a sample; float64, null for fewer than four values and for equal ones.

    **Law**, **State** and **Cost** as in `skewness`.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"x": dbsp.INT64})
    >>> tails = t.aggregate(tails=dbsp.kurtosis("x"))
    >>> with dbsp.open(dbsp.circuit("demo", {"tails": tails})) as run:
    ...     run.push("t", [{"x": x} for x in (1, 1, 1, 5, 1)])
    ...     _ = run.step()
    ...     print(round(run.view("tails").to_pylist()[0]["tails"], 6))
    ...     run.delete("t", [{"x": 1}, {"x": 1}])
    ...     _ = run.step()
    ...     print(run.view("tails").to_pylist())
    5.0
    [{'tails': None}]
    """
    return Aggregate(Shape(KURTOSIS), (argument_of(argument),))


def histogram(argument: str | Expr) -> Aggregate:
    """Return the different values that are not null, each with its count, as a list in order; null if there is none.

    **Shape** A list of structs with the fields `key` and `value`: DuckDB's map, as a list.

    **State** The rows of each group.

    **Cost** A changed group is read anew.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"word": dbsp.STRING})
    >>> words = t.aggregate(words=dbsp.histogram("word"))
    >>> with dbsp.open(dbsp.circuit("demo", {"words": words})) as run:
    ...     run.push("t", [{"word": word} for word in ("so", "be", "so")])
    ...     _ = run.step()
    ...     print(run.view("words").to_pylist())
    ...     run.delete("t", [{"word": "be"}])
    ...     _ = run.step()
    ...     print(run.view("words").to_pylist())
    [{'words': [{'key': 'be', 'value': 1}, {'key': 'so', 'value': 2}]}]
    [{'words': [{'key': 'so', 'value': 2}]}]
    """
    return Aggregate(HistogramAgg(), (argument_of(argument),))
