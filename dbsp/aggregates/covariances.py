"""Covariance, correlation and linear regression of pairs of columns, under SQL's names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dbsp.aggregates.aggregate import Aggregate, argument_of
from dbsp.aggregates.counts import count
from dbsp.aggregates.examples import OF_PAIRS, with_example
from dbsp.aggregates.kind import AggregateCall, Argument, Asked
from dbsp.aggregates.sums import as_number, avg
from dbsp.errors import CircuitError
from dbsp.expr.build import Expr
from dbsp.expr.types import is_number
from dbsp.operators.groups.covariance_part import PairCall
from dbsp.stored import stored
from dbsp.zset.schema import FLOAT64, Column


@stored("Paired", "function")
@dataclass(frozen=True, slots=True)
class Paired:
    """An aggregate of two columns, y and x, over the rows in which neither is null; `function` is its name in SQL."""

    function: str
    keeps_nulls = False

    def result(self, name: str, arguments: tuple[Argument, ...]) -> Column:
        """Return a float64 column; raise `CircuitError` if an argument is not numeric."""
        for argument in arguments:
            if not is_number(argument.type):
                hint = f"write {as_number(argument)} for it"
                raise CircuitError(
                    f"{self.function} is for numbers: argument={argument.text} type={argument.type}", hint
                )
        return Column(name, FLOAT64)

    def add(self, call: AggregateCall, asked: Asked) -> None:
        """Request the bins of both columns and their products, shared by all functions of the pair."""
        y, x = call.columns
        asked.pairs(PairCall(name=call.name, text=self.sql(call.columns), function=self.function), x, y)

    def sql(self, arguments: Sequence[str]) -> str:
        """Return the call in SQL."""
        return f"{self.function}({', '.join(arguments)})"


def _paired(function: str, y: str | Expr, x: str | Expr) -> Aggregate:
    return Aggregate(Paired(function), (argument_of(y), argument_of(x)))


def covar_pop(y: str | Expr, x: str | Expr) -> Aggregate:
    """Return the covariance of the pairs as a whole population; float64, null if there is no pair.

    **Law** The nearest float64 to the true covariance of the current pairs, whatever was inserted and deleted before.
    Numbers of other types count as the nearest float64. A row with a null in either column is left out.

    **State** Per group the sums of the values, of their squares and of their products, once for all functions of a pair
    of columns.

    **Cost** Constant per changed row.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"x": dbsp.FLOAT64, "y": dbsp.FLOAT64})
    >>> line = t.aggregate(c=dbsp.covar_pop("y", "x"), slope=dbsp.regr_slope("y", "x"), at=dbsp.regr_intercept("y", "x"))
    >>> with dbsp.open(dbsp.circuit("demo", {"line": line})) as run:
    ...     run.push("t", [{"x": 1.0, "y": 5.0}, {"x": 3.0, "y": 9.0}, {"x": 1e9, "y": -7.0}])
    ...     _ = run.step()
    ...     run.delete("t", [{"x": 1e9, "y": -7.0}])
    ...     _ = run.step()
    ...     print(run.view("line").to_rows())
    [((2.0, 2.0, 3.0), 1)]
    """
    return _paired("covar_pop", y, x)


@with_example(OF_PAIRS, "[(('a', 2.5), 1)]", "[(('a', 0.5), 1), (('a', 2.5), -1)]")
def covar_samp(y: str | Expr, x: str | Expr) -> Aggregate:
    """Return the covariance of the pairs as a sample (divided by n - 1); null for fewer than two pairs.

    All else is as in `covar_pop`.
    """
    return _paired("covar_samp", y, x)


@with_example(OF_PAIRS, "[(('a', 0.944911182523068), 1)]", "[(('a', 0.944911182523068), -1), (('a', 1.0), 1)]")
def corr(y: str | Expr, x: str | Expr) -> Aggregate:
    """Return Pearson's correlation of the pairs, from -1 to 1; null if there is no pair, or if one side is constant.

    **Law** Computed from the exact sums, within a few units in the last place. As in PostgreSQL a constant side gives
    null (DuckDB gives NaN).

    **State**, **Cost** As `covar_pop`.
    """
    return _paired("corr", y, x)


@with_example(OF_PAIRS, "[(('a', 2.5), 1)]", "[(('a', 1.0), 1), (('a', 2.5), -1)]")
def regr_slope(y: str | Expr, x: str | Expr) -> Aggregate:
    """Return the slope of the least-squares line that gives y for x; null if there is no pair, or if x is constant.

    The dependent column is first, as in SQL. For a constant x DuckDB gives NaN.

    **Law**, **State**, **Cost** As `corr`.
    """
    return _paired("regr_slope", y, x)


@with_example(OF_PAIRS, "[(('a', -2.0), 1)]", "[(('a', -2.0), -1), (('a', 0.0), 1)]")
def regr_intercept(y: str | Expr, x: str | Expr) -> Aggregate:
    """Return the value of the line of `regr_slope` at x = 0; null where the slope is null."""
    return _paired("regr_intercept", y, x)


@with_example(OF_PAIRS, "[(('a', 0.8928571428571429), 1)]", "[(('a', 0.8928571428571429), -1), (('a', 1.0), 1)]")
def regr_r2(y: str | Expr, x: str | Expr) -> Aggregate:
    """Return the share of y's variance that the line of `regr_slope` explains, from 0 to 1; null if x is constant.

    If only y is constant, the share is 1.
    """
    return _paired("regr_r2", y, x)


@with_example(OF_PAIRS, "[(('a', 3), 1)]", "[(('a', 2), 1), (('a', 3), -1)]")
def regr_count(y: str | Expr, x: str | Expr) -> Aggregate:
    """Count the pairs without a null; int64, never null."""
    return count(y).where(_expr(x).is_not_null())


@with_example(OF_PAIRS, "[(('a', 2.0), 1)]", "[(('a', 1.5), 1), (('a', 2.0), -1)]")
def regr_avgx(y: str | Expr, x: str | Expr) -> Aggregate:
    """Return the mean of x over the pairs without a null; float64, null if there is none."""
    return avg(x).where(_expr(y).is_not_null())


@with_example(OF_PAIRS, "[(('a', 3.0), 1)]", "[(('a', 1.5), 1), (('a', 3.0), -1)]")
def regr_avgy(y: str | Expr, x: str | Expr) -> Aggregate:
    """Return the mean of y over the pairs without a null; float64, null if there is none."""
    return avg(y).where(_expr(x).is_not_null())


def _expr(argument: str | Expr) -> Expr:
    return Expr(argument_of(argument))
