"""Sums and means, exact: of integers and decimals in limbs, of floats in bins."""

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
from dbsp.operators.groups.sums import Averaged, Summed
from dbsp.stored import stored
from dbsp.zset.schema import DATE, DURATION, FLOAT64, INT64, Column


@stored("Sum")
@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of the values."""

    keeps_nulls = False

    def result(self, name: str, arguments: tuple[Argument, ...]) -> Column:
        """Of integers an int64, of floats a float64, of decimals one of 38 digits, of durations a duration."""
        if arguments[0].type == DURATION:
            return Column(name, DURATION)
        type_ = number("sum", arguments[0])
        if is_decimal(type_):
            return Column(name, pa.decimal128(DECIMAL_DIGITS, type_.scale))
        return Column(name, FLOAT64 if is_float(type_) else INT64)

    def add(self, call: AggregateCall, asked: Asked) -> None:
        """Limbs, or bins of floats."""
        (column,) = call.columns
        type_ = asked.rows[column].type
        if is_float(type_):
            asked.float_sum(call.name, "sum", column)
        else:
            asked.linear(call.name, [values_of(asked, column), Limbs(column, limbs_of(type_))], Summed())

    def sql(self, arguments: Sequence[str]) -> str:
        """As SQL writes it."""
        return f"sum({arguments[0]})"


@stored("Avg")
@dataclass(frozen=True, slots=True)
class Avg:
    """The mean of the values."""

    keeps_nulls = False

    def result(self, name: str, arguments: tuple[Argument, ...]) -> Column:
        """A float64; of durations a duration."""
        if arguments[0].type == DURATION:
            return Column(name, DURATION)
        number("avg", arguments[0])
        return Column(name, FLOAT64)

    def add(self, call: AggregateCall, asked: Asked) -> None:
        """Limbs, or bins of floats; and a count."""
        (column,) = call.columns
        type_ = asked.rows[column].type
        if is_float(type_):
            asked.float_sum(call.name, "avg", column)
            return
        measures = [values_of(asked, column), Limbs(column, limbs_of(type_))]
        asked.linear(call.name, measures, Averaged(scale_of(type_)))

    def sql(self, arguments: Sequence[str]) -> str:
        """As SQL writes it."""
        return f"avg({arguments[0]})"


def number(function: str, argument: Argument, more: str = "") -> pa.DataType:
    """The argument's type, if it is that of a number; `more` is what stands behind the argument in a call."""
    if not is_number(argument.type):
        hint = f"write dbsp.{function}({as_number(argument)}{more})"
        hint += " for so many seconds" if argument.type == DURATION else ""
        raise CircuitError(f"{function} is for numbers: argument={argument.text} type={argument.type}", hint)
    return argument.type


def as_number(argument: Argument) -> str:
    """How a user makes a number of it."""
    if argument.type == DURATION:
        return f"{argument.written} / dbsp.seconds(1)"
    if argument.type == DATE or pa.types.is_timestamp(argument.type):
        return f'{argument.written}.epoch("second")'
    return f"{argument.written}.cast(dbsp.INT64)"


def scale_of(type_: pa.DataType) -> int:
    """How many decimal places whole numbers of this type stand for."""
    return type_.scale if is_decimal(type_) else 0


def sum(argument: str | Expr, *, distinct: bool = False) -> Aggregate:  # noqa: A001 (SQL's name; used as dbsp.sum)
    """Sum of the values: int64 of integers, float64 of floats, decimal(38, s) of decimals, a duration of durations;
    null if there is none. With `distinct` equal values count once.

    **State** a few numbers per group; with `distinct` also its different values. **Cost** constant per row, with `distinct` a
    look-up per changed value.

    **Errors** a sum that does not fit its type fails the group's row by the error policy.

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
    """Mean of the values as float64, of durations the nearest duration, halves away from zero; null if there is none.

    With `distinct` equal values count once; **State** and **Cost** are those of `sum`.

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
