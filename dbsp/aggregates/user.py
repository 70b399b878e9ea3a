"""Aggregates that users define: linear ones, which are sums of vectors, and folds over the rows of a group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbsp.aggregates.aggregate import Aggregate, argument_of, order_of
from dbsp.aggregates.kind import AggregateCall, Argument, Asked, VectorCall
from dbsp.aggregates.lists import value_order
from dbsp.aggregates.ordering import Order
from dbsp.diagnostics.source_lines import located, user_line
from dbsp.errors import CircuitError
from dbsp.expr.build import Expr
from dbsp.expr.functions import UserFunction
from dbsp.operators.groups.fold_part import FoldPart
from dbsp.operators.groups.limbs import fits_int64, joined
from dbsp.operators.groups.measures import Limbs
from dbsp.operators.groups.part import Positions
from dbsp.stored import stored
from dbsp.zset.batch import Batch
from dbsp.zset.fitting import array_of, cast_to
from dbsp.zset.schema import Column, Schema

Sums = npt.NDArray[np.int64]
WIDTH_MAX = 64


def _function(what: str, function: Any, type_: Any, depends_on: Iterable[Any]) -> UserFunction:
    """Return a user's function with the type of its result."""
    if not isinstance(type_, pa.DataType):
        raise CircuitError(f"{what} needs the type of its result: type={type_!r}", "write one such as dbsp.INT64")
    return UserFunction.of(function, Schema((Column("result", type_),)), "aggregate", depends_on)


def _failure(function: UserFunction, error: Exception) -> str:
    return f"{function.name} raised {type(error).__name__}: {error}"


@stored("Finished", "function")
@dataclass(frozen=True, slots=True)
class FinishByFunction:
    """A user's function of the sums."""

    function: UserFunction

    def __str__(self) -> str:
        """Return the function's name."""
        return self.function.name

    def column(self, sums: Sequence[Sums], type_: pa.DataType) -> tuple[pa.Array, Mapping[int, str] | None]:
        """Return the function's result for all groups in one call, or group by group if that call fails."""
        whole = np.zeros((len(sums[0]), len(sums)), np.int64)
        reasons: dict[int, str] = {}
        for at, limbs in enumerate(sums):
            low, high, fits = joined(limbs)
            whole[:, at] = low.view(np.int64)
            wrong = np.flatnonzero(~(fits & fits_int64(low, high))).tolist()
            reasons |= dict.fromkeys(wrong, "a sum of vectors does not fit 64 bits")
        try:
            column = self._called(whole, type_)
        except Exception:  # noqa: BLE001 (user code may raise anything; the group fails, not the pipeline)
            column = self._one_by_one(whole, type_, reasons)
        return column, reasons or None

    def _called(self, sums: Sums, type_: pa.DataType) -> pa.Array:
        """Call the function once, and return its checked result."""
        made = self.function.callable(sums)
        array = made if isinstance(made, pa.Array) else pa.array(made)
        array = cast_to(array, type_)
        if len(array) != len(sums):
            raise ValueError(f"one value per group is needed: got={len(array)} want={len(sums)}")
        return array

    def _one_by_one(self, sums: Sums, type_: pa.DataType, reasons: dict[int, str]) -> pa.Array:
        """Call the function for each group alone; a failing group is null, with its reason."""
        pieces = []
        for group in range(len(sums)):
            try:
                pieces.append(self._called(sums[group : group + 1], type_))
            except Exception as error:  # noqa: BLE001 (as above)
                pieces.append(pa.nulls(1, type_))
                reasons.setdefault(group, _failure(self.function, error))
        return pa.concat_arrays(pieces)


@stored("Linear", "map finish names width")
@dataclass(frozen=True, slots=True)
class Linear:
    """Sums of the vectors that `map` makes of rows, and the function `finish` of the sums."""

    map: UserFunction
    finish: UserFunction
    names: tuple[str, ...]
    width: int
    keeps_nulls = True

    def result(self, name: str, arguments: tuple[Argument, ...]) -> Column:  # noqa: ARG002 (of any type)
        """Return a column of the type that the user states."""
        return Column(name, self.finish.schema.columns[0].type)

    def add(self, call: AggregateCall, asked: Asked) -> None:
        """Request columns of vectors, and their sums."""
        names = tuple(f"__vector__{call.name}_{i}" for i in range(self.width))
        asked.vectors.append(VectorCall(self.map, call.columns, self.names, call.where, names))
        asked.linear(call.name, [Limbs(name, 2) for name in names], FinishByFunction(self.finish))

    def sql(self, arguments: Sequence[str]) -> str:
        """Return the call of the user's function."""
        return f"{self.map.name}({', '.join(arguments)})"


@stored("Called", "function columns")
@dataclass(frozen=True, slots=True)
class Called:
    """A user's function of the rows of a group."""

    function: UserFunction
    columns: tuple[tuple[str, str], ...]

    def of(self, rows: Batch, bounds: Positions) -> tuple[pa.Array, Mapping[int, str]]:
        """Return one value per group, null for a group without rows or with a failure, and the reasons of failures."""
        names = [name for name, _ in self.columns]
        lists = [rows.column(column).to_pylist() for _, column in self.columns]
        dicts = [dict(zip(names, values, strict=True)) for values in zip(*lists, strict=True)]
        type_ = self.function.schema.columns[0].type
        values: list[Any] = []
        reasons: dict[int, str] = {}
        for group in range(len(bounds) - 1):
            part = dicts[bounds[group] : bounds[group + 1]]
            try:
                value = self.function.callable(part) if part else None
                array_of([value], type_)
            except Exception as error:  # noqa: BLE001 (user code may raise anything; the group fails, not the pipeline)
                value = None
                reasons[group] = _failure(self.function, error)
            values.append(value)
        return array_of(values, type_), reasons


@stored("FoldRows", "function names")
@dataclass(frozen=True, slots=True)
class FoldRows:
    """A user's function over the rows of a group in order."""

    function: UserFunction
    names: tuple[str, ...]
    keeps_nulls = True

    def result(self, name: str, arguments: tuple[Argument, ...]) -> Column:  # noqa: ARG002 (of any type)
        """Return a column of the type that the user states."""
        return Column(name, self.function.schema.columns[0].type)

    def add(self, call: AggregateCall, asked: Asked) -> None:
        """Request the rows of each group."""
        values = asked.row_form(call, present=False)
        shown = dict(zip(self.names, call.columns, strict=True))
        columns = tuple((name, f"__value__{column}") for name, column in shown.items())
        fold = Called(self.function, columns)
        text = str(call).split(" = ", 1)[1]
        asked.part(FoldPart(name=call.name, text=text, values=values, order=value_order(call), fold=fold))

    def sql(self, arguments: Sequence[str]) -> str:
        """Return the call of the user's function."""
        return f"{self.function.name}({', '.join(arguments)})"


def linear_aggregate(
    *columns: str | Expr,
    map: Callable[[pa.Table], Any],  # noqa: A002 (the issue's name, and the usual one)
    finish: Callable[[Sums], Any],
    type: pa.DataType,  # noqa: A002 (what it is)
    width: int = 1,
    depends_on: Iterable[Any] = (),
) -> Aggregate:
    """Define an aggregate that is a sum: rows become vectors of whole numbers, and the result is computed from their sum.

    **Shape** The function `map` gets an Arrow table of the columns, in order, under their names (an expression: `arg0`,
    `arg1`, by its position). It returns int64 vectors: an array (rows, width) or a list of `width` arrays. The function
    `finish` gets the sums, an int64 array (groups, width), and returns one value per group of the given type. The sums
    of a group without rows are 0.

    **Law** The result of a + b is `finish` of the sum of their vectors: addition must suffice to combine rows.

    **State** Per group `width` sums.

    **Cost** Constant per changed row, summed before rows are exchanged; both functions are called with whole batches.

    **Errors** A row on which `map` raises goes to the error policy. So does a group on which `finish` raises, or whose
    sums exceed 64 bits. Both functions must be pure.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"price": dbsp.INT64, "pieces": dbsp.INT64})
    >>> def products(rows):
    ...     price, pieces = rows["price"].to_numpy(), rows["pieces"].to_numpy()
    ...     return [price * pieces, pieces]
    >>> def ratio(sums):
    ...     return sums[:, 0] // sums[:, 1].clip(1)
    >>> mean = dbsp.linear_aggregate("price", "pieces", map=products, finish=ratio, type=dbsp.INT64, width=2)
    >>> with dbsp.open(dbsp.circuit("demo", {"mean": t.aggregate(price=mean)})) as run:
    ...     run.push("t", [{"price": 10, "pieces": 1}, {"price": 40, "pieces": 2}])
    ...     print(run.step()["mean"].to_rows())
    ...     run.delete("t", [{"price": 40, "pieces": 2}])
    ...     _ = run.step()
    ...     print(run.view("mean").to_rows())
    [((30,), 1)]
    [((10,), 1)]
    """
    with located(user_line()):
        if isinstance(width, bool) or not isinstance(width, int) or not 1 <= width <= WIDTH_MAX:
            raise CircuitError(f"a vector has 1 to {WIDTH_MAX} numbers: width={width!r}")
        if not columns:
            raise CircuitError("linear_aggregate needs a column", 'such as dbsp.linear_aggregate("x", map=…)')
        mapped = _function("linear_aggregate", map, type, depends_on)
        finished = _function("linear_aggregate", finish, type, depends_on)
    arguments = tuple(argument_of(c) for c in columns)
    return Aggregate(Linear(mapped, finished, _names(columns), width), arguments)


def fold_aggregate(
    *columns: str | Expr,
    function: Callable[[list[dict[str, Any]]], Any],
    type: pa.DataType,  # noqa: A002 (what it is)
    order_by: Order = None,
    depends_on: Iterable[Any] = (),
) -> Aggregate:
    """Define an aggregate over the rows of a group: any function of the list of rows.

    **Shape** The function gets the group's rows as dicts of the columns (an expression is called `arg0`, `arg1`, by its
    position). Rows are in the order of `order_by`, then of the columns, each as often as it occurs. The function
    returns one value of the given type. It is not called without rows, and the result is then null.

    **State** The rows of each group.

    **Cost** A changed group is read and folded anew, in Python. If the result is a sum of values of single rows,
    `linear_aggregate` costs nothing per group.

    **Errors** A group on which the function raises, or returns a value that does not fit, goes to the error policy. The
    function must be pure.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "at": dbsp.INT64, "x": dbsp.INT64})
    >>> def ups(rows):
    ...     return sum(b["x"] > a["x"] for a, b in zip(rows, rows[1:]))
    >>> rises = dbsp.fold_aggregate("at", "x", function=ups, type=dbsp.INT64, order_by="at")
    >>> with dbsp.open(dbsp.circuit("demo", {"v": t.group_by("k").aggregate(rises=rises)})) as run:
    ...     run.push("t", [{"k": "a", "at": i, "x": x} for i, x in enumerate([3, 5, 4, 9])])
    ...     print(run.step()["v"].to_rows())
    ...     run.delete("t", [{"k": "a", "at": 3, "x": 9}])
    ...     print(run.step()["v"].to_rows())
    [(('a', 2), 1)]
    [(('a', 1), 1), (('a', 2), -1)]
    """
    with located(user_line()):
        if not columns:
            raise CircuitError("fold_aggregate needs a column", 'such as dbsp.fold_aggregate("x", function=…)')
        made = _function("fold_aggregate", function, type, depends_on)
    order = order_of("dbsp.fold_aggregate", order_by, needed=False)
    arguments = tuple(argument_of(c) for c in columns)
    return Aggregate(FoldRows(made, _names(columns)), arguments, order)


def _names(columns: Sequence[str | Expr]) -> tuple[str, ...]:
    """Return the names under which a user's function gets its columns; refuse a name that occurs twice."""
    names = tuple(column if isinstance(column, str) else f"arg{at}" for at, column in enumerate(columns))
    with located(user_line()):
        if len(set(names)) != len(names):
            raise CircuitError(f"a column is named twice: columns={list(names)}")
    return names
