"""The first row of a group in some order: min and max, arg_min and arg_max, first and last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dbsp.aggregates.aggregate import Aggregate, argument_of, order_of
from dbsp.aggregates.kind import AggregateCall, Argument, Asked
from dbsp.aggregates.ordering import ComputedOrder, Order
from dbsp.expr.build import Expr
from dbsp.operators.groups.extremes import Ended, ExtremeMeasure, keeps_extremes
from dbsp.operators.groups.first_part import FirstPart
from dbsp.operators.groups.measures import Valid
from dbsp.operators.groups.row_form import RowForm, value_name
from dbsp.stored import stored
from dbsp.zset.schema import Column, OrderBy


def first_part(call: AggregateCall, values: RowForm, order: Sequence[OrderBy], appends: bool) -> FirstPart:
    """Return the part that gives the first argument in the group's first row by this order."""
    in_values = tuple(OrderBy(value_name(by.column), by.descending, by.nulls_first) for by in order)
    text = str(call).split(" = ", 1)[1]
    gives = value_name(call.columns[0])
    return FirstPart(name=call.name, text=text, values=values, order=in_values, gives=gives, appends=appends)


@stored("Extreme", "greatest")
@dataclass(frozen=True, slots=True)
class Extreme:
    """The least value, or the greatest."""

    greatest: bool
    keeps_nulls = False

    def result(self, name: str, arguments: tuple[Argument, ...]) -> Column:
        """Return a column of the argument's type."""
        return Column(name, arguments[0].type)

    def add(self, call: AggregateCall, asked: Asked) -> None:
        """Request the first value in order.

        If no row is ever deleted and the value is a number or a time, it is stored with the group's sums instead.
        """
        column = asked.rows[call.columns[0]]
        if asked.appends and keeps_extremes(column.type):
            kept = ExtremeMeasure(column.name, self.greatest)
            asked.linear(call.name, (Valid(column.name) if column.nullable else None, kept), Ended(kept))
            return
        values = asked.row_form(call, present=True)
        asked.part(first_part(call, values, [OrderBy(call.columns[0], self.greatest)], asked.appends))

    def sql(self, arguments: Sequence[str]) -> str:
        """Return the call in SQL."""
        return f"{'max' if self.greatest else 'min'}({arguments[0]})"


@stored("ArgExtreme", "greatest")
@dataclass(frozen=True, slots=True)
class ArgExtreme:
    """The first argument in the row where the second is least, or greatest."""

    greatest: bool
    keeps_nulls = False

    def result(self, name: str, arguments: tuple[Argument, ...]) -> Column:
        """Return a column of the first argument's type."""
        return Column(name, arguments[0].type)

    def add(self, call: AggregateCall, asked: Asked) -> None:
        """Request the first row by the second argument; ties are broken by the least first argument."""
        value, by = call.columns
        order = [OrderBy(by, self.greatest), *([OrderBy(value)] if value != by else [])]
        asked.part(first_part(call, asked.row_form(call, present=True), order, asked.appends))

    def sql(self, arguments: Sequence[str]) -> str:
        """Return the call in SQL."""
        return f"arg_{'max' if self.greatest else 'min'}({', '.join(arguments)})"


@stored("FirstInOrder", "last")
@dataclass(frozen=True, slots=True)
class FirstInOrder:
    """The argument in the first row of the order, or in the last."""

    last: bool
    keeps_nulls = True

    def result(self, name: str, arguments: tuple[Argument, ...]) -> Column:
        """Return a column of the argument's type."""
        return Column(name, arguments[0].type)

    def add(self, call: AggregateCall, asked: Asked) -> None:
        """Request the first row of the order; for the last row the order is reversed, that of ties included."""
        order = list(call.order)
        if call.columns[0] not in {by.column for by in order}:
            order.append(OrderBy(call.columns[0]))
        if self.last:
            order = [OrderBy(by.column, not by.descending, not by.nulls_first) for by in order]
        asked.part(first_part(call, asked.row_form(call, present=False), order, asked.appends))

    def sql(self, arguments: Sequence[str]) -> str:
        """Return the call in SQL."""
        return f"{'last' if self.last else 'first'}({arguments[0]})"


def min(argument: str | Expr) -> Aggregate:  # noqa: A001 (SQL's name; used as dbsp.min)
    """Return the least value, in its own type; null if there is none. NaN is above every number.

    **State** The values of each group, sorted. Over append-only tables one value of each group; numbers and times are
    stored with the group's sums.

    **Cost** The first values of the changed groups. In a queue, where the least value of a group is deleted all the
    time, deleted values are skipped once. If very many short groups lose values in a step, deleted ones are read until
    a merge removes them.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT64})
    >>> least = t.group_by("k").aggregate(x=dbsp.min("x"))
    >>> with dbsp.open(dbsp.circuit("demo", {"least": least})) as run:
    ...     run.push("t", [{"k": "a", "x": 5}, {"k": "a", "x": 7}])
    ...     print(run.step()["least"].to_rows())
    ...     run.delete("t", [{"k": "a", "x": 5}])
    ...     print(run.step()["least"].to_rows())
    [(('a', 5), 1)]
    [(('a', 5), -1), (('a', 7), 1)]
    """
    return Aggregate(Extreme(False), (argument_of(argument),))


def max(argument: str | Expr) -> Aggregate:  # noqa: A001 (SQL's name; used as dbsp.max)
    """Return the greatest value, in its own type; null if there is none. NaN is above every number.

    **State**, **Cost** As `min`.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT64})
    >>> most = t.group_by("k").aggregate(x=dbsp.max("x"))
    >>> with dbsp.open(dbsp.circuit("demo", {"most": most})) as run:
    ...     run.push("t", [{"k": "a", "x": 5}, {"k": "a", "x": 7}])
    ...     print(run.step()["most"].to_rows())
    ...     run.delete("t", [{"k": "a", "x": 7}])
    ...     print(run.step()["most"].to_rows())
    [(('a', 7), 1)]
    [(('a', 5), 1), (('a', 7), -1)]
    """
    return Aggregate(Extreme(True), (argument_of(argument),))


def arg_min(argument: str | Expr, by: str | Expr) -> Aggregate:
    """Return the argument in the row where `by` is least; of several such rows the least argument.

    **Shape** The argument's type. Rows where either is null take no part; the result is null if no row is left.

    **State** The argument and `by` of each row, sorted by `by`.

    **Cost** The first rows of the changed groups, with all that tie there.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"city": dbsp.STRING, "day": dbsp.STRING, "cold": dbsp.INT64})
    >>> coldest = t.group_by("city").aggregate(day=dbsp.arg_min("day", "cold"))
    >>> with dbsp.open(dbsp.circuit("demo", {"coldest": coldest})) as run:
    ...     run.push("t", [{"city": "a", "day": "Mon", "cold": 3}, {"city": "a", "day": "Tue", "cold": -2}])
    ...     print(run.step()["coldest"].to_rows())
    ...     run.delete("t", [{"city": "a", "day": "Tue", "cold": -2}])
    ...     print(run.step()["coldest"].to_rows())
    [(('a', 'Tue'), 1)]
    [(('a', 'Mon'), 1), (('a', 'Tue'), -1)]
    """
    return Aggregate(ArgExtreme(False), (argument_of(argument), argument_of(by)))


def arg_max(argument: str | Expr, by: str | Expr) -> Aggregate:
    """Return the argument in the row where `by` is greatest; of several such rows the least argument. Otherwise as `arg_min`.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"item": dbsp.STRING, "price": dbsp.INT64})
    >>> dear = t.aggregate(item=dbsp.arg_max("item", "price"))
    >>> with dbsp.open(dbsp.circuit("demo", {"dear": dear})) as run:
    ...     run.push("t", [{"item": "tea", "price": 3}, {"item": "silk", "price": 90}])
    ...     print(run.step()["dear"].to_rows())
    ...     run.delete("t", [{"item": "silk", "price": 90}])
    ...     print(run.step()["dear"].to_rows())
    [(('silk',), 1)]
    [(('silk',), -1), (('tea',), 1)]
    """
    return Aggregate(ArgExtreme(True), (argument_of(argument), argument_of(by)))


def first(
    argument: str | Expr,
    order_by: Order = None,
    *,
    ignore_nulls: bool = False,
) -> Aggregate:
    """Return the argument in the group's first row by `order_by`; of rows that tie the least argument, nulls last.

    **Shape** The argument's type. A null is a value here; with `ignore_nulls` the result is the first value that is not
    null. The order may name fields of structs (`"address.zip"`) and hold expressions, as in `string_agg` and
    `array_agg`.

    **State** The argument and the ordering columns of each row, sorted.

    **Cost** The first rows of the changed groups, with all that tie in the first ordering column.

    **Errors** `CircuitError` without `order_by`: rows have no order of their own.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "at": dbsp.INT64, "x": dbsp.STRING})
    >>> newest = t.group_by("k").aggregate(x=dbsp.last("x", order_by="at"))
    >>> with dbsp.open(dbsp.circuit("demo", {"newest": newest})) as run:
    ...     run.push("t", [{"k": "a", "at": 1, "x": "old"}, {"k": "a", "at": 2, "x": "new"}])
    ...     print(run.step()["newest"].to_rows())
    ...     run.delete("t", [{"k": "a", "at": 2, "x": "new"}])
    ...     print(run.step()["newest"].to_rows())
    [(('a', 'new'), 1)]
    [(('a', 'new'), -1), (('a', 'old'), 1)]
    """
    return _placed(False, argument, order_of("dbsp.first", order_by, needed=True), ignore_nulls)


def last(
    argument: str | Expr,
    order_by: Order = None,
    *,
    ignore_nulls: bool = False,
) -> Aggregate:
    """Return the argument in the group's last row by `order_by`; ties are broken in reverse too. Otherwise as `first`.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "at": dbsp.INT64, "x": dbsp.INT64})
    >>> known = t.group_by("k").aggregate(x=dbsp.last("x", order_by="at"))
    >>> with dbsp.open(dbsp.circuit("demo", {"known": known})) as run:
    ...     run.push("t", [{"k": "a", "at": 1, "x": 8}, {"k": "a", "at": 2, "x": 3}])
    ...     print(run.step()["known"].to_rows())
    ...     run.delete("t", [{"k": "a", "at": 2, "x": 3}])
    ...     print(run.step()["known"].to_rows())
    [(('a', 3), 1)]
    [(('a', 3), -1), (('a', 8), 1)]
    """
    return _placed(True, argument, order_of("dbsp.last", order_by, needed=True), ignore_nulls)


def _placed(last: bool, argument: str | Expr, order: tuple[ComputedOrder, ...], ignore_nulls: bool) -> Aggregate:
    """Return the first or last value of all rows, or with `ignore_nulls` of those with a value."""
    value = argument_of(argument)
    aggregate = Aggregate(FirstInOrder(last), (value,), order)
    return aggregate.where(Expr(value).is_not_null()) if ignore_nulls else aggregate
