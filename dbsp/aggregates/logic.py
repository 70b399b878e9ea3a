"""Aggregates that are computed by counting: all or any true values; and, or and xor over the bits of integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dbsp.aggregates.aggregate import Aggregate, argument_of
from dbsp.aggregates.counts import values_of
from dbsp.aggregates.kind import AggregateCall, Argument, Asked
from dbsp.errors import CircuitError
from dbsp.expr.build import Expr
from dbsp.expr.types import is_integer
from dbsp.operators.columns import column_of
from dbsp.operators.groups.measures import Bits, Trues, bits_of
from dbsp.operators.groups.sums import Sums, held_by
from dbsp.stored import stored
from dbsp.zset.arrays import storage_type
from dbsp.zset.schema import BOOL, Column


@stored("CountedTrue", "function")
@dataclass(frozen=True, slots=True)
class CountedTrue:
    """A result that is true if all, or any, of the counted values are."""

    function: str

    def __str__(self) -> str:
        """Return the function's name."""
        return f"bool_{self.function}"

    def column(self, sums: Sequence[Sums], type_: pa.DataType) -> tuple[pa.Array, None]:
        """Return each group's result, null where there is no value."""
        count = sums[0][:, 0]
        return pa.array(held_by(self.function, sums[1][:, 0], count), type_, mask=count == 0), None


@stored("CountedBits", "function")
@dataclass(frozen=True, slots=True)
class CountedBits:
    """The bits that all, any or an odd number of the values have."""

    function: str

    def __str__(self) -> str:
        """Return the function's name."""
        return f"bit_{self.function}"

    def column(self, sums: Sequence[Sums], type_: pa.DataType) -> tuple[pa.Array, None]:
        """Return each group's result, null where there is no value."""
        count = sums[0]
        held = held_by(self.function, sums[1], count)
        packed = np.packbits(held, axis=1, bitorder="little")
        values = np.ascontiguousarray(packed).view(np.dtype(storage_type(type_))).reshape(-1)
        return column_of(values, count[:, 0] != 0, type_), None


@stored("Bool", "function")
@dataclass(frozen=True, slots=True)
class Bool:
    """The kind of `bool_and` and `bool_or`: true if all values are, or if any is."""

    function: str
    keeps_nulls = False

    def result(self, name: str, arguments: tuple[Argument, ...]) -> Column:
        """Return a boolean column; raise `CircuitError` for an argument that is no condition."""
        (argument,) = arguments
        if argument.type != BOOL:
            hint = f"write a comparison, such as {argument.written} != 0"
            raise CircuitError(
                f"bool_{self.function} is for conditions: argument={argument.text} type={argument.type}", hint
            )
        return Column(name, BOOL)

    def add(self, call: AggregateCall, asked: Asked) -> None:
        """Request the counts of values and of true ones."""
        (column,) = call.columns
        asked.linear(call.name, [values_of(asked, column), Trues(column)], CountedTrue(self.function))

    def sql(self, arguments: Sequence[str]) -> str:
        """Return the call in SQL."""
        return f"bool_{self.function}({arguments[0]})"


@stored("Bit", "function")
@dataclass(frozen=True, slots=True)
class Bit:
    """And, or, or xor over integers, bit by bit."""

    function: str
    keeps_nulls = False

    def result(self, name: str, arguments: tuple[Argument, ...]) -> Column:
        """Return a column of the argument's type; raise `CircuitError` for an argument that is no integer."""
        (argument,) = arguments
        if not is_integer(argument.type):
            hint = f"write dbsp.bit_{self.function}({argument.written}.cast(dbsp.INT64))"
            raise CircuitError(
                f"bit_{self.function} is for integers: argument={argument.text} type={argument.type}", hint
            )
        return Column(name, argument.type)

    def add(self, call: AggregateCall, asked: Asked) -> None:
        """Request a count per bit."""
        (column,) = call.columns
        bits = Bits(column, bits_of(asked.rows[column].type))
        asked.linear(call.name, [values_of(asked, column), bits], CountedBits(self.function))

    def sql(self, arguments: Sequence[str]) -> str:
        """Return the call in SQL."""
        return f"bit_{self.function}({arguments[0]})"


def bool_and(argument: str | Expr) -> Aggregate:
    """Return whether all values are true; null if there is none.

    **State** Two counts per group.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT64})
    >>> all_big = t.group_by("k").aggregate(yes=dbsp.bool_and(dbsp.col("x") > 10))
    >>> with dbsp.open(dbsp.circuit("demo", {"all_big": all_big})) as run:
    ...     run.push("t", [{"k": "a", "x": 20}, {"k": "a", "x": 5}])
    ...     print(run.step()["all_big"].to_rows())
    ...     run.delete("t", [{"k": "a", "x": 5}])
    ...     print(run.step()["all_big"].to_rows())
    [(('a', False), 1)]
    [(('a', False), -1), (('a', True), 1)]
    """
    return Aggregate(Bool("and"), (argument_of(argument),))


def bool_or(argument: str | Expr) -> Aggregate:
    """Return whether any value is true; null if there is none.

    **State** Two counts per group.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "late": dbsp.BOOL})
    >>> some = t.group_by("k").aggregate(late=dbsp.bool_or("late"))
    >>> with dbsp.open(dbsp.circuit("demo", {"some": some})) as run:
    ...     run.push("t", [{"k": "a", "late": False}, {"k": "a", "late": True}])
    ...     print(run.step()["some"].to_rows())
    ...     run.delete("t", [{"k": "a", "late": True}])
    ...     print(run.step()["some"].to_rows())
    [(('a', True), 1)]
    [(('a', False), 1), (('a', True), -1)]
    """
    return Aggregate(Bool("or"), (argument_of(argument),))


def bit_and(argument: str | Expr) -> Aggregate:
    """Return the bits that all values have, in their type; null if there is none.

    **State** A count per bit and group.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT64})
    >>> common = t.group_by("k").aggregate(x=dbsp.bit_and("x"))
    >>> with dbsp.open(dbsp.circuit("demo", {"common": common})) as run:
    ...     run.push("t", [{"k": "a", "x": 6}, {"k": "a", "x": 7}, {"k": "a", "x": 12}])
    ...     print(run.step()["common"].to_rows())
    ...     run.delete("t", [{"k": "a", "x": 12}])
    ...     print(run.step()["common"].to_rows())
    [(('a', 4), 1)]
    [(('a', 4), -1), (('a', 6), 1)]
    """
    return Aggregate(Bit("and"), (argument_of(argument),))


def bit_or(argument: str | Expr) -> Aggregate:
    """Return the bits that any value has, in their type; null if there is none.

    **State** A count per bit and group.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT64})
    >>> any_ = t.group_by("k").aggregate(x=dbsp.bit_or("x"))
    >>> with dbsp.open(dbsp.circuit("demo", {"any_": any_})) as run:
    ...     run.push("t", [{"k": "a", "x": 1}, {"k": "a", "x": 6}])
    ...     print(run.step()["any_"].to_rows())
    ...     run.delete("t", [{"k": "a", "x": 6}])
    ...     print(run.step()["any_"].to_rows())
    [(('a', 7), 1)]
    [(('a', 1), 1), (('a', 7), -1)]
    """
    return Aggregate(Bit("or"), (argument_of(argument),))


def bit_xor(argument: str | Expr) -> Aggregate:
    """Return the bits that an odd number of values have, in their type; null if there is none.

    **State** As `bit_or`.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT64})
    >>> odd = t.group_by("k").aggregate(x=dbsp.bit_xor("x"))
    >>> with dbsp.open(dbsp.circuit("demo", {"odd": odd})) as run:
    ...     run.push("t", [{"k": "a", "x": 1}, {"k": "a", "x": 7}])
    ...     print(run.step()["odd"].to_rows())
    ...     run.delete("t", [{"k": "a", "x": 1}])
    ...     print(run.step()["odd"].to_rows())
    [(('a', 6), 1)]
    [(('a', 6), -1), (('a', 7), 1)]
    """
    return Aggregate(Bit("xor"), (argument_of(argument),))
