"""Medians and exact quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pyarrow as pa

from dbsp.aggregates.aggregate import Aggregate, argument_of
from dbsp.aggregates.kind import AggregateCall, Argument, Asked
from dbsp.aggregates.sums import number
from dbsp.diagnostics.source_lines import located, user_line
from dbsp.errors import CircuitError
from dbsp.expr.build import Expr
from dbsp.operators.groups.quantile_part import QuantilePart, QuantilePlace
from dbsp.stored import stored
from dbsp.zset.schema import FLOAT64, Column, is_scalar

DIGITS_MAX = 9


@stored("Quantile", "part whole between")
@dataclass(frozen=True, slots=True)
class Quantile:
    """The value at `part / whole` of the sorted values; with `between` interpolated between two neighbours."""

    part: int
    whole: int
    between: bool
    keeps_nulls = False

    @property
    def name(self) -> str:
        """Return the function's name in SQL."""
        return f"quantile_{'cont' if self.between else 'disc'}"

    def result(self, name: str, arguments: tuple[Argument, ...]) -> Column:
        """Return the result's column: the argument's type, but float64 for interpolation between numbers that are no decimals."""
        (argument,) = arguments
        if self.between:
            type_ = number(self.name, argument, f", {float(Fraction(self.part, self.whole))}")
            return Column(name, type_ if pa.types.is_decimal(type_) else FLOAT64)
        if not is_scalar(argument.type):
            raise CircuitError(f"{self.name} is for single values: argument={argument.text} type={argument.type}")
        return Column(name, argument.type)

    def add(self, call: AggregateCall, asked: Asked) -> None:
        """Request two heaps of the values."""
        values, place = (
            asked.row_form(call, present=True),
            QuantilePlace(part=self.part, whole=self.whole, between=self.between),
        )
        asked.part(QuantilePart(name=call.name, text=self.sql(call.columns), values=values, place=place))

    def sql(self, arguments: Sequence[str]) -> str:
        """Return the call in SQL."""
        return f"{self.name}({arguments[0]}, {float(Fraction(self.part, self.whole))})"


def _quantile(fraction: Any, between: bool) -> Quantile:
    """Return the kind for a fraction that a user writes; the decimal number shown is taken exactly."""
    with located(user_line()):
        if isinstance(fraction, bool) or not isinstance(fraction, int | float | Fraction):
            raise CircuitError(f"a quantile is a number: got={fraction!r}", "such as 0.95")
        exact = Fraction(str(fraction))
        if not 0 <= exact <= 1:
            raise CircuitError(f"a quantile is between 0 and 1: got={fraction}", "write 0.95 for 95 per cent")
        if exact.denominator > 10**DIGITS_MAX:
            raise CircuitError(f"a quantile has at most {DIGITS_MAX} decimal places: got={fraction}", "round it")
        return Quantile(exact.numerator, exact.denominator, between)


def quantile_cont(argument: str | Expr, fraction: float) -> Aggregate:
    """Return the value at this fraction of the sorted values, interpolated between neighbours; null if there is none.

    **Law** With n values the place is fraction * (n - 1), counted from 0. Between the neighbours a and b the result is
    a (1 - d) + b d, where d is the distance from a. NaN is above every number. For decimals the result is an exact
    decimal of the same type, truncated to its decimal places as in DuckDB (above 18 digits rounded down). For other
    numbers it is a float64.

    **State** The values of each group, sorted, in two halves.

    **Cost** In proportion to the change: a changed row moves at most one row from half to half. The first rows of a
    group cost as much as its rows.

    **Limit** 2**32 values in a group; a fraction of at most nine decimal places.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"x": dbsp.INT64})
    >>> p90 = t.aggregate(p=dbsp.quantile_cont("x", 0.9))
    >>> with dbsp.open(dbsp.circuit("demo", {"p90": p90})) as run:
    ...     run.push("t", [{"x": x} for x in range(11)])
    ...     print(run.step()["p90"].to_rows())
    ...     run.delete("t", [{"x": 10}])
    ...     _ = run.step()
    ...     print(run.view("p90").to_rows())
    [((9.0,), 1)]
    [((8.1,), 1)]
    """
    return Aggregate(_quantile(fraction, True), (argument_of(argument),))


def quantile_disc(argument: str | Expr, fraction: float) -> Aggregate:
    """Return the least value that at least this fraction of the values does not exceed; null if there is none.

    The result has the argument's type, which may be any type with an order.

    **State**, **Cost**, **Limit** As `quantile_cont`.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT64})
    >>> upper = t.group_by("k").aggregate(x=dbsp.quantile_disc("x", 0.75))
    >>> with dbsp.open(dbsp.circuit("demo", {"upper": upper})) as run:
    ...     run.push("t", [{"k": "a", "x": 1}, {"k": "a", "x": 2}, {"k": "a", "x": 40}])
    ...     print(run.step()["upper"].to_rows())
    ...     run.delete("t", [{"k": "a", "x": 40}])
    ...     print(run.step()["upper"].to_rows())
    [(('a', 40), 1)]
    [(('a', 2), 1), (('a', 40), -1)]
    """
    return Aggregate(_quantile(fraction, False), (argument_of(argument),))


def median(argument: str | Expr) -> Aggregate:
    """Return the middle value, or the mean of the two middle values: `quantile_cont(x, 0.5)`.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT64})
    >>> middle = t.group_by("k").aggregate(x=dbsp.median("x"))
    >>> with dbsp.open(dbsp.circuit("demo", {"middle": middle})) as run:
    ...     run.push("t", [{"k": "a", "x": 1}, {"k": "a", "x": 2}, {"k": "a", "x": 30}])
    ...     print(run.step()["middle"].to_rows())
    ...     run.delete("t", [{"k": "a", "x": 1}])
    ...     print(run.step()["middle"].to_rows())
    [(('a', 2.0), 1)]
    [(('a', 16.0), 1), (('a', 2.0), -1)]
    """
    return Aggregate(_quantile(0.5, True), (argument_of(argument),))
