"""Aggregates of all values of a group in order, as one text or one list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.aggregates.aggregate import Aggregate, argument_of, order_of
from dbsp.aggregates.kind import AggregateCall, Argument, Asked
from dbsp.aggregates.ordering import Order
from dbsp.diagnostics.source_lines import located, user_line
from dbsp.errors import CircuitError
from dbsp.expr.build import Expr
from dbsp.operators.groups.fold_part import FoldPart
from dbsp.operators.groups.part import Positions
from dbsp.operators.groups.row_form import value_name
from dbsp.stored import stored
from dbsp.zset.batch import Batch
from dbsp.zset.equality import equal_keys
from dbsp.zset.schema import STRING, Column, OrderBy, list_of


def value_order(call: AggregateCall) -> tuple[OrderBy, ...]:
    """Return the call's order by the columns of its row form; ties, and calls without an order, are sorted by the arguments."""
    named = {by.column for by in call.order}
    order = (*call.order, *(OrderBy(name) for name in dict.fromkeys(call.columns) if name not in named))
    return tuple(OrderBy(value_name(by.column), by.descending, by.nulls_first) for by in order)


def first_of_each(values: pa.Array, bounds: Positions) -> npt.NDArray[np.bool_]:
    """Return which of the sorted values of each group differ from the one before."""
    rows = np.arange(1, max(len(values), 1))
    first = np.ones(len(values), np.bool_)
    first[1:] = ~equal_keys(values, rows, values, rows - 1)
    first[bounds[:-1][bounds[:-1] < len(values)]] = True
    return first


def _once(values: pa.Array, bounds: Positions) -> tuple[pa.Array, Positions]:
    """Return the sorted values of each group without those equal to the one before, and the new bounds of the groups."""
    first = first_of_each(values, bounds)
    return values.filter(pa.array(first)), np.concatenate([[0], np.cumsum(first)])[bounds]


def lists_of(values: pa.Array, bounds: Positions, type_: pa.DataType) -> pa.Array:
    """Return the values of each group as a list; null for an empty group."""
    lists = pa.ListArray.from_arrays(pa.array(bounds.astype(np.int32)), values, type=type_)
    return pc.if_else(pa.array(bounds[1:] > bounds[:-1]), lists, pa.scalar(None, type_))


@stored("Joined", "column separator distinct")
@dataclass(frozen=True, slots=True)
class Joined:
    """A fold that concatenates texts."""

    column: str
    separator: str
    distinct: bool

    def of(self, rows: Batch, bounds: Positions) -> tuple[pa.Array, Mapping[int, str]]:
        """Return one text per group."""
        values = rows.column(self.column)
        values, bounds = _once(values, bounds) if self.distinct else (values, bounds)
        lists = lists_of(values, bounds, list_of(STRING))
        return pc.binary_join(lists, self.separator), {}


@stored("Listed", "column distinct")
@dataclass(frozen=True, slots=True)
class ListOfValues:
    """A fold that lists values."""

    column: str
    distinct: bool

    def of(self, rows: Batch, bounds: Positions) -> tuple[pa.Array, Mapping[int, str]]:
        """Return one list per group."""
        values = rows.column(self.column)
        values, bounds = _once(values, bounds) if self.distinct else (values, bounds)
        return lists_of(values, bounds, list_of(values.type)), {}


@stored("StringAgg", "separator distinct")
@dataclass(frozen=True, slots=True)
class StringAgg:
    """The texts that are not null, in order, joined by a separator."""

    separator: str
    distinct: bool = False
    keeps_nulls = False

    def result(self, name: str, arguments: tuple[Argument, ...]) -> Column:
        """Return a text column; raise `CircuitError` for an argument that is no text."""
        (argument,) = arguments
        if argument.type != STRING:
            hint = f"write dbsp.string_agg({argument.written}.cast(dbsp.STRING))"
            raise CircuitError(f"string_agg is for texts: argument={argument.text} type={argument.type}", hint)
        return Column(name, STRING)

    def add(self, call: AggregateCall, asked: Asked) -> None:
        """Request a fold."""
        fold = Joined(value_name(call.columns[0]), self.separator, self.distinct)
        text = str(call).split(" = ", 1)[1]
        values = asked.row_form(call, present=True)
        asked.part(FoldPart(name=call.name, text=text, values=values, order=value_order(call), fold=fold))

    def sql(self, arguments: Sequence[str]) -> str:
        """Return the call in SQL."""
        return (
            f"string_agg({'distinct ' * self.distinct}{arguments[0]}, '{self.separator.replace(chr(39), 2 * chr(39))}')"
        )


@stored("ArrayAgg", "distinct")
@dataclass(frozen=True, slots=True)
class ArrayAgg:
    """The values in order, nulls included."""

    distinct: bool = False
    keeps_nulls = True

    def result(self, name: str, arguments: tuple[Argument, ...]) -> Column:
        """Return a column of lists of the argument's type."""
        (argument,) = arguments
        return Column(name, list_of(argument.type))

    def add(self, call: AggregateCall, asked: Asked) -> None:
        """Request a fold."""
        fold = ListOfValues(value_name(call.columns[0]), self.distinct)
        text = str(call).split(" = ", 1)[1]
        values = asked.row_form(call, present=False)
        asked.part(FoldPart(name=call.name, text=text, values=values, order=value_order(call), fold=fold))

    def sql(self, arguments: Sequence[str]) -> str:
        """Return the call in SQL."""
        return f"array_agg({'distinct ' * self.distinct}{arguments[0]})"


def string_agg(
    argument: str | Expr, separator: str = ",", order_by: Order = None, *, distinct: bool = False
) -> Aggregate:
    """Join the texts that are not null, in order, with `separator` between them; null if there is none.

    **Shape** The texts are in the order of `order_by`; ties, and all texts without it, are in their own order. A text
    occurs once per row, with `distinct` once. With `distinct`, `order_by` must be the argument or absent, because a
    text of several rows has no place in another order.

    **State** The rows of each group.

    **Cost** A changed group is read and joined anew.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "at": dbsp.INT64, "word": dbsp.STRING})
    >>> said = t.group_by("k").aggregate(words=dbsp.string_agg("word", " ", order_by="at"))
    >>> with dbsp.open(dbsp.circuit("demo", {"said": said})) as run:
    ...     run.push("t", [{"k": "a", "at": 2, "word": "there"}, {"k": "a", "at": 1, "word": "hello"}])
    ...     print(run.step()["said"].to_rows())
    ...     run.delete("t", [{"k": "a", "at": 1, "word": "hello"}])
    ...     print(run.step()["said"].to_rows())
    [(('a', 'hello there'), 1)]
    [(('a', 'hello there'), -1), (('a', 'there'), 1)]

    >>> known = t.group_by("k").aggregate(words=dbsp.string_agg("word", " ", distinct=True))
    >>> with dbsp.open(dbsp.circuit("demo", {"known": known})) as run:
    ...     run.push("t", [{"k": "a", "at": at, "word": word} for at, word in enumerate(["so", "be", "so"])])
    ...     print(run.step()["known"].to_rows())
    ...     run.delete("t", [{"k": "a", "at": 0, "word": "so"}])
    ...     print(run.step()["known"].to_rows())
    ...     run.delete("t", [{"k": "a", "at": 2, "word": "so"}])
    ...     print(run.step()["known"].to_rows())
    [(('a', 'be so'), 1)]
    []
    [(('a', 'be so'), -1), (('a', 'be'), 1)]
    """
    with located(user_line()):
        if not isinstance(separator, str):
            raise CircuitError(f"a separator is a text: got={separator!r}", 'such as dbsp.string_agg("x", ", ")')
    return _ordered("string_agg", StringAgg(separator, distinct), argument, order_by, distinct)


def array_agg(argument: str | Expr, order_by: Order = None, *, distinct: bool = False) -> Aggregate:
    """Return the values as a list in order, nulls included; null if there is no row.

    Order, `distinct`, **State** and **Cost** as in `string_agg`.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT64})
    >>> all_x = t.group_by("k").aggregate(x=dbsp.array_agg("x", order_by=dbsp.desc("x")))
    >>> with dbsp.open(dbsp.circuit("demo", {"all_x": all_x})) as run:
    ...     run.push("t", [{"k": "a", "x": 5}, {"k": "a", "x": 7}])
    ...     print(run.step()["all_x"].to_rows())
    ...     run.delete("t", [{"k": "a", "x": 7}])
    ...     print(run.step()["all_x"].to_rows())
    [(('a', [7, 5]), 1)]
    [(('a', [5]), 1), (('a', [7, 5]), -1)]
    """
    return _ordered("array_agg", ArrayAgg(distinct), argument, order_by, distinct)


def _ordered(name: str, kind: StringAgg | ArrayAgg, argument: str | Expr, order_by: Order, distinct: bool) -> Aggregate:
    """Return the aggregate; refuse an order of distinct values other than their own, ascending or descending."""
    order, value = order_of(f"dbsp.{name}", order_by, needed=False), argument_of(argument)
    if distinct and [by.expression for by in order] not in ([], [value]):
        with located(user_line()):
            hint = 'leave order_by out, or give the argument itself, such as dbsp.desc("x"); for the order of their first rows'
            raise CircuitError(
                f"distinct values can be ordered only by themselves: order_by={', '.join(str(by.expression) for by in order)}",
                f"{hint} group by the value too, with dbsp.min of the order, and then by the rest",
            )
    return Aggregate(kind, (value,), order)
