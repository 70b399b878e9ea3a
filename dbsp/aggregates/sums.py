"""Exact sums and means: of integers and decimals in limbs, of floats in bins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from dbsp.aggregates.aggregate import Aggregate, argument_of
from dbsp.aggregates.counts import values_of
from dbsp.aggregates.kind import AggregateCall, Argument, Asked
from dbsp.aggregates.unique import Unique
from dbsp.errors import CircuitError
from dbsp.expr.build import Expr
from dbsp.expr.types import DECIMAL_DIGITS, is_decimal, is_float, is_number
from dbsp.operators.groups.limbs import limbs_of
from dbsp.operators.groups.measures import Limbs
from dbsp.operators.groups.sums import Averaged, SumOfLimbs
from dbsp.stored import stored
from dbsp.zset.schema import DATE, DURATION, FLOAT64, INT64, Column


@stored("Sum")
@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of the values."""

    keeps_nulls = False

    def result(self, name: str, arguments: tuple[Argument, ...]) -> Column:
        """Return the result's column: int64 for integers, float64 for floats, a decimal of 38 digits, or a duration."""
        if arguments[0].type == DURATION:
            return Column(name, DURATION)
        type_ = number("sum", arguments[0])
        if is_decimal(type_):
            return Column(name, pa.decimal128(DECIMAL_DIGITS, type_.scale))
        return Column(name, FLOAT64 if is_float(type_) else INT64)

    def add(self, call: AggregateCall, asked: Asked) -> None:
        """Request limbs, or bins for floats."""
        (column,) = call.columns
        type_ = asked.rows[column].type
        if is_float(type_):
            asked.float_sum(call.name, "sum", column)
        else:
            asked.linear(call.name, [values_of(asked, column), Limbs(column, limbs_of(type_))], SumOfLimbs())

    def sql(self, arguments: Sequence[str]) -> str:
        """Return the call in SQL."""
        return f"sum({arguments[0]})"


@stored("Avg")
@dataclass(frozen=True, slots=True)
class Avg:
    """The mean of the values."""

    keeps_nulls = False

    def result(self, name: str, arguments: tuple[Argument, ...]) -> Column:
        """Return a float64 column; for durations a duration."""
        if arguments[0].type == DURATION:
            return Column(name, DURATION)
        number("avg", arguments[0])
        return Column(name, FLOAT64)

    def add(self, call: AggregateCall, asked: Asked) -> None:
        """Request limbs and a count, or bins for floats."""
        (column,) = call.columns
        type_ = asked.rows[column].type
        if is_float(type_):
            asked.float_sum(call.name, "avg", column)
            return
        measures = [values_of(asked, column), Limbs(column, limbs_of(type_))]
        asked.linear(call.name, measures, Averaged(scale_of(type_)))

    def sql(self, arguments: Sequence[str]) -> str:
        """Return the call in SQL."""
        return f"avg({arguments[0]})"


def number(function: str, argument: Argument, more: str = "") -> pa.DataType:
    """Return the argument's type; raise `CircuitError` unless it is a number.

    The hint of the error shows the call, with the text `more` after the argument.
    """
    if not is_number(argument.type):
        hint = f"write dbsp.{function}({as_number(argument)}{more})"
        hint += " for so many seconds" if argument.type == DURATION else ""
        raise CircuitError(f"{function} is for numbers: argument={argument.text} type={argument.type}", hint)
    return argument.type


def as_number(argument: Argument) -> str:
    """Return the code with which a user turns the argument into a number."""
    if argument.type == DURATION:
        return f"{argument.written} / dbsp.seconds(1)"
    if argument.type == DATE or pa.types.is_timestamp(argument.type):
        return f'{argument.written}.epoch("second")'
    return f"{argument.written}.cast(dbsp.INT64)"


def scale_of(type_: pa.DataType) -> int:
    """Return the number of decimal places of the type's whole numbers."""
    return type_.scale if is_decimal(type_) else 0


def sum(argument: str | Expr, *, distinct: bool = False) -> Aggregate:  # noqa: A001 (SQL's name; used as dbsp.sum)
    """Sum the values; null if there is none. With `distinct` equal values count once.

    **Shape** An int64 for integers, float64 for floats, decimal(38, s) for decimals, a duration for durations.

    **State** A few numbers per group; with `distinct` also its distinct values.

    **Cost** Constant per row, with `distinct` a look-up per changed value.

    **Errors** A sum that does not fit its type fails the group's row: the error policy applies.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT64})
    >>> totals = t.group_by("k").aggregate(x=dbsp.sum("x"))
    >>> with dbsp.open(dbsp.circuit("demo", {"totals": totals})) as run:
    ...     run.push("t", [{"k": "a", "x": 5}, {"k": "a", "x": 7}])
    ...     print(run.step()["totals"].to_rows())
    ...     run.delete("t", [{"k": "a", "x": 7}])
    ...     print(run.step()["totals"].to_rows())
    [(('a', 12), 1)]
    [(('a', 12), -1), (('a', 5), 1)]

    >>> once = t.group_by("k").aggregate(x=dbsp.sum("x", distinct=True), n=dbsp.count())
    >>> with dbsp.open(dbsp.circuit("demo", {"once": once})) as run:
    ...     run.push("t", [{"k": "a", "x": 5}, {"k": "a", "x": 5}, {"k": "a", "x": 7}])
    ...     print(run.step()["once"].to_rows())
    ...     run.delete("t", [{"k": "a", "x": 5}])
    ...     print(run.step()["once"].to_rows())
    [(('a', 12, 3), 1)]
    [(('a', 12, 2), 1), (('a', 12, 3), -1)]
    """
    return Aggregate(Unique(Sum()) if distinct else Sum(), (argument_of(argument),))


def avg(argument: str | Expr, *, distinct: bool = False) -> Aggregate:
    """Return the mean of the values; null if there is none. With `distinct` equal values count once.

    **Shape** A float64; for durations the nearest duration, halves away from zero.

    **State**, **Cost** As `sum`.

    **Example**

    >>> import dbsp, datetime
    >>> t = dbsp.table("t", {"shop": dbsp.STRING, "took": dbsp.DURATION})
    >>> usual = t.group_by("shop").aggregate(took=dbsp.avg("took"))
    >>> with dbsp.open(dbsp.circuit("demo", {"usual": usual})) as run:
    ...     run.push("t", [{"shop": "a", "took": datetime.timedelta(minutes=m)} for m in (1, 2, 6)])
    ...     _ = run.step()
    ...     run.delete("t", [{"shop": "a", "took": datetime.timedelta(minutes=6)}])
    ...     _ = run.step()
    ...     print([str(took) for (shop, took), weight in run.view("usual").to_rows()])
    ['0:01:30']
    """
    return Aggregate(Unique(Avg()) if distinct else Avg(), (argument_of(argument),))
