"""The DSL: streams of changing tables, and what can be made of them.

A `Stream` is a thin handle on a logical node. Every method checks names and types at once and returns a new stream;
errors name the user's
file and line. What a stream means is a query over whole tables; the engine keeps its answer up to date.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa

from dbsp.aggregates import Aggregate
from dbsp.alignment import aligned
from dbsp.circuit.explain import explain_node
from dbsp.circuit.names import check_name
from dbsp.circuit.nodes import (
    AggregateCall,
    Difference,
    Distinct,
    Filter,
    GroupBy,
    MapRows,
    Node,
    Select,
    SourceLine,
    Table,
    TopK,
    Union,
)
from dbsp.circuit.source_lines import located, user_line
from dbsp.errors import CircuitError
from dbsp.expr.build import Expr, col, column_name, unwrap
from dbsp.expr.expression import ColumnRef, Expression, resolve
from dbsp.expr.functions import UserFunction
from dbsp.expr.names import missing_column, nearest
from dbsp.joins import join_node
from dbsp.zset.schema import BOOL, INT64, Column, OrderBy, Schema

Columns = Mapping[str, pa.DataType] | Iterable[Column] | Schema


@dataclass(frozen=True, slots=True)
class Stream:
    """A table, or a query over tables, that changes.

    **Example**

    >>> import dbsp
    >>> flights = dbsp.table("flights", {"id": dbsp.INT64, "origin": dbsp.STRING, "delay": dbsp.INT32}, primary_key="id")
    >>> late = flights.filter(dbsp.col("delay") > 15).group_by("origin").aggregate(n=dbsp.count())
    >>> print(late.schema)
    (origin: string, n: int64 not null)
    """

    node: Node

    @property
    def schema(self) -> Schema:
        """Names, types and nulls of the columns."""
        return self.node.schema

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return self.node.schema.names

    def __getitem__(self, name: str) -> Expr:
        """The column of this name as an expression; an unknown name is refused here."""
        with located(user_line()):
            if name not in self.schema:
                raise missing_column(name, self.schema)
        return col(name)

    def __getattr__(self, name: str) -> NoReturn:
        """Only to say how a column is written."""
        known = name != "node" and not name.startswith("_") and name in self.columns
        hint = f'; write stream["{name}"] or dbsp.col("{name}") for the column' if known else ""
        raise AttributeError(f"a Stream has no attribute {name!r}{hint}")

    def __repr__(self) -> str:
        """Kind and schema."""
        return f"Stream({type(self.node).__name__} {self.schema})"

    def explain(self) -> str:
        """The query as an indented text, inputs below what reads them.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"x": dbsp.INT64})
        >>> print(t.filter(dbsp.col("x") > 1).explain())
        filter (x > 1)
          table t (x: int64)
        """
        return explain_node(self.node)

    def select(self, *columns: str | Expr, **named: str | Expr | Any) -> Stream:
        """Only these columns: names as they are, and expressions under new names.

        **Law** Linear: select(a + b) = select(a) + select(b).

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"x": dbsp.INT64, "y": dbsp.INT64})
        >>> print(t.select("x", total=dbsp.col("x") + dbsp.col("y")).schema)
        (x: int64, total: int64)
        """
        source = user_line()
        with located(source):
            pairs = [(column_name(column), column) for column in columns]
            return self._select([*pairs, *named.items()], source)

    def with_columns(self, **named: str | Expr | Any) -> Stream:
        """All columns, and these: a known name is replaced in its place, a new one is added at the end.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"x": dbsp.INT32})
        >>> print(t.with_columns(x=dbsp.col("x").cast(dbsp.INT64), double=dbsp.col("x") * 2).schema)
        (x: int64, double: int32)
        """
        source = user_line()
        with located(source):
            kept = [(name, named.get(name, name)) for name in self.columns]
            added = [(name, value) for name, value in named.items() if name not in self.schema]
            return self._select([*kept, *added], source)

    def rename(self, names: Mapping[str, str]) -> Stream:
        """The same columns, some under new names: `{"old": "new"}`."""
        source = user_line()
        with located(source):
            if not isinstance(names, Mapping):
                raise CircuitError(f"rename takes a dict: got={names!r}", 'such as .rename({"old": "new"})')
            for old in names:
                if old not in self.schema:
                    raise missing_column(old, self.schema)
            return self._select([(names.get(name, name), name) for name in self.columns], source)

    def drop(self, *names: str) -> Stream:
        """Without these columns."""
        source = user_line()
        with located(source):
            for name in names:
                if name not in self.schema:
                    raise missing_column(name, self.schema)
            return self._select([(name, name) for name in self.columns if name not in names], source)

    def _select(self, pairs: Sequence[tuple[str, Any]], source: SourceLine | None) -> Stream:
        if not pairs:
            raise CircuitError("a selection needs at least one column", "name one")
        resolved = tuple((name, resolve(_column_or_value(value, self.schema), self.schema)) for name, value in pairs)
        columns = tuple(Column(name, value.type(self.schema), value.nullable(self.schema)) for name, value in resolved)
        return Stream(Select(input=self.node, columns=resolved, schema=Schema(columns), source=source))

    def filter(self, predicate: Expr) -> Stream:
        """The rows for which the condition is true; rows for which it is null leave, as in SQL.

        **Law** Linear: filter(a + b) = filter(a) + filter(b).

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"x": dbsp.INT64})
        >>> big = t.filter(dbsp.col("x") > 1)
        >>> with dbsp.open(dbsp.circuit("demo", {"big": big})) as run:
        ...     run.push("t", [{"x": 1}, {"x": 2}, {"x": None}])
        ...     print(run.step()["big"].to_rows())
        ...     run.delete("t", [{"x": 2}])
        ...     print(run.step()["big"].to_rows())
        [((2,), 1)]
        [((2,), -1)]
        """
        source = user_line()
        with located(source):
            if not isinstance(predicate, Expr):
                shown = f"{predicate!r}" if not callable(predicate) else "a function"
                raise CircuitError(f"filter takes an expression: got={shown}", 'such as dbsp.col("x") > 0')
            condition = resolve(unwrap(predicate), self.schema)
            if condition.type(self.schema) != BOOL:
                hint = f"write a comparison, such as ({condition}) != 0"
                raise CircuitError(
                    f"filter takes a condition: got={condition} type={condition.type(self.schema)}", hint
                )
            return Stream(Filter(input=self.node, predicate=condition, schema=self.schema, source=source))

    def map(
        self, function: Callable[[dict[str, Any]], Mapping[str, Any]], schema: Columns, depends_on: Iterable[Any] = ()
    ) -> Stream:
        """A Python function from a row (a dict) to a row (a dict with exactly the columns of `schema`).

        **Law** Linear. The function must be pure: it is called again for a retraction and at every replay.

        **Cost** Python per row: a hundred times an expression. Prefer `with_columns` where an expression can say it.

        **Errors** A row on which it raises, or returns what does not fit, leaves by the error policy.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"name": dbsp.STRING})
        >>> title = t.map(lambda row: {"title": row["name"].title()}, schema={"title": dbsp.STRING})
        >>> with dbsp.open(dbsp.circuit("demo", {"title": title})) as run:
        ...     run.push("t", [{"name": "ada"}])
        ...     print(run.step()["title"].to_rows())
        ...     run.delete("t", [{"name": "ada"}])
        ...     print(run.step()["title"].to_rows())
        [(('Ada',), 1)]
        [(('Ada',), -1)]
        """
        return self._map(function, schema, flat=False, depends_on=depends_on)

    def flat_map(
        self,
        function: Callable[[dict[str, Any]], Iterable[Mapping[str, Any]]],
        schema: Columns,
        depends_on: Iterable[Any] = (),
    ) -> Stream:
        """A Python function (also a generator) from a row to any number of rows; otherwise like `map`.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"id": dbsp.INT64, "text": dbsp.STRING}, primary_key="id")
        >>> words = t.flat_map(lambda row: [{"word": w} for w in row["text"].split()], schema={"word": dbsp.STRING})
        >>> with dbsp.open(dbsp.circuit("demo", {"words": words})) as run:
        ...     run.push("t", [{"id": 1, "text": "a b"}])
        ...     print(run.step()["words"].to_rows())
        ...     run.push("t", [{"id": 1, "text": "a c"}])
        ...     print(run.step()["words"].to_rows())
        [(('a',), 1), (('b',), 1)]
        [(('b',), -1), (('c',), 1)]
        """
        return self._map(function, schema, flat=True, depends_on=depends_on)

    def _map(self, function: Callable[..., Any], schema: Columns, flat: bool, depends_on: Iterable[Any]) -> Stream:
        source = user_line()
        with located(source):
            made = UserFunction.of(function, as_schema(schema), flat, depends_on)
            return Stream(MapRows(input=self.node, function=made, flat=flat, schema=made.schema, source=source))

    def join(
        self,
        other: Stream,
        on: str | Sequence[str] | Mapping[str, str] | None = None,
        *,
        left_on: str | Sequence[str] | None = None,
        right_on: str | Sequence[str] | None = None,
        suffix: str | None = "_right",
    ) -> Stream:
        """Pairs of rows whose keys are equal; a null key meets nothing.

        **Law** Bilinear: D(a ⋈ b) = Da ⋈ b + a ⋈ Db + Da ⋈ Db, with a and b as of the step before.

        **Shape** All left columns, then the right ones without the right keys. A right column whose name is taken
        gets the suffix; with
        `suffix=None` it is refused. Integer keys of different widths meet in the wider type; other types must be equal.

        **Example**

        >>> import dbsp
        >>> flights = dbsp.table("flights", {"id": dbsp.INT64, "carrier": dbsp.STRING})
        >>> airlines = dbsp.table("airlines", {"code": dbsp.STRING, "name": dbsp.STRING}, primary_key="code")
        >>> named = flights.join(airlines, on={"carrier": "code"})
        >>> print(named.schema)
        (id: int64, carrier: string not null, name: string)
        >>> with dbsp.open(dbsp.circuit("demo", {"named": named})) as run:
        ...     run.push("flights", [{"id": 1, "carrier": "UA"}, {"id": 2, "carrier": "??"}])
        ...     run.push("airlines", [{"code": "UA", "name": "United"}])
        ...     print(run.step()["named"].to_rows())
        ...     run.push("airlines", [{"code": "UA", "name": "United Air"}])
        ...     print(run.step()["named"].to_rows())
        [((1, 'UA', 'United'), 1)]
        [((1, 'UA', 'United Air'), 1), ((1, 'UA', 'United'), -1)]
        """
        source = user_line()
        with located(source):
            _check_streams("join", [other])
            return Stream(join_node(self.node, other.node, on, left_on, right_on, suffix, source))

    def group_by(self, *keys: str | Expr, **named: Expr) -> Group:
        """The groups of rows that agree on these columns; a null is a value like any other. `name=expression` groups
        by a computed column.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"at": dbsp.TIMESTAMP, "x": dbsp.FLOAT64})
        >>> print(t.group_by(hour=dbsp.col("at").hour()).aggregate(mean=dbsp.avg("x")).schema)
        (hour: int64, mean: double)
        """
        source = user_line()
        with located(source):
            stream = self.with_columns(**named) if named else self
            names = (*(column_name(key) for key in keys), *named)
            for name in names:
                if name not in stream.schema:
                    raise missing_column(name, stream.schema)
            return Group(stream, names)

    def aggregate(self, **aggregates: Aggregate) -> Stream:
        """Aggregates over all rows: one row, or none while there are no rows."""
        return Group(self, ()).aggregate(**aggregates)

    def distinct(self) -> Stream:
        """Every row once, however often it occurs.

        **Law** distinct(distinct(a)) = distinct(a); not linear.

        **State** One weight per different row.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"x": dbsp.INT64})
        >>> with dbsp.open(dbsp.circuit("demo", {"once": t.distinct()})) as run:
        ...     run.push("t", [{"x": 1}, {"x": 1}])
        ...     print(run.step()["once"].to_rows())
        ...     run.delete("t", [{"x": 1}])
        ...     print(run.step()["once"].to_rows())
        ...     run.delete("t", [{"x": 1}])
        ...     print(run.step()["once"].to_rows())
        [((1,), 1)]
        []
        [((1,), -1)]
        """
        return Stream(Distinct(input=self.node, schema=self.schema, source=user_line()))

    def union(self, *others: Stream) -> Stream:
        """All rows of all streams: the sum of Z-sets, SQL's UNION ALL. For UNION add `.distinct()`.

        **Shape** Columns are matched by name; names and types must agree; the order is the first stream's.

        **Example**

        >>> import dbsp
        >>> a, b = (dbsp.table(name, {"x": dbsp.INT64}) for name in ("a", "b"))
        >>> with dbsp.open(dbsp.circuit("demo", {"both": a.union(b)})) as run:
        ...     run.push("a", [{"x": 1}])
        ...     run.push("b", [{"x": 1}])
        ...     print(run.step()["both"].to_rows())
        ...     run.delete("b", [{"x": 1}])
        ...     print(run.step()["both"].to_rows())
        [((1,), 2)]
        [((1,), -1)]
        """
        source = user_line()
        with located(source):
            _check_streams("union", others)
            inputs = aligned([self.node, *(other.node for other in others)], source)
            if len(inputs) == 1:
                return self
            return Stream(Union(inputs=inputs, schema=inputs[0].schema, source=source))

    def difference(self, other: Stream) -> Stream:
        """The different rows of this stream that the other does not have: SQL's EXCEPT.

        **Shape** Columns are matched by name, as in `union`.

        **Example**

        >>> import dbsp
        >>> a, b = (dbsp.table(name, {"x": dbsp.INT64}) for name in ("a", "b"))
        >>> with dbsp.open(dbsp.circuit("demo", {"rest": a.difference(b)})) as run:
        ...     run.push("a", [{"x": 1}, {"x": 2}])
        ...     print(run.step()["rest"].to_rows())
        ...     run.push("b", [{"x": 1}])
        ...     print(run.step()["rest"].to_rows())
        [((1,), 1), ((2,), 1)]
        [((1,), -1)]
        """
        source = user_line()
        with located(source):
            _check_streams("difference", [other])
            left, right = aligned([self.node, other.node], source)
            return Stream(Difference(left=left, right=right, schema=left.schema, source=source))

    def top_k(
        self,
        k: int,
        by: str | OrderBy | Sequence[str | OrderBy],
        partition_by: str | Sequence[str] = (),
        rank: str | None = None,
    ) -> Stream:
        """The first `k` rows of each partition in this order; ties are broken by all columns, so the answer is always
        the same.

        **Shape** The input's columns, and a column `rank` (1 to k, int64) if it is named. A row of weight w takes w
        places.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"route": dbsp.STRING, "delay": dbsp.INT64})
        >>> worst = t.top_k(1, by=dbsp.desc("delay"), rank="place")
        >>> print(worst.schema)
        (route: string, delay: int64, place: int64 not null)
        >>> with dbsp.open(dbsp.circuit("demo", {"worst": worst})) as run:
        ...     run.push("t", [{"route": "a", "delay": 5}, {"route": "b", "delay": 3}])
        ...     print(run.step()["worst"].to_rows())
        ...     run.delete("t", [{"route": "a", "delay": 5}])
        ...     print(run.step()["worst"].to_rows())
        [(('a', 5, 1), 1)]
        [(('a', 5, 1), -1), (('b', 3, 1), 1)]
        """
        source = user_line()
        with located(source):
            if isinstance(k, bool) or not isinstance(k, int) or k < 1:
                raise CircuitError(f"top_k needs a whole number of rows, at least one: k={k!r}")
            order = tuple(_order(item) for item in ([by] if isinstance(by, str | OrderBy | Expr) else by))
            partition = (
                (partition_by,) if isinstance(partition_by, str) else tuple(column_name(item) for item in partition_by)
            )
            for name in (*partition, *(item.column for item in order)):
                if name not in self.schema:
                    raise missing_column(name, self.schema)
            if not order:
                raise CircuitError("top_k needs an order", 'such as by=dbsp.desc("x")')
            added = (Column(rank, INT64, nullable=False),) if rank is not None else ()
            schema = Schema((*self.schema.columns, *added))
            node = TopK(input=self.node, partition=partition, order=order, k=k, rank=rank, schema=schema, source=source)
            return Stream(node)


@dataclass(frozen=True, slots=True)
class Group:
    """A stream and the columns it is grouped by; `aggregate` makes a stream of it."""

    stream: Stream
    keys: tuple[str, ...]

    def aggregate(self, **aggregates: Aggregate) -> Stream:
        """One row per group: the keys, then the aggregates under their names.

        **Law** count, sum and avg are linear in the group's rows; min, max and count_distinct are kept from a sorted
        history.

        **Shape** A group without rows has no row; so has the whole, when there are no keys and no rows.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT32})
        >>> totals = t.group_by("k").aggregate(n=dbsp.count(), total=dbsp.sum(dbsp.col("x") * 2))
        >>> print(totals.schema)
        (k: string, n: int64 not null, total: int64)
        >>> with dbsp.open(dbsp.circuit("demo", {"totals": totals})) as run:
        ...     run.push("t", [{"k": "a", "x": 1}, {"k": "a", "x": 2}])
        ...     print(run.step()["totals"].to_rows())
        ...     run.delete("t", [{"k": "a", "x": 1}])
        ...     print(run.step()["totals"].to_rows())
        [(('a', 2, 6), 1)]
        [(('a', 1, 4), 1), (('a', 2, 6), -1)]
        """
        source = user_line()
        with located(source):
            return Stream(self._node(aggregates, source))

    def _node(self, aggregates: Mapping[str, Aggregate], source: SourceLine | None) -> GroupBy:
        """Plain columns are named directly; an expression becomes a column of a selection below."""
        if not aggregates and not self.keys:
            raise CircuitError("nothing to aggregate", "name an aggregate, such as n=dbsp.count()")
        schema = self.stream.schema
        resolved = {name: _resolved(name, aggregate, schema) for name, aggregate in aggregates.items()}
        outputs = [aggregate.column(name, schema) for name, aggregate in resolved.items()]
        computed = _computed(resolved, schema)
        below = self.stream
        if computed:
            plain = [a.argument.name for a in resolved.values() if isinstance(a.argument, ColumnRef)]
            kept = [(name, name) for name in dict.fromkeys([*self.keys, *plain])]
            below = below._select([*kept, *((name, argument) for argument, name in computed.items())], source)
        calls = tuple(
            AggregateCall(name=name, function=a.function, column=_input_column(a.argument, computed))
            for name, a in resolved.items()
        )
        columns = (*(schema[key] for key in self.keys), *outputs)
        return GroupBy(input=below.node, keys=self.keys, aggregates=calls, schema=Schema(columns), source=source)


def table(name: str, columns: Columns, primary_key: str | Sequence[str] | None = None) -> Stream:
    """A table that the pipeline's inputs change.

    **Shape** With a primary key an insert replaces the row of that key and a delete needs only the key; its columns
    are never null.
    Without one the table is a bag: a row may occur several times.

    **Example**

    >>> import dbsp
    >>> dbsp.table("airlines", {"code": dbsp.STRING, "name": dbsp.STRING}, primary_key="code")
    Stream(Table (code: string not null, name: string))
    """
    source = user_line()
    with located(source):
        check_name("table", name)
        schema = as_schema(columns)
        if not len(schema):
            raise CircuitError(f"a table needs at least one column: table={name}")
        key = (primary_key,) if isinstance(primary_key, str) else tuple(primary_key or ())
        for column in key:
            if column not in schema:
                raise missing_column(column, schema)
        if len(set(key)) != len(key):
            raise CircuitError(f"a primary key names a column twice: primary_key={list(key)}")
        schema = Schema(tuple(Column(c.name, c.type, c.nullable and c.name not in key) for c in schema))
        return Stream(Table(name=name, schema=schema, primary_key=key, source=source))


def as_schema(columns: Columns) -> Schema:
    """A schema from what a user may write for one."""
    if isinstance(columns, Schema):
        return columns
    if isinstance(columns, pa.Schema):
        return Schema(tuple(Column(field.name, field.type, field.nullable) for field in columns))
    if isinstance(columns, Mapping):
        for name, type_ in columns.items():
            if not isinstance(type_, pa.DataType):
                raise CircuitError(
                    f"not a column type: column={name} type={type_!r}", "write one such as dbsp.INT64 or dbsp.STRING"
                )
        return Schema.of(columns)
    listed = tuple(columns) if isinstance(columns, Iterable) else ()
    if not listed or not all(isinstance(column, Column) for column in listed):
        raise CircuitError(
            f"not a schema: got={columns!r}", 'write one such as {"id": dbsp.INT64, "name": dbsp.STRING}'
        )
    return Schema(listed)


def _column_or_value(value: Any, schema: Schema) -> Expression:
    """Text means a column; everything else an expression or a constant."""
    if not isinstance(value, str):
        return unwrap(value)
    if value not in schema:
        hint = f'{nearest(value, schema.names)}; for the text itself write dbsp.lit("{value}")'
        raise CircuitError(f'no such column: column="{value}"', hint)
    return ColumnRef(value)


def _resolved(name: str, aggregate: Any, schema: Schema) -> Aggregate:
    if not isinstance(aggregate, Aggregate):
        hint = f"write {name}=dbsp.max(…) or another of dbsp.count, sum, avg, min, max, count_distinct"
        raise CircuitError(f"not an aggregate: name={name} got={aggregate!r}", hint)
    if aggregate.argument is None:
        return aggregate
    return Aggregate(aggregate.function, resolve(aggregate.argument, schema))


def _computed(aggregates: Mapping[str, Aggregate], schema: Schema) -> dict[Expression, str]:
    """A column name for every argument that is no plain column; equal arguments share one."""
    names: dict[Expression, str] = {}
    for name, aggregate in aggregates.items():
        argument = aggregate.argument
        if argument is not None and not isinstance(argument, ColumnRef) and argument not in names:
            fresh = f"__{name}"
            while fresh in schema:
                fresh += "_"
            names[argument] = fresh
    return names


def _input_column(argument: Expression | None, computed: Mapping[Expression, str]) -> str | None:
    """The input column of an aggregate; None counts rows."""
    if argument is None:
        return None
    return argument.name if isinstance(argument, ColumnRef) else computed[argument]


def _order(item: Any) -> OrderBy:
    return item if isinstance(item, OrderBy) else OrderBy(column_name(item))


def _check_streams(what: str, others: Iterable[Any]) -> None:
    for other in others:
        if not isinstance(other, Stream):
            raise CircuitError(
                f"{what} takes streams: got={type(other).__name__}", "give what dbsp.table or a method of it returned"
            )
