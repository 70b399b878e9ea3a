"""Methods that look at groups of rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dbsp.aggregates import Aggregate
from dbsp.algebra.group_by import AggregateCall, GroupBy
from dbsp.circuit.nodes import SourceLine
from dbsp.circuit.source_lines import located, user_line
from dbsp.errors import CircuitError
from dbsp.expr.build import Expr, column_name
from dbsp.expr.expression import ColumnRef, Expression, resolve
from dbsp.expr.names import missing_column
from dbsp.stream.handle import Handle
from dbsp.zset.schema import Schema

if TYPE_CHECKING:
    from dbsp.stream.stream import Stream


class Groups(Handle):
    """Grouping and aggregation."""

    __slots__ = ()

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
            stream = self.made(self.node).with_columns(**named) if named else self
            names = (*(column_name(key) for key in keys), *named)
            for name in names:
                if name not in stream.schema:
                    raise missing_column(name, stream.schema)
            return Group(stream, names)

    def aggregate(self, **aggregates: Aggregate) -> Stream:
        """Aggregates over all rows: one row, or none while there are no rows."""
        return Group(self, ()).aggregate(**aggregates)


@dataclass(frozen=True, slots=True)
class Group:
    """A stream and the columns it is grouped by; `aggregate` makes a stream of it."""

    stream: Handle
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
            return self.stream.made(self._node(aggregates, source))

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
            below = below.selected([*kept, *((name, argument) for argument, name in computed.items())], source)
        calls = tuple(
            AggregateCall(name=name, function=a.function, column=_input_column(a.argument, computed))
            for name, a in resolved.items()
        )
        columns = (*(schema[key] for key in self.keys), *outputs)
        return GroupBy(input=below.node, keys=self.keys, aggregates=calls, schema=Schema(columns), source=source)


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
