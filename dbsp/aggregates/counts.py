"""Count, count distinct, and mode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dbsp.aggregates.aggregate import Aggregate, argument_of
from dbsp.aggregates.kind import AggregateCall, Argument, Asked
from dbsp.errors import CircuitError
from dbsp.expr.build import Expr
from dbsp.expr.expression import Call, ColumnRef, Literal
from dbsp.operators.groups.measures import Trues, Valid
from dbsp.operators.groups.mode_part import ModePart
from dbsp.operators.groups.sums import Counted
from dbsp.source_lines import located, user_line
from dbsp.stored import stored
from dbsp.zset.schema import INT64, Column, is_list


@stored("Count")
@dataclass(frozen=True, slots=True)
class Count:
    """How many rows, or values that are not null."""

    keeps_nulls = False

    def result(self, name: str, arguments: tuple[Argument, ...]) -> Column:  # noqa: ARG002 (of any type)
        """An int64, never null."""
        return Column(name, INT64, nullable=False)

    def add(self, call: AggregateCall, asked: Asked) -> None:
        """One sum; none of its own where no value is null."""
        asked.linear(call.name, [values_of(asked, call.columns[0]) if call.columns else None], Counted())

    def sql(self, arguments: Sequence[str]) -> str:
        """As SQL writes it."""
        return f"count({', '.join(arguments) or '*'})"


@stored("CountTrue")
@dataclass(frozen=True, slots=True)
class CountTrue:
    """How many rows for which a condition is true."""

    keeps_nulls = False

    def result(self, name: str, arguments: tuple[Argument, ...]) -> Column:  # noqa: ARG002 (of a condition)
        """An int64, never null."""
        return Column(name, INT64, nullable=False)

    def add(self, call: AggregateCall, asked: Asked) -> None:
        """One sum."""
        asked.linear(call.name, [Trues(call.columns[0])], Counted())

    def sql(self, arguments: Sequence[str]) -> str:
        """As SQL writes it."""
        return f"count_if({arguments[0]})"


@stored("CountDistinct")
@dataclass(frozen=True, slots=True)
class CountDistinct:
    """How many different values that are not null."""

    keeps_nulls = False

    def result(self, name: str, arguments: tuple[Argument, ...]) -> Column:  # noqa: ARG002 (of any type)
        """An int64, never null."""
        return Column(name, INT64, nullable=False)

    def add(self, call: AggregateCall, asked: Asked) -> None:
        """A part that knows the values, shared with all distinct counts of the column."""
        asked.distinct(call)

    def sql(self, arguments: Sequence[str]) -> str:
        """As SQL writes it."""
        return f"count(distinct {arguments[0]})"


@stored("Mode")
@dataclass(frozen=True, slots=True)
class Mode:
    """The value that occurs most often; the least of those that do."""

    keeps_nulls = False

    def result(self, name: str, arguments: tuple[Argument, ...]) -> Column:
        """The argument's type."""
        (argument,) = arguments
        if is_list(argument.type):
            hint = 'explode the list first, .explode(…), or join its elements: .list_join(",")'
            raise CircuitError(f"mode is not for lists: argument={argument.text} type={argument.type}", hint)
        return Column(name, argument.type)

    def add(self, call: AggregateCall, asked: Asked) -> None:
        """A part that counts the values."""
        asked.part(ModePart(name=call.name, text=self.sql(call.columns), values=asked.row_form(call, present=True)))

    def sql(self, arguments: Sequence[str]) -> str:
        """As SQL writes it."""
        return f"mode({arguments[0]})"


def values_of(asked: Asked, column: str) -> Valid | None:
    """The measure that counts a column's values: the rows, if none is null."""
    return Valid(column) if asked.rows[column].nullable else None


def apart(aggregate: Aggregate) -> Aggregate:
    """A resolved count where a condition holds, by the condition alone; a distinct count as one of the column with that filter.

    So that no column of values and nulls is made to be counted, and all distinct counts of one column are kept together. Only of
    a constant and of a plain column, which cannot fail where the condition does not hold.
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
    """Number of rows, or of values that are not null; int64, never null. `count("*")` is `count()`, as in SQL.

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
    """Number of different values that are not null; int64, never null.

    **State** the different values of each group, once for all distinct counts of a column under different filters. **Cost**
    one look-up per changed value.

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


def mode(argument: str | Expr) -> Aggregate:
    """The value that occurs most often, in its own type; where several do, the least of them; null if there is none.

    **Law** nulls are left out; NaN is one value, above every number. Of any type that has an order.

    **State** the different values of each group, twice. **Cost** one look-up per changed value; where the mode loses and no
    value that changed with it takes its place, the values that are the most frequent then are read, all that tie.

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
