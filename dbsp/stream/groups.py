"""Methods that group rows and aggregate the groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar, Generic, Self, TypeVar

from dbsp.aggregates.aggregate import Aggregate
from dbsp.aggregates.counts import apart, count
from dbsp.aggregates.kind import AggregateCall
from dbsp.algebra.final import FinalNode
from dbsp.algebra.group_by import GroupBy
from dbsp.diagnostics.source_lines import SourceLine, located, user_line
from dbsp.errors import CircuitError
from dbsp.expr.answering import Answering
from dbsp.expr.build import BEFORE, Expr, col, lit
from dbsp.expr.expression import ColumnRef, Expression
from dbsp.expr.methods.applied import unwrap
from dbsp.expr.names import missing_column, nearest
from dbsp.expr.struct_functions import path_of
from dbsp.stream.computed_keys import with_fields
from dbsp.stream.owners import placed_in_aggregate
from dbsp.stream.rows import RowMethods
from dbsp.stream.window_functions import WindowFunction
from dbsp.zset.schema import INT64, OrderBy, Schema

S = TypeVar("S", bound=RowMethods)
CUBE_KEYS_MAX = 8
EMITS = ("update", "final")


class GroupMethods(RowMethods):
    """Grouping and aggregation."""

    __slots__ = ()

    def group_by(self, *keys: str | Expr, **named: Expr) -> Group[Self]:
        """Group rows by equal values of these columns; nulls are equal to each other.

        A key `name=expression` is computed. A struct field keeps its own name: `group_by("address.zip")` has a column
        `zip`.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"shop": dbsp.STRING, "x": dbsp.INT64})
        >>> sizes = t.group_by("shop", large=dbsp.col("x") > 5).aggregate(n=dbsp.count())
        >>> with dbsp.open(dbsp.circuit("demo", {"sizes": sizes})) as run:
        ...     run.push("t", [{"shop": "a", "x": 1}, {"shop": "a", "x": 9}])
        ...     print(run.step()["sizes"].to_rows())
        ...     run.delete("t", [{"shop": "a", "x": 9}])
        ...     print(run.step()["sizes"].to_rows())
        [(('a', False, 1), 1), (('a', True, 1), 1)]
        [(('a', True, 1), -1)]
        """
        source = user_line()
        with located(source):
            return Group(*self._keyed(keys, named, source))

    def _keyed(
        self, keys: Sequence[str | Expr], named: Mapping[str, Expr], source: SourceLine | None
    ) -> tuple[Self, tuple[str, ...]]:
        """Return the stream with computed keys added, and the names of all keys."""
        stream, keys = with_fields(self, keys, source, tuple(named))
        names = (*(stream._name(key) for key in keys), *named)
        stream = stream.with_columns(**named) if named else stream
        for name in names:
            if name not in stream.schema:
                raise missing_column(name, stream.schema)
        return stream, names

    def aggregate(self, *unnamed: Any, **aggregates: Aggregate) -> Self:
        """Aggregate all rows: the result has exactly one row, even without input rows (counts are 0, all others null).

        **Law** As SQL's aggregate without `group by`. The row exists from the first step on.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"x": dbsp.INT64})
        >>> all_rows = t.aggregate(n=dbsp.count(), total=dbsp.sum("x"))
        >>> with dbsp.open(dbsp.circuit("demo", {"all": all_rows})) as run:
        ...     print(run.step()["all"].to_rows())
        ...     run.push("t", [{"x": 7}])
        ...     print(sorted(run.step()["all"].to_rows(), key=str))
        ...     run.delete("t", [{"x": 7}])
        ...     _ = run.step()
        ...     print(run.view("all").to_rows())
        [((0, None), 1)]
        [((0, None), -1), ((1, 7), 1)]
        [((0, None), 1)]
        """
        return Group(self, ()).aggregate(*unnamed, emit="update", **aggregates)

    def value_counts(self, *columns: str | Expr, name: str = "count") -> Self:
        """Count the rows of each different value, or combination of values: `group_by(*columns)` with `dbsp.count()`.

        **Shape** The columns and the count; a null is a value.

        **State** and **Cost** as a group with a count.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"kind": dbsp.STRING})
        >>> kinds = t.value_counts("kind")
        >>> with dbsp.open(dbsp.circuit("demo", {"kinds": kinds})) as run:
        ...     run.push("t", [{"kind": "a"}, {"kind": "a"}, {"kind": None}])
        ...     print(run.step()["kinds"].to_rows())
        ...     run.delete("t", [{"kind": "a"}])
        ...     print(run.step()["kinds"].to_rows())
        [(('a', 2), 1), ((None, 1), 1)]
        [(('a', 1), 1), (('a', 2), -1)]
        """
        with located(user_line()):
            if not columns:
                raise CircuitError("value_counts without a column", 'name one, such as .value_counts("kind")')
        counted: dict[str, Any] = {name: count()}
        return self.group_by(*columns).aggregate(**counted)

    def rollup(self, *keys: str | Expr, grouping: str | None = None, **named: Expr) -> GroupSets[Self]:
        """Group by all keys, by all but the last, and so on down to one group of all rows, as SQL's `rollup` does.

        A key `name=expression` is computed; such keys follow the columns.

        **Shape** One row per group of each set; keys that a set leaves out are null. With `grouping`, a column of that
        name (int64) identifies the set, as SQL's `grouping(keys…)` does. It has a bit per key, the first key the
        highest, 1 where the key is left out.

        **Cost** One group-by per set, each with its own state; their partial sums share one exchange.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"region": dbsp.STRING, "shop": dbsp.STRING, "x": dbsp.INT64})
        >>> sales = t.rollup("region", "shop", grouping="level").aggregate(total=dbsp.sum("x"))
        >>> with dbsp.open(dbsp.circuit("demo", {"sales": sales})) as run:
        ...     run.push("t", [{"region": "n", "shop": "a", "x": 1}, {"region": "n", "shop": "b", "x": 2}])
        ...     for row in sorted(run.step()["sales"].to_rows(), key=str):
        ...         print(row)
        ...     run.delete("t", [{"region": "n", "shop": "b", "x": 2}])
        ...     _ = run.step()
        ...     for row in sorted(run.view("sales").to_rows(), key=str):
        ...         print(row)
        (('n', 'a', 0, 1), 1)
        (('n', 'b', 0, 2), 1)
        (('n', None, 1, 3), 1)
        ((None, None, 3, 3), 1)
        (('n', 'a', 0, 1), 1)
        (('n', None, 1, 1), 1)
        ((None, None, 3, 1), 1)
        """
        source = user_line()
        with located(source):
            stream, names = self._keyed(keys, named, source)
            sets = tuple(names[:count] for count in range(len(names), -1, -1))
            return GroupSets(stream, names, sets, grouping)

    def cube(self, *keys: str | Expr, grouping: str | None = None, **named: Expr) -> GroupSets[Self]:
        """Group by every subset of the keys, as SQL's `cube` does; all else is as in `rollup`.

        **Limit** Eight keys, which make 256 group-bys.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"region": dbsp.STRING, "kind": dbsp.STRING, "x": dbsp.INT64})
        >>> sales = t.cube("region", "kind").aggregate(total=dbsp.sum("x"))
        >>> with dbsp.open(dbsp.circuit("demo", {"sales": sales})) as run:
        ...     run.push("t", [{"region": "n", "kind": "tea", "x": 1}, {"region": "s", "kind": "tea", "x": 2}])
        ...     _ = run.step()
        ...     run.delete("t", [{"region": "s", "kind": "tea", "x": 2}])
        ...     for row in run.step()["sales"].to_rows():
        ...         print(row)
        (('s', 'tea', 2), -1)
        (('s', None, 2), -1)
        ((None, 'tea', 1), 1)
        ((None, 'tea', 3), -1)
        ((None, None, 1), 1)
        ((None, None, 3), -1)
        """
        source = user_line()
        with located(source):
            stream, names = self._keyed(keys, named, source)
            if len(names) > CUBE_KEYS_MAX:
                hint = "name the sets you need with grouping_sets"
                raise CircuitError(f"a cube has at most {CUBE_KEYS_MAX} keys: keys={len(names)}", hint)
            sets = tuple(chosen for count in range(len(names), -1, -1) for chosen in combinations(names, count))
            return GroupSets(stream, names, sets, grouping)

    def grouping_sets(self, sets: Sequence[Sequence[str | Expr]], grouping: str | None = None) -> GroupSets[Self]:
        """Group by each of these sets of keys, as SQL's `grouping sets` do; all else is as in `rollup`.

        **Shape** The keys are the columns of all sets, in the order of their first occurrence.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"region": dbsp.STRING, "kind": dbsp.STRING, "x": dbsp.INT64})
        >>> sales = t.grouping_sets([["region"], ["kind"]]).aggregate(total=dbsp.sum("x"))
        >>> with dbsp.open(dbsp.circuit("demo", {"sales": sales})) as run:
        ...     run.push("t", [{"region": "n", "kind": "tea", "x": 1}, {"region": "s", "kind": "tea", "x": 2}])
        ...     print(run.step()["sales"].to_rows())
        ...     run.delete("t", [{"region": "s", "kind": "tea", "x": 2}])
        ...     print(run.step()["sales"].to_rows())
        [(('n', None, 1), 1), (('s', None, 2), 1), ((None, 'tea', 3), 1)]
        [(('s', None, 2), -1), ((None, 'tea', 1), 1), ((None, 'tea', 3), -1)]
        """
        source = user_line()
        with located(source):
            if isinstance(sets, str) or not sets or any(isinstance(keys, str) for keys in sets):
                raise CircuitError(
                    f"grouping_sets takes a list of lists: got={sets!r}", 'such as [["a", "b"], ["a"], []]'
                )
            sets = [list(keys) for keys in sets]
            stream, flat = with_fields(self, [key for keys in sets for key in keys], source)
            rest = iter(flat)
            named = tuple(tuple(stream._name(next(rest), BEFORE) for _ in keys) for keys in sets)
            names = tuple(dict.fromkeys(name for keys in named for name in keys))
            stream, _ = stream._keyed(names, {}, source)
            return GroupSets(stream, names, named, grouping)


@dataclass(frozen=True, slots=True)
class Group(Generic[S], Answering):
    """A stream and the columns that it is grouped by; `aggregate` turns it into a stream."""

    _CALLED: ClassVar[str] = "a Group"
    _OTHERS: ClassVar[tuple[str, ...]] = ("group",)

    stream: S
    keys: tuple[str, ...]

    def aggregate(self, *unnamed: Any, emit: str = "update", **aggregates: Aggregate) -> S:
        """Compute one row per group: the keys, then the aggregates under their names, all in one pass over the rows.

        **Law** Counts, sums, means, variances and other sums are linear in the group's rows: constant work per row. The
        docstrings of the other aggregates say what state they keep and what they cost.

        **Shape** A group without rows has no row. SQL's `having` is a filter on the result. With `emit="final"` a
        group's row is emitted once the waterline has passed its window, and is never retracted (`Stream.final`).

        **Errors** A group with a result that does not fit its type has no row: the error policy applies. Its row
        returns when the result fits again.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT32})
        >>> totals = t.group_by("k").aggregate(n=dbsp.count(), total=dbsp.sum(dbsp.col("x") * 2))
        >>> print(totals.schema)
        (k: string, n: int64 not null, total: int64)
        >>> having = totals.filter(dbsp.col("n") > 1)
        >>> with dbsp.open(dbsp.circuit("demo", {"totals": totals, "having": having})) as run:
        ...     run.push("t", [{"k": "a", "x": 1}, {"k": "a", "x": 2}])
        ...     print(run.step()["totals"].to_rows())
        ...     run.delete("t", [{"k": "a", "x": 1}])
        ...     changes = run.step()
        ...     print(changes["totals"].to_rows(), changes["having"].to_rows())
        [(('a', 2, 6), 1)]
        [(('a', 1, 4), 1), (('a', 2, 6), -1)] [(('a', 2, 6), -1)]
        """
        source = user_line()
        with located(source):
            if unnamed:
                raise CircuitError(f"an aggregate needs a name: got={unnamed[0]!r}", "such as n=dbsp.count()")
            if emit not in EMITS:
                raise CircuitError(f"no such way to emit: emit={emit!r}", nearest(str(emit), EMITS))
            node = self._node(aggregates, source)
            final = FinalNode(input=node, column=None, schema=node.schema, source=source)
            return self.stream._made(final if emit == "final" else node)

    def pivot(self, column: str | Expr, values: Sequence[Any] | Mapping[str, Any], **aggregates: Aggregate) -> S:
        """Make a column for each value of `column`: the aggregates over the group's rows that have this value.

        `column` may be an expression.

        **Shape** The keys, then for each value, in order, each aggregate. A column is named `value_name`, or `value`
        alone if there is one aggregate; `{"monday": 1, "tuesday": 2}` names the values. A group has a row while it has
        rows, of these values or others.

        **Cost** That of an aggregate with a filter per value and aggregate. The list of values is fixed, because a
        stream's columns are fixed.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"shop": dbsp.STRING, "month": dbsp.STRING, "x": dbsp.INT64})
        >>> table = t.group_by("shop").pivot("month", ["jan", "feb"], total=dbsp.sum("x"))
        >>> print(table.columns)
        ('shop', 'jan', 'feb')
        >>> with dbsp.open(dbsp.circuit("demo", {"table": table})) as run:
        ...     run.push("t", [{"shop": "a", "month": "jan", "x": 1}, {"shop": "a", "month": "feb", "x": 2}])
        ...     print(run.step()["table"].to_rows())
        ...     run.delete("t", [{"shop": "a", "month": "feb", "x": 2}])
        ...     print(run.step()["table"].to_rows())
        [(('a', 1, 2), 1)]
        [(('a', 1, 2), -1), (('a', 1, None), 1)]
        """
        source = user_line()
        with located(source):
            computed = isinstance(column, Expr) and not isinstance(unwrap(column), ColumnRef)
            name = "" if computed else self.stream._name(column)
            if not computed and name not in self.stream.schema and path_of(name, self.stream.schema) is None:
                raise missing_column(name, self.stream.schema)
            if isinstance(values, str) or not values:
                raise CircuitError(f"pivot takes a list of values: got={values!r}", 'such as ["jan", "feb"]')
            called = values.items() if isinstance(values, Mapping) else [(f"{value}", value) for value in values]
            if not aggregates:
                raise CircuitError("nothing to pivot", 'name an aggregate, such as total=dbsp.sum("x")')
            one, found = len(aggregates) == 1, column if computed else col(name)
            wide = [
                (shown if one else f"{shown}_{title}", _aggregate(title, aggregate).where(_is(found, value)))
                for shown, value in called
                for title, aggregate in aggregates.items()
            ]
            repeated = sorted({title for title, _ in wide if [t for t, _ in wide].count(title) > 1})
            if repeated:
                raise CircuitError(f"pivot makes a column twice: columns={repeated}", "name each value once")
            return self.stream._made(self._node(dict(wide), source))

    def _node(self, aggregates: Mapping[str, Any], source: SourceLine | None) -> GroupBy:
        """Return the group-by node; arguments that are expressions become columns of a selection below it."""
        if not aggregates and not self.keys:
            raise CircuitError("nothing to aggregate", "name an aggregate, such as n=dbsp.count()")
        schema = self.stream.schema
        resolved = {
            name: placed_in_aggregate(_aggregate(name, aggregate), self.stream.node).resolved(schema)
            for name, aggregate in aggregates.items()
        }
        outputs = [a.kind.result(name, a.described(schema)) for name, a in resolved.items()]
        resolved = {name: apart(aggregate) for name, aggregate in resolved.items()}
        columns = Schema((*(schema[key] for key in self.keys), *outputs))
        computed = _computed(resolved, schema)
        below = self.stream
        if computed:
            plain = [name for aggregate in resolved.values() for name in _plain(aggregate)]
            kept = [(name, name) for name in dict.fromkeys([*self.keys, *plain])]
            below = below._selected([*kept, *((name, argument) for argument, name in computed.items())], source)
        calls = tuple(_call(name, aggregate, computed) for name, aggregate in resolved.items())
        return GroupBy(input=below.node, keys=self.keys, aggregates=calls, schema=columns, source=source)


@dataclass(frozen=True, slots=True)
class GroupSets(Generic[S], Answering):
    """A stream and several sets of columns that it is grouped by; `aggregate` turns them into one stream."""

    _CALLED: ClassVar[str] = "a group of several sets"
    _OTHERS: ClassVar[tuple[str, ...]] = ("group", "grouping sets")

    stream: S
    keys: tuple[str, ...]
    sets: tuple[tuple[str, ...], ...]
    grouping: str | None

    def aggregate(self, **aggregates: Aggregate) -> S:
        """Compute one row per group of each set: all keys, the grouping id if it has a name, and the aggregates.

        **Law** The union of one group-by per set.

        **Shape** Keys that a set leaves out are null. The set without keys has its row even without input rows.
        """
        source = user_line()
        with located(source):
            if self.grouping is not None and (self.grouping in self.keys or self.grouping in aggregates):
                raise CircuitError(f"the grouping id needs a name of its own: grouping={self.grouping}")
            parts = [self._part(keys, aggregates, source) for keys in self.sets]
            return parts[0].union(*parts[1:]) if len(parts) > 1 else parts[0]

    def _part(self, keys: tuple[str, ...], aggregates: Mapping[str, Aggregate], source: SourceLine | None) -> S:
        """Return the rows of one set."""
        schema = self.stream.schema
        if not keys and not aggregates:
            raise CircuitError("nothing to aggregate", "name an aggregate, such as n=dbsp.count()")
        node = Group(self.stream, keys)._node(aggregates, source)
        left_out = [key not in keys for key in self.keys]
        shown: list[tuple[str, Any]] = [
            (key, lit(None, schema[key].type) if out else key) for key, out in zip(self.keys, left_out, strict=True)
        ]
        if self.grouping is not None:
            shown.append((self.grouping, lit(sum(out << at for at, out in enumerate(reversed(left_out))), INT64)))
        return self.stream._made(node)._selected([*shown, *((name, name) for name in aggregates)], source)


def _is(found: Any, value: Any) -> Expr:
    """Return the condition that a column or an expression has this value; null equals null."""
    is_: Expr = found.is_null() if value is None else found == value
    return is_


def _aggregate(name: str, aggregate: Any) -> Aggregate:
    if isinstance(aggregate, WindowFunction):
        group = {"first_value": 'dbsp.first("x", order_by="at")', "last_value": 'dbsp.last("x", order_by="at")',
                 "nth_value": 'dbsp.array_agg("x", order_by="at"), and .element(n) of it after that'}  # fmt: skip
        hint = f"of a group it is {group[aggregate.function]}; " if aggregate.function in group else ""
        beside = f"{hint}beside each row it is .window(…).with_columns({name}=dbsp.{aggregate.function}(…))"
        raise CircuitError(f"a window function is no aggregate: name={name} got={aggregate.function}", beside)
    if not isinstance(aggregate, Aggregate):
        hint = f"write {name}=dbsp.max(…) or another aggregate of dbsp, such as count, sum, avg, median, string_agg"
        raise CircuitError(f"not an aggregate: name={name} got={aggregate!r}", hint)
    return aggregate


def _expressions(aggregate: Aggregate) -> tuple[Expression, ...]:
    """Return the expressions that an aggregate evaluates per row: arguments, condition and order."""
    condition = () if aggregate.condition is None else (aggregate.condition,)
    return (*aggregate.arguments, *condition, *(by.expression for by in aggregate.order))


def _plain(aggregate: Aggregate) -> list[str]:
    """Return the names of columns that an aggregate reads directly."""
    return [e.name for e in _expressions(aggregate) if isinstance(e, ColumnRef)]


def _computed(aggregates: Mapping[str, Aggregate], schema: Schema) -> dict[Expression, str]:
    """Return a new column name for every argument that is no plain column; equal arguments share a name."""
    names: dict[Expression, str] = {}
    for name, aggregate in aggregates.items():
        for argument in _expressions(aggregate):
            if not isinstance(argument, ColumnRef) and argument not in names:
                fresh = f"__{name}"
                while fresh in schema or fresh in names.values():
                    fresh += "_"
                names[argument] = fresh
    return names


def _call(name: str, aggregate: Aggregate, computed: Mapping[Expression, str]) -> AggregateCall:
    """Return the aggregate over columns, with computed arguments replaced by their columns."""

    def column(expression: Expression) -> str:
        return expression.name if isinstance(expression, ColumnRef) else computed[expression]

    return AggregateCall(
        name=name,
        kind=aggregate.kind,
        columns=tuple(map(column, aggregate.arguments)),
        order=tuple(OrderBy(column(by.expression), by.descending, by.nulls_first) for by in aggregate.order),
        where=None if aggregate.condition is None else column(aggregate.condition),
    )
