"""Count, count distinct, and mode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dbsp.aggregates.aggregate import Aggregate, argument_of
from dbsp.aggregates.kind import AggregateCall, Argument, Asked
from dbsp.diagnostics.source_lines import located, user_line
from dbsp.errors import CircuitError
from dbsp.expr.build import Expr
from dbsp.expr.expression import Call, ColumnRef, Literal
from dbsp.operators.groups.measures import Trues, Valid
from dbsp.operators.groups.mode_part import ModePart
from dbsp.operators.groups.sums import Counted
from dbsp.stored import stored
from dbsp.zset.schema import INT64, Column, is_list


@stored("Count")
@dataclass(frozen=True, slots=True)
class Count:
    """The number of rows, or of values that are not null."""

    keeps_nulls = False

    def result(self, name: str, arguments: tuple[Argument, ...]) -> Column:  # noqa: ARG002 (of any type)
        """Return an int64 column, never null."""
        return Column(name, INT64, nullable=False)

    def add(self, call: AggregateCall, asked: Asked) -> None:
        """Request one sum, or only the number of rows if no value can be null."""
        asked.linear(call.name, [values_of(asked, call.columns[0]) if call.columns else None], Counted())

    def sql(self, arguments: Sequence[str]) -> str:
        """Return the call in SQL."""
        return f"count({', '.join(arguments) or '*'})"


@stored("CountTrue")
@dataclass(frozen=True, slots=True)
class CountTrue:
    """The number of rows for which a condition is true."""

    keeps_nulls = False

    def result(self, name: str, arguments: tuple[Argument, ...]) -> Column:  # noqa: ARG002 (of a condition)
        """Return an int64 column, never null."""
        return Column(name, INT64, nullable=False)

    def add(self, call: AggregateCall, asked: Asked) -> None:
        """Request one sum."""
        asked.linear(call.name, [Trues(call.columns[0])], Counted())

    def sql(self, arguments: Sequence[str]) -> str:
        """Return the call in SQL."""
        return f"count_if({arguments[0]})"


@stored("CountDistinct")
@dataclass(frozen=True, slots=True)
class CountDistinct:
    """The number of distinct values that are not null."""

    keeps_nulls = False

    def result(self, name: str, arguments: tuple[Argument, ...]) -> Column:  # noqa: ARG002 (of any type)
        """Return an int64 column, never null."""
        return Column(name, INT64, nullable=False)

    def add(self, call: AggregateCall, asked: Asked) -> None:
        """Request a part that stores the values, shared by all distinct counts of the column."""
        asked.distinct(call)

    def sql(self, arguments: Sequence[str]) -> str:
        """Return the call in SQL."""
        return f"count(distinct {arguments[0]})"


@stored("Mode")
@dataclass(frozen=True, slots=True)
class Mode:
    """The most frequent value; the least of several."""

    keeps_nulls = False

    def result(self, name: str, arguments: tuple[Argument, ...]) -> Column:
        """Return a column of the argument's type; raise `CircuitError` for lists."""
        (argument,) = arguments
        if is_list(argument.type):
            hint = 'explode the list first, .explode(…), or join its elements: .list_join(",")'
            raise CircuitError(f"mode is not for lists: argument={argument.text} type={argument.type}", hint)
        return Column(name, argument.type)

    def add(self, call: AggregateCall, asked: Asked) -> None:
        """Request a part that counts the values."""
        asked.part(ModePart(name=call.name, text=self.sql(call.columns), values=asked.row_form(call, present=True)))

    def sql(self, arguments: Sequence[str]) -> str:
        """Return the call in SQL."""
        return f"mode({arguments[0]})"


def values_of(asked: Asked, column: str) -> Valid | None:
    """Return the measure that counts a column's values, or None, which counts the rows, if no value can be null."""
    return Valid(column) if asked.rows[column].nullable else None


def apart(aggregate: Aggregate) -> Aggregate:
    """Return a resolved count with a filter in a cheaper form: its condition is counted directly.

    A distinct count with a filter becomes one of the column itself, with the filter apart. So no column of values and
    nulls is made for counting, and all distinct counts of one column share their state. Only constants and plain
    columns qualify, because they cannot fail where the condition is false.
    """
    match aggregate:
        case Aggregate(
            kind=Count(),
            arguments=(Call(function, (condition, Literal() as given, Literal(value=None))),),
            condition=None,
        ) if function.name == "case" and given.value is not None:
            return replace(aggregate, kind=CountTrue(), arguments=(condition,))
        case Aggregate(
            kind=CountDistinct(),
            arguments=(Call(function, (condition, ColumnRef() as column, Literal(value=None))),),
            condition=None,
        ) if function.name == "case":
            return replace(aggregate, arguments=(column,), condition=condition)
    return aggregate


def count(argument: str | Expr | None = None) -> Aggregate:
    """Count the rows, or the values that are not null; int64, never null. `count("*")` is `count()`, as in SQL.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT64})
    >>> sizes = t.group_by("k").aggregate(rows=dbsp.count(), known=dbsp.count("x"))
    >>> with dbsp.open(dbsp.circuit("demo", {"sizes": sizes})) as run:
    ...     run.push("t", [{"k": "a", "x": 5}, {"k": "a", "x": None}])
    ...     print(run.step()["sizes"].to_rows())
    ...     run.delete("t", [{"k": "a", "x": 5}])
    ...     print(run.step()["sizes"].to_rows())
    [(('a', 2, 1), 1)]
    [(('a', 1, 0), 1), (('a', 2, 1), -1)]
    """
    every = argument is None or (isinstance(argument, str) and argument == "*")
    return Aggregate(Count(), () if every else (argument_of(argument),))


def count_distinct(argument: str | Expr, *more: Any) -> Aggregate:
    """Count the distinct values that are not null; int64, never null.

    **State** The distinct values of each group, once for all distinct counts of a column under different filters.

    **Cost** One look-up per changed value.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT64})
    >>> kinds = t.group_by("k").aggregate(n=dbsp.count_distinct("x"))
    >>> with dbsp.open(dbsp.circuit("demo", {"kinds": kinds})) as run:
    ...     run.push("t", [{"k": "a", "x": 5}, {"k": "a", "x": 7}, {"k": "a", "x": 7}])
    ...     print(run.step()["kinds"].to_rows())
    ...     run.delete("t", [{"k": "a", "x": 5}])
    ...     print(run.step()["kinds"].to_rows())
    [(('a', 2), 1)]
    [(('a', 1), 1), (('a', 2), -1)]
    """
    if more:
        with located(user_line()):
            hint = 'for different pairs: .select("k", "x", "y").distinct().group_by("k").aggregate(n=dbsp.count())'
            raise CircuitError(f"count_distinct takes one column: got={1 + len(more)}", hint)
    return Aggregate(CountDistinct(), (argument_of(argument),))


def approx_count_distinct(argument: str | Expr) -> Aggregate:
    """Return `count_distinct`, which is exact: estimates cannot forget a row that is deleted.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"x": dbsp.INT64})
    >>> kinds = t.aggregate(kinds=dbsp.approx_count_distinct("x"))
    >>> with dbsp.open(dbsp.circuit("demo", {"kinds": kinds})) as run:
    ...     run.push("t", [{"x": 1}, {"x": 2}, {"x": 2}])
    ...     _ = run.step()
    ...     run.delete("t", [{"x": 1}])
    ...     _ = run.step()
    ...     print(run.view("kinds").to_pylist())
    [{'kinds': 1}]
    """
    return count_distinct(argument)


def mode(argument: str | Expr) -> Aggregate:
    """Return the most frequent value, in its own type; of several the least; null if there is none.

    **Law** Nulls are left out; NaN is one value, above every number. Any type with an order is possible.

    **State** The distinct values of each group, twice.

    **Cost** One look-up per changed value. If the mode becomes rarer and no other changed value takes its place, all
    values that are then the most frequent are read.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"shop": dbsp.STRING, "size": dbsp.INT64})
    >>> usual = t.group_by("shop").aggregate(size=dbsp.mode("size"))
    >>> with dbsp.open(dbsp.circuit("demo", {"usual": usual})) as run:
    ...     run.push("t", [{"shop": "a", "size": x} for x in (41, 43, 43)])
    ...     print(run.step()["usual"].to_rows())
    ...     run.delete("t", [{"shop": "a", "size": 43}])
    ...     print(run.step()["usual"].to_rows())
    [(('a', 43), 1)]
    [(('a', 41), 1), (('a', 43), -1)]
    """
    return Aggregate(Mode(), (argument_of(argument),))
