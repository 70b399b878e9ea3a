"""Covariance, correlation and linear regression of pairs of columns, as SQL names them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dbsp.aggregates.aggregate import Aggregate, argument_of
from dbsp.aggregates.counts import count
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
    """A function of pairs (y, x), those with a null left out; SQL calls it `function`."""

    function: str
    keeps_nulls = False

    def result(self, name: str, arguments: tuple[Argument, ...]) -> Column:
        """A float64."""
        for argument in arguments:
            if not is_number(argument.type):
                hint = f"write {as_number(argument)} for it"
                raise CircuitError(
                    f"{self.function} is for numbers: argument={argument.text} type={argument.type}", hint
                )
        return Column(name, FLOAT64)

    def add(self, call: AggregateCall, asked: Asked) -> None:
        """Bins of both columns and their products, shared by all functions of the pair."""
        y, x = call.columns
        asked.pairs(PairCall(name=call.name, text=self.sql(call.columns), function=self.function), x, y)

    def sql(self, arguments: Sequence[str]) -> str:
        """As SQL writes it."""
        return f"{self.function}({', '.join(arguments)})"


def _paired(function: str, y: str | Expr, x: str | Expr) -> Aggregate:
    return Aggregate(Paired(function), (argument_of(y), argument_of(x)))


def covar_pop(y: str | Expr, x: str | Expr) -> Aggregate:
    """Covariance of the pairs as a whole population; float64, null if there is no pair.

    **Law** the nearest float64 to the true covariance of the pairs that are there, whatever came and went before; numbers of
    other types count as the nearest float64. A row with a null in either column is left out.

    **State** per group sums of the values, of their squares and of their products, once for all functions of a pair of
    columns, so **Cost** is constant per changed row.

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


def covar_samp(y: str | Expr, x: str | Expr) -> Aggregate:
    """Covariance of the pairs as a sample (divided by n - 1); null of fewer than two pairs. Otherwise as `covar_pop`.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "y": dbsp.FLOAT64, "x": dbsp.FLOAT64})
    >>> fit = t.group_by("k").aggregate(r=dbsp.covar_samp("y", "x"))
    >>> with dbsp.open(dbsp.circuit("demo", {"fit": fit})) as run:
    ...     run.push("t", [{"k": "a", "y": y, "x": x} for y, x in [(1.0, 1.0), (2.0, 2.0), (6.0, 3.0)]])
    ...     print(run.step()["fit"].to_rows())
    ...     run.delete("t", [{"k": "a", "y": 6.0, "x": 3.0}])
    ...     print(run.step()["fit"].to_rows())
    [(('a', 2.5), 1)]
    [(('a', 0.5), 1), (('a', 2.5), -1)]
    """
    return _paired("covar_samp", y, x)


def corr(y: str | Expr, x: str | Expr) -> Aggregate:
    """Pearson's correlation of the pairs, from -1 to 1; null if there is no pair, or where one side is constant.

    **Law** of the exact sums, within a few units in the last place. As in PostgreSQL a constant side gives null (DuckDB gives
    NaN). **State** and **Cost** as `covar_pop`.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "y": dbsp.FLOAT64, "x": dbsp.FLOAT64})
    >>> fit = t.group_by("k").aggregate(r=dbsp.corr("y", "x"))
    >>> with dbsp.open(dbsp.circuit("demo", {"fit": fit})) as run:
    ...     run.push("t", [{"k": "a", "y": y, "x": x} for y, x in [(1.0, 1.0), (2.0, 2.0), (6.0, 3.0)]])
    ...     print(run.step()["fit"].to_rows())
    ...     run.delete("t", [{"k": "a", "y": 6.0, "x": 3.0}])
    ...     print(run.step()["fit"].to_rows())
    [(('a', 0.944911182523068), 1)]
    [(('a', 0.944911182523068), -1), (('a', 1.0), 1)]
    """
    return _paired("corr", y, x)


def regr_slope(y: str | Expr, x: str | Expr) -> Aggregate:
    """Slope of the line of least squares that gives y for x; null if there is no pair, or where x is constant.

    The dependent column comes first, as in SQL; where x is constant DuckDB gives NaN. **Law**, **State** and **Cost** as `corr`.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "y": dbsp.FLOAT64, "x": dbsp.FLOAT64})
    >>> fit = t.group_by("k").aggregate(r=dbsp.regr_slope("y", "x"))
    >>> with dbsp.open(dbsp.circuit("demo", {"fit": fit})) as run:
    ...     run.push("t", [{"k": "a", "y": y, "x": x} for y, x in [(1.0, 1.0), (2.0, 2.0), (6.0, 3.0)]])
    ...     print(run.step()["fit"].to_rows())
    ...     run.delete("t", [{"k": "a", "y": 6.0, "x": 3.0}])
    ...     print(run.step()["fit"].to_rows())
    [(('a', 2.5), 1)]
    [(('a', 1.0), 1), (('a', 2.5), -1)]
    """
    return _paired("regr_slope", y, x)


def regr_intercept(y: str | Expr, x: str | Expr) -> Aggregate:
    """Where the line of `regr_slope` meets x = 0; null where the slope is.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "y": dbsp.FLOAT64, "x": dbsp.FLOAT64})
    >>> fit = t.group_by("k").aggregate(r=dbsp.regr_intercept("y", "x"))
    >>> with dbsp.open(dbsp.circuit("demo", {"fit": fit})) as run:
    ...     run.push("t", [{"k": "a", "y": y, "x": x} for y, x in [(1.0, 1.0), (2.0, 2.0), (6.0, 3.0)]])
    ...     print(run.step()["fit"].to_rows())
    ...     run.delete("t", [{"k": "a", "y": 6.0, "x": 3.0}])
    ...     print(run.step()["fit"].to_rows())
    [(('a', -2.0), 1)]
    [(('a', -2.0), -1), (('a', 0.0), 1)]
    """
    return _paired("regr_intercept", y, x)


def regr_r2(y: str | Expr, x: str | Expr) -> Aggregate:
    """How much of y's variance that line explains, from 0 to 1; null where x is constant, 1 where only y is.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "y": dbsp.FLOAT64, "x": dbsp.FLOAT64})
    >>> fit = t.group_by("k").aggregate(r=dbsp.regr_r2("y", "x"))
    >>> with dbsp.open(dbsp.circuit("demo", {"fit": fit})) as run:
    ...     run.push("t", [{"k": "a", "y": y, "x": x} for y, x in [(1.0, 1.0), (2.0, 2.0), (6.0, 3.0)]])
    ...     print(run.step()["fit"].to_rows())
    ...     run.delete("t", [{"k": "a", "y": 6.0, "x": 3.0}])
    ...     print(run.step()["fit"].to_rows())
    [(('a', 0.8928571428571429), 1)]
    [(('a', 0.8928571428571429), -1), (('a', 1.0), 1)]
    """
    return _paired("regr_r2", y, x)


def regr_count(y: str | Expr, x: str | Expr) -> Aggregate:
    """Number of pairs without a null; int64, never null.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "y": dbsp.FLOAT64, "x": dbsp.FLOAT64})
    >>> fit = t.group_by("k").aggregate(r=dbsp.regr_count("y", "x"))
    >>> with dbsp.open(dbsp.circuit("demo", {"fit": fit})) as run:
    ...     run.push("t", [{"k": "a", "y": y, "x": x} for y, x in [(1.0, 1.0), (2.0, 2.0), (6.0, 3.0)]])
    ...     print(run.step()["fit"].to_rows())
    ...     run.delete("t", [{"k": "a", "y": 6.0, "x": 3.0}])
    ...     print(run.step()["fit"].to_rows())
    [(('a', 3), 1)]
    [(('a', 2), 1), (('a', 3), -1)]
    """
    return count(y).where(_expr(x).is_not_null())


def regr_avgx(y: str | Expr, x: str | Expr) -> Aggregate:
    """Mean of x over the pairs without a null; float64, null if there is none.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "y": dbsp.FLOAT64, "x": dbsp.FLOAT64})
    >>> fit = t.group_by("k").aggregate(r=dbsp.regr_avgx("y", "x"))
    >>> with dbsp.open(dbsp.circuit("demo", {"fit": fit})) as run:
    ...     run.push("t", [{"k": "a", "y": y, "x": x} for y, x in [(1.0, 1.0), (2.0, 2.0), (6.0, 3.0)]])
    ...     print(run.step()["fit"].to_rows())
    ...     run.delete("t", [{"k": "a", "y": 6.0, "x": 3.0}])
    ...     print(run.step()["fit"].to_rows())
    [(('a', 2.0), 1)]
    [(('a', 1.5), 1), (('a', 2.0), -1)]
    """
    return avg(x).where(_expr(y).is_not_null())


def regr_avgy(y: str | Expr, x: str | Expr) -> Aggregate:
    """Mean of y over the pairs without a null; float64, null if there is none.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "y": dbsp.FLOAT64, "x": dbsp.FLOAT64})
    >>> fit = t.group_by("k").aggregate(r=dbsp.regr_avgy("y", "x"))
    >>> with dbsp.open(dbsp.circuit("demo", {"fit": fit})) as run:
    ...     run.push("t", [{"k": "a", "y": y, "x": x} for y, x in [(1.0, 1.0), (2.0, 2.0), (6.0, 3.0)]])
    ...     print(run.step()["fit"].to_rows())
    ...     run.delete("t", [{"k": "a", "y": 6.0, "x": 3.0}])
    ...     print(run.step()["fit"].to_rows())
    [(('a', 3.0), 1)]
    [(('a', 1.5), 1), (('a', 3.0), -1)]
    """
    return avg(y).where(_expr(x).is_not_null())


def _expr(argument: str | Expr) -> Expr:
    return Expr(argument_of(argument))
