"""Windows over a stream: functions of the rows of a partition, in an order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

import pyarrow as pa

from dbsp.aggregates import Aggregate
from dbsp.aggregates.kind import AggregateCall, Asked
from dbsp.aggregates.quantiles import Quantile
from dbsp.algebra.window import WindowNode
from dbsp.circuit.nodes import Node
from dbsp.diagnostics.source_lines import SourceLine, located, user_line
from dbsp.errors import CircuitError
from dbsp.expr.answering import Answering
from dbsp.expr.build import Expr, when
from dbsp.expr.expression import ColumnRef, Expression, Literal
from dbsp.expr.resolving import resolve
from dbsp.expr.types import adopt, is_integer, is_number
from dbsp.operators.groups.fold_part import FoldPart
from dbsp.operators.groups.quantile_part import QuantilePlace
from dbsp.operators.order.window_calls import FOLD, NEIGHBOURS, WindowCall
from dbsp.stream.computed_keys import only
from dbsp.stream.distinct_counts import first_of_values
from dbsp.stream.owners import placed, placed_in_aggregate
from dbsp.stream.rows import RowMethods
from dbsp.stream.window_functions import FOLDED, WindowFunction, aggregate_name, frame_of, rolls
from dbsp.zset.schema import DATE, DURATION, FLOAT64, INT64, NO_COLUMNS, Column, OrderBy, Schema

S = TypeVar("S", bound=RowMethods)
_FRACTIONS = ("percent_rank", "cume_dist")


@dataclass(frozen=True, slots=True)
class Window(Generic[S], Answering):
    """A stream with its partition columns and order; `with_columns` turns it into a stream."""

    _CALLED: ClassVar[str] = "a Window"
    _OTHERS: ClassVar[tuple[str, ...]] = ("window",)

    stream: S
    partition: tuple[str, ...]
    order: tuple[OrderBy, ...]
    shows: tuple[str, ...]

    def with_columns(self, **functions: WindowFunction) -> S:
        """Return all columns, and the window functions under their names, all computed in one pass.

        **State** All rows, once for all functions.

        **Cost** That of the most expensive function; see each function.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"k": dbsp.STRING, "at": dbsp.INT64, "x": dbsp.INT64})
        >>> seen = t.window(partition_by="k", order_by="at").with_columns(
        ...     n=dbsp.row_number(), prev=dbsp.lag("x"), mean=dbsp.rolling(dbsp.avg("x"), rows=1)
        ... )
        >>> print(seen.schema)
        (k: string, at: int64, x: int64, n: int64 not null, prev: int64, mean: double)
        >>> with dbsp.open(dbsp.circuit("demo", {"seen": seen})) as run:
        ...     run.push("t", [{"k": "a", "at": 1, "x": 3}, {"k": "a", "at": 2, "x": 5}])
        ...     print(sorted(run.step()["seen"].to_rows(), key=str))
        ...     run.delete("t", [{"k": "a", "at": 1, "x": 3}])
        ...     print(sorted(run.step()["seen"].to_rows(), key=str))
        [(('a', 1, 3, 1, None, 3.0), 1), (('a', 2, 5, 2, 3, 4.0), 1)]
        [(('a', 1, 3, 1, None, 3.0), -1), (('a', 2, 5, 1, None, 5.0), 1), (('a', 2, 5, 2, 3, 4.0), -1)]
        """
        source = user_line()
        with located(source):
            return self._made(functions, source)

    def select(self, *columns: str | Expr, **named: WindowFunction | Any) -> S:
        """Return only these columns, and the window functions among the named ones.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"at": dbsp.INT64, "x": dbsp.INT64})
        >>> changes = t.window(order_by="at").select("x", before=dbsp.lag("x"))
        >>> with dbsp.open(dbsp.circuit("demo", {"changes": changes})) as run:
        ...     run.push("t", [{"at": 1, "x": 5}, {"at": 2, "x": 7}])
        ...     print(run.step()["changes"].to_rows())
        ...     run.delete("t", [{"at": 1, "x": 5}])
        ...     print(run.step()["changes"].to_rows())
        [((5, None), 1), ((7, 5), 1)]
        [((5, None), -1), ((7, 5), -1), ((7, None), 1)]
        """
        source = user_line()
        with located(source):
            functions = {name: value for name, value in named.items() if isinstance(value, WindowFunction)}
            plain = {name: value for name, value in named.items() if name not in functions}
            hidden = {self._free(name): value for name, value in functions.items()}
            renamed = dict(zip(hidden, functions, strict=True))
            made = self._made(hidden, source)
            picked = {name: plain.get(name, "") for name in named}
            picked.update({name: fresh for fresh, name in renamed.items()})
            return made.select(*columns, **picked)

    def _free(self, name: str) -> str:
        """Return the name, prefixed with underscores until no column has it."""
        while name in self.stream.schema:
            name = f"__{name}"
        return name

    def _made(self, functions: Mapping[str, WindowFunction], source: SourceLine | None) -> S:
        """Return the stream with the functions' columns.

        Arguments that are expressions become columns of a selection below the window, and are dropped above it.
        """
        schema = self.stream.schema
        if any(isinstance(value, WindowFunction) and value.relative for value in functions.values()):
            return self._relative(functions, source)
        if not functions:
            raise CircuitError("a window without a function", "name one, such as n=dbsp.row_number()")
        for name, function in functions.items():
            _check(name, function, schema, self.order)
        functions = {name: _placed(function, self.stream.node) for name, function in functions.items()}
        computed: dict[Expression, str] = {}
        unit = _unit(self.order, schema)
        bound, columns = [], []
        for name, function in functions.items():
            call, column = _bound(name, function, schema, computed, unit)
            bound.append(call)
            columns.append(column)
        below = self.stream
        if computed:
            kept = [(column, column) for column in schema.names]
            below = below._selected([*kept, *((name, value) for value, name in computed.items())], source)
        order = self.order or (OrderBy(_spread(schema, self.partition)),)
        below, calls = first_of_values(below, self.partition, order, bound, source)
        node = WindowNode(
            input=below.node, partition=self.partition, order=order, calls=calls,
            schema=Schema((*below.schema.columns, *columns)), source=source,
        )  # fmt: skip
        made = self.stream._made(node)
        return only(made, (*self.shows, *functions), source)

    def _relative(self, functions: Mapping[str, WindowFunction], source: SourceLine | None) -> S:
        """Return the stream with the functions' columns, of which some are changes relative to an earlier row.

        Such a change is computed above the window, from a hidden column with the earlier value.
        """
        changes: dict[str, tuple[str, Expr]] = {}
        below: dict[str, WindowFunction] = {}
        for name, function in functions.items():
            if not (isinstance(function, WindowFunction) and function.relative and function.argument is not None):
                below[name] = function
                continue
            _check(name, function, self.stream.schema, self.order)
            type_ = resolve(function.argument, self.stream.schema).type(self.stream.schema)
            if not is_number(type_):
                hint = f"write dbsp.pct_change(dbsp.col(…).cast(dbsp.FLOAT64)) under name={name}"
                raise CircuitError(f"pct_change is for numbers: argument={function.argument} type={type_}", hint)
            hidden = self._free(f"__before_{name}")
            below[hidden] = replace(function, relative=False)
            now, before = (
                Expr(value).cast(FLOAT64) for value in (placed(function.argument, self.stream.node), ColumnRef(hidden))
            )
            changes[hidden] = name, when(before != 0, (now - before) / before).otherwise(None)
        made = self._made(below, source)
        return made._selected([changes.get(column, (column, column)) for column in made.columns], source)


def _spread(schema: Schema, partition: tuple[str, ...]) -> str:
    """Return a column in which the rows of a partition may differ.

    Frames of the whole partition need no order, but the operator keeps a partition's rows in an order, in blocks.
    """
    return next((name for name in schema.names if name not in partition), schema.names[0])


def _placed(function: WindowFunction, node: Node) -> WindowFunction:
    """Return the function with owned columns replaced by the node's own names."""
    argument = None if function.argument is None else placed(function.argument, node)
    aggregate = None if function.aggregate is None else placed_in_aggregate(function.aggregate, node)
    return replace(function, argument=argument, aggregate=aggregate)


def _check(name: str, function: Any, schema: Schema, order: tuple[OrderBy, ...]) -> None:
    if isinstance(function, Aggregate):
        called = aggregate_name(function)
        framed = f"write {name}=dbsp.rolling(dbsp.{called}(…), rows=(None, None)) for all of a partition"
        apart = f'for all of a partition: .join(stream.group_by("k").aggregate({name}=dbsp.{called}(…)), on="k")'
        hint = framed if rolls(function) else apart
        raise CircuitError(f"an aggregate over a window needs a frame: name={name}", hint)
    if not isinstance(function, WindowFunction):
        hint = f"write {name}=dbsp.row_number() or another window function; .with_columns after it for expressions"
        raise CircuitError(f"not a window function: name={name} got={function!r}", hint)
    if name in schema:
        raise CircuitError(f"a window function under the name of a column: name={name}", "choose another name")
    if not order and function.rows != (None, None):
        hint = "give order_by; ties are broken by all columns"
        raise CircuitError(f"{function.function} needs an order: name={name}", hint)


def _bound(
    name: str, function: WindowFunction, schema: Schema, computed: dict[Expression, str], unit: str | None
) -> tuple[WindowCall, Column]:
    """Return the call on columns, and the column of its result; expressions are added to `computed`."""
    arguments, result = _result(name, function, schema)
    columns = [
        _column(value, name if at == 0 else f"{name}_{at}", schema, computed) for at, value in enumerate(arguments)
    ]
    default = None if function.default is None else _default(function.default, result, schema)
    by, where = _by(name, function, schema, computed), _where(name, function, schema, computed)
    fold = _fold(name, function, columns, by, where, schema, computed)
    call = WindowCall(
        name=name,
        function=function.function if fold is None else FOLD,
        column=columns[0] if columns else None,
        other=columns[1] if len(columns) > 1 else None,
        place=_place(function),
        by=by,
        where=where,
        fold=fold,
        offset=function.offset,
        default=None if default is None else _column(default, f"{name}_default", schema, computed),
        frame=frame_of(function, unit),
        skips=function.skips,
    )
    return call, result


def _fold(
    name: str, function: WindowFunction, columns: Sequence[str], by: tuple[OrderBy, ...], where: str | None,
    schema: Schema, computed: Mapping[Expression, str],
) -> FoldPart | None:  # fmt: skip
    """Return the accumulator of an aggregate that reads all rows in order, or None for other functions."""
    if function.aggregate is None or not isinstance(function.aggregate.kind, FOLDED):
        return None
    kind = function.aggregate.kind
    added = (Column(fresh, value.type(schema), value.nullable(schema)) for value, fresh in computed.items())
    asked = Asked(keys=NO_COLUMNS, rows=Schema((*schema.columns, *added)), result=NO_COLUMNS)
    kind.add(AggregateCall(name=name, kind=kind, columns=tuple(columns), order=by, where=where), asked)
    _, (part,) = asked.parts()
    return part if isinstance(part, FoldPart) else None


def _by(name: str, function: WindowFunction, schema: Schema, computed: dict[Expression, str]) -> tuple[OrderBy, ...]:
    """Return the order of aggregates such as first and last, by columns."""
    order = () if function.aggregate is None else function.aggregate.resolved(schema).order
    columns = [_column(by.expression, f"{name}_by_{at}", schema, computed) for at, by in enumerate(order)]
    return tuple(OrderBy(column, by.descending, by.nulls_first) for column, by in zip(columns, order, strict=True))


def _where(name: str, function: WindowFunction, schema: Schema, computed: dict[Expression, str]) -> str | None:
    """Return the column with the condition of an aggregate that keeps nulls, or None."""
    condition = None if function.aggregate is None else function.aggregate.resolved(schema).condition
    return None if condition is None else _column(condition, f"{name}_where", schema, computed)


def _place(function: WindowFunction) -> QuantilePlace | None:
    """Return which quantile the function computes, or None for other functions."""
    kind = None if function.aggregate is None else function.aggregate.kind
    return QuantilePlace(part=kind.part, whole=kind.whole, between=kind.between) if isinstance(kind, Quantile) else None


def _result(name: str, function: WindowFunction, schema: Schema) -> tuple[tuple[Expression, ...], Column]:
    """Return the resolved arguments and the column of the result."""
    if function.aggregate is not None:
        aggregate = function.aggregate.resolved(schema)
        column = aggregate.kind.result(name, aggregate.described(schema))
        return aggregate.arguments, column
    if function.argument is None:
        return (), Column(name, FLOAT64 if function.function in _FRACTIONS else INT64, nullable=False)
    argument = resolve(function.argument, schema)
    nullable = argument.nullable(schema)
    if function.function in NEIGHBOURS and function.offset:
        nullable = nullable or function.default is None or resolve(function.default, schema).nullable(schema)
    nullable = nullable or function.function == "nth_value"
    return (argument,), Column(name, argument.type(schema), nullable)


def _default(default: Expression, result: Column, schema: Schema) -> Expression:
    """Return the value for a row that does not exist, in the type of the result; raise `CircuitError` for another type."""
    if isinstance(default, Literal) and default.dtype is None:
        adopted = adopt(default.value, result.type)
        if adopted is not None:
            return adopted
    resolved = resolve(default, schema)
    if resolved.type(schema) != result.type:
        types = f"default={resolved.type(schema)} values={result.type}"
        raise CircuitError(f"the default has another type than the values: name={result.name} {types}", "cast it")
    return resolved


def _column(value: Expression, name: str, schema: Schema, computed: dict[Expression, str]) -> str:
    """Return the name of the column that holds a value; an expression gets a new one, which is added to `computed`."""
    if isinstance(value, ColumnRef):
        return value.name
    if value not in computed:
        fresh = f"__{name}"
        while fresh in schema or fresh in computed.values():
            fresh += "_"
        computed[value] = fresh
    return computed[value]


def _unit(order: tuple[OrderBy, ...], schema: Schema) -> str | None:
    """Return the unit of distances in the order column ("day", "us" or "1"), or None if there are none."""
    if len(order) != 1:
        return None
    type_ = schema[order[0].column].type
    if type_ == DATE:
        return "day"
    if pa.types.is_timestamp(type_) or type_ == DURATION:
        return "us"
    return "1" if is_integer(type_) else None
