"""All values of a group in order, as one text or one list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.aggregates.aggregate import Aggregate, argument_of, order_of
from dbsp.aggregates.kind import AggregateCall, Argument, Asked
from dbsp.aggregates.ordering import Order
from dbsp.circuit.source_lines import located, user_line
from dbsp.errors import CircuitError
from dbsp.expr.build import Expr
from dbsp.operators.groups.fold_part import FoldPart
from dbsp.operators.groups.part import Positions
from dbsp.operators.groups.row_form import value_name
from dbsp.zset.batch import Batch
from dbsp.zset.schema import STRING, Column, OrderBy, list_of


def value_order(call: AggregateCall) -> tuple[OrderBy, ...]:
    """The call's order among the values; where rows tie, and without one, that of its arguments."""
    named = {by.column for by in call.order}
    order = (*call.order, *(OrderBy(name) for name in dict.fromkeys(call.columns) if name not in named))
    return tuple(OrderBy(value_name(by.column), by.descending, by.nulls_first) for by in order)


def _lists(values: pa.Array, bounds: Positions, type_: pa.DataType) -> pa.Array:
    """The values of each group; null where there is none."""
    lists = pa.ListArray.from_arrays(pa.array(bounds.astype(np.int32)), values, type=type_)
    return pc.if_else(pa.array(bounds[1:] > bounds[:-1]), lists, pa.scalar(None, type_))


@dataclass(frozen=True, slots=True)
class Joined:
    """Texts end to end."""

    column: str
    separator: str

    def of(self, rows: Batch, bounds: Positions) -> tuple[pa.Array, Mapping[int, str]]:
        """One text per group."""
        lists = _lists(rows.column(self.column), bounds, list_of(STRING))
        return pc.binary_join(lists, self.separator), {}


@dataclass(frozen=True, slots=True)
class Listed:
    """Values as a list."""

    column: str

    def of(self, rows: Batch, bounds: Positions) -> tuple[pa.Array, Mapping[int, str]]:
        """One list per group."""
        values = rows.column(self.column)
        return _lists(values, bounds, list_of(values.type)), {}


@dataclass(frozen=True, slots=True)
class StringAgg:
    """The texts that are not null, in order, with a separator between."""

    separator: str
    keeps_nulls = False

    def result(self, name: str, arguments: tuple[Argument, ...]) -> Column:
        """A text."""
        (argument,) = arguments
        if argument.type != STRING:
            hint = f"write dbsp.string_agg({argument.written}.cast(dbsp.STRING))"
            raise CircuitError(f"string_agg is for texts: argument={argument.text} type={argument.type}", hint)
        return Column(name, STRING)

    def add(self, call: AggregateCall, asked: Asked) -> None:
        """A fold."""
        fold = Joined(value_name(call.columns[0]), self.separator)
        text = str(call).split(" = ", 1)[1]
        values = asked.row_form(call, present=True)
        asked.part(FoldPart(name=call.name, text=text, values=values, order=value_order(call), fold=fold))

    def sql(self, arguments: Sequence[str]) -> str:
        """As SQL writes it."""
        return f"string_agg({arguments[0]}, '{self.separator.replace(chr(39), 2 * chr(39))}')"


@dataclass(frozen=True, slots=True)
class ArrayAgg:
    """The values in order, nulls too."""

    keeps_nulls = True

    def result(self, name: str, arguments: tuple[Argument, ...]) -> Column:
        """A list of the argument's type."""
        (argument,) = arguments
        return Column(name, list_of(argument.type))

    def add(self, call: AggregateCall, asked: Asked) -> None:
        """A fold."""
        fold = Listed(value_name(call.columns[0]))
        text = str(call).split(" = ", 1)[1]
        values = asked.row_form(call, present=False)
        asked.part(FoldPart(name=call.name, text=text, values=values, order=value_order(call), fold=fold))

    def sql(self, arguments: Sequence[str]) -> str:
        """As SQL writes it."""
        return f"array_agg({arguments[0]})"


def string_agg(argument: str | Expr, separator: str = ",", order_by: Order = None) -> Aggregate:
    """The texts that are not null, joined in order, `separator` between them; null if there is none.

    **Shape** in the order of `order_by`, where rows tie and without it in that of the texts; a text is there as often as rows
    have it.

    **State** the rows of each group. **Cost** a changed group is read and joined anew.

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
    """
    with located(user_line()):
        if not isinstance(separator, str):
            raise CircuitError(f"a separator is a text: got={separator!r}", 'such as dbsp.string_agg("x", ", ")')
    order = order_of("dbsp.string_agg", order_by, needed=False)
    return Aggregate(StringAgg(separator), (argument_of(argument),), order)


def array_agg(argument: str | Expr, order_by: Order = None) -> Aggregate:
    """The values as a list in order, nulls among them; null if there is no row. Order, **State** and **Cost** as `string_agg`."""
    return Aggregate(ArrayAgg(), (argument_of(argument),), order_of("dbsp.array_agg", order_by, needed=False))
