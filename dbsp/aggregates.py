"""Aggregates: what `group_by(...).aggregate(...)` computes per group. Nulls are left out, as in SQL.

An aggregate of a group without any value (all null) is null, a count is 0. Sums of integers are int64 and checked;
sums of floats are exact
and rounded once, so they never drift.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dbsp.circuit.source_lines import located, user_line
from dbsp.errors import CircuitError
from dbsp.expr.build import Expr, column_name, unwrap
from dbsp.expr.expression import ColumnRef, Expression
from dbsp.expr.types import DECIMAL_DIGITS, is_decimal, is_float, is_integer, is_number
from dbsp.zset.schema import FLOAT64, INT64, Column, OrderBy, Schema


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A function over the values of an expression in a group; without an argument over the rows."""

    function: str
    argument: Expression | None = None

    def column(self, name: str, schema: Schema) -> Column:
        """The result column; `CircuitError` if the function does not work on the argument's type."""
        if self.argument is None or self.function in ("count", "count_distinct"):
            return Column(name, INT64, nullable=False)
        type_ = self.argument.type(schema)
        if self.function in ("sum", "avg") and not is_number(type_):
            hint = f"write dbsp.{self.function}({_shown(self.argument)}.cast(dbsp.INT64))"
            raise CircuitError(f"{self.function} is for numbers: argument={self.argument} type={type_}", hint)
        if self.function == "avg":
            return Column(name, FLOAT64)
        return Column(name, _sum_type(type_) if self.function == "sum" else type_)


def _shown(argument: Expression) -> str:
    return f'dbsp.col("{argument.name}")' if isinstance(argument, ColumnRef) else f"({argument})"


def _sum_type(type_: pa.DataType) -> pa.DataType:
    if is_integer(type_):
        return INT64
    if is_float(type_):
        return FLOAT64
    return pa.decimal128(DECIMAL_DIGITS, type_.scale) if is_decimal(type_) else type_


def _argument(value: Any) -> Expression:
    if isinstance(value, str):
        return ColumnRef(value)
    if isinstance(value, Expr):
        return unwrap(value)
    with located(user_line()):
        raise CircuitError(f"an aggregate takes a column name or an expression: got={value!r}", 'such as dbsp.sum("x")')


def _column(column: Any) -> str:
    with located(user_line()):
        return column_name(column)


def count(argument: str | Expr | None = None) -> Aggregate:
    """Number of rows, or of values that are not null; int64, never null.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT32})
    >>> print(t.group_by("k").aggregate(n=dbsp.count()).schema)
    (k: string, n: int64 not null)
    """
    return Aggregate("count", None if argument is None else _argument(argument))


def sum(argument: str | Expr) -> Aggregate:  # noqa: A001 (SQL's name; used as dbsp.sum)
    """Sum of the values: int64 of integers, float64 of floats, decimal(38, s) of decimals; null if there is none."""
    return Aggregate("sum", _argument(argument))


def avg(argument: str | Expr) -> Aggregate:
    """Mean of the values as float64; null if there is none."""
    return Aggregate("avg", _argument(argument))


def min(argument: str | Expr) -> Aggregate:  # noqa: A001 (SQL's name; used as dbsp.min)
    """Least value, in its own type; null if there is none. NaN is above every number."""
    return Aggregate("min", _argument(argument))


def max(argument: str | Expr) -> Aggregate:  # noqa: A001 (SQL's name; used as dbsp.max)
    """Greatest value, in its own type; null if there is none. NaN is above every number."""
    return Aggregate("max", _argument(argument))


def count_distinct(argument: str | Expr) -> Aggregate:
    """Number of different values that are not null; int64, never null."""
    return Aggregate("count_distinct", _argument(argument))


def asc(column: str | Expr, nulls_first: bool = False) -> OrderBy:
    """Ascending order, nulls last unless asked otherwise."""
    return OrderBy(_column(column), False, nulls_first)


def desc(column: str | Expr, nulls_first: bool = False) -> OrderBy:
    """Descending order, nulls last unless asked otherwise."""
    return OrderBy(_column(column), True, nulls_first)
