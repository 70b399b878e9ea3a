"""Aggregates as users write them: a kind, its arguments, and the order and filter of the rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from dbsp.aggregates.kind import AggregateKind, Argument
from dbsp.aggregates.ordering import ComputedOrder
from dbsp.diagnostics.source_lines import located, user_line
from dbsp.errors import CircuitError
from dbsp.expr.answering import NotAValue
from dbsp.expr.build import Expr, column_name, lit, when
from dbsp.expr.expression import ColumnRef, Expression
from dbsp.expr.methods.applied import unwrap
from dbsp.expr.resolving import resolve
from dbsp.zset.schema import BOOL, OrderBy, Schema


@dataclass(frozen=True, slots=True)
class Aggregate(NotAValue):
    """A function over the rows of a group, made by `dbsp.sum` and similar functions; `where` narrows it."""

    kind: AggregateKind
    arguments: tuple[Expression, ...] = ()
    order: tuple[ComputedOrder, ...] = ()
    condition: Expression | None = None

    _CALLED: ClassVar[str] = "an aggregate"
    _OTHERS: ClassVar[tuple[str, ...]] = ("aggregate",)
    PLACE: ClassVar[str] = (
        'name it, .group_by("k").aggregate(n=dbsp.count()), and compute with its column after that: dbsp.col("n") > 1;'
        " beside each row it is .window(…).with_columns(n=dbsp.rolling(dbsp.count(), rows=(None, None)))"
    )

    def where(self, condition: Expr) -> Aggregate:
        """Aggregate only the rows for which the condition is true: SQL's `filter (where …)`.

        **Law** The same aggregate over the filtered rows; a group without such rows has the aggregate of no rows.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT64})
        >>> some = t.group_by("k").aggregate(n=dbsp.count(), big=dbsp.count().where(dbsp.col("x") > 10))
        >>> with dbsp.open(dbsp.circuit("demo", {"some": some})) as run:
        ...     run.push("t", [{"k": "a", "x": 20}, {"k": "a", "x": 5}])
        ...     print(run.step()["some"].to_rows())
        ...     run.delete("t", [{"k": "a", "x": 20}])
        ...     print(run.step()["some"].to_rows())
        [(('a', 2, 1), 1)]
        [(('a', 1, 0), 1), (('a', 2, 1), -1)]
        """
        with located(user_line()):
            if not isinstance(condition, Expr):
                raise CircuitError(f"where takes an expression: got={condition!r}", 'such as dbsp.col("x") > 0')
        added = unwrap(condition)
        whole = added if self.condition is None else unwrap(Expr(self.condition) & Expr(added))
        return replace(self, condition=whole)

    def resolved(self, schema: Schema) -> Aggregate:
        """Return the aggregate with names and types checked.

        A filter becomes part of the arguments, as a null elsewhere, if the kind leaves nulls out anyway.
        """
        order = tuple(replace(by, expression=resolve(by.expression, schema)) for by in self.order)
        arguments = tuple(resolve(argument, schema) for argument in self.arguments)
        if self.condition is None:
            return replace(self, arguments=arguments, order=order)
        condition = resolve(self.condition, schema)
        if condition.type(schema) != BOOL:
            hint = f"write a comparison, such as ({condition}) != 0"
            raise CircuitError(f"where takes a condition: got={condition} type={condition.type(schema)}", hint)
        if self.kind.keeps_nulls:
            return replace(self, arguments=arguments, condition=condition, order=order)
        chosen = [
            when(Expr(condition), Expr(argument)).otherwise(None) for argument in arguments or (unwrap(lit(True)),)
        ]
        arguments = tuple(resolve(unwrap(c), schema) for c in chosen)
        return replace(self, arguments=arguments, condition=None, order=order)

    def described(self, schema: Schema) -> tuple[Argument, ...]:
        """Return the resolved arguments for the type rule."""
        return tuple(Argument(str(a), shown(a), a.type(schema), a.nullable(schema)) for a in self.arguments)


def shown(argument: Expression) -> str:
    """Return an argument as a user may write it."""
    return f'dbsp.col("{argument.name}")' if isinstance(argument, ColumnRef) else f"({argument})"


def argument_of(value: Any) -> Expression:
    """Return the expression of a column name or an expression; raise `CircuitError` for any other value."""
    if isinstance(value, str):
        return ColumnRef(value)
    if isinstance(value, Expr):
        return unwrap(value)
    with located(user_line()):
        raise CircuitError(f"an aggregate takes a column name or an expression: got={value!r}", 'such as dbsp.sum("x")')


def order_of(what: str, order_by: Any, needed: bool) -> tuple[ComputedOrder, ...]:
    """Return the order of an aggregate from any form that users may write; `what` names the aggregate in errors."""
    with located(user_line()):
        one = isinstance(order_by, str | OrderBy | ComputedOrder | Expr)
        order = tuple(map(_ordered_by, [order_by] if one else list(order_by or ())))
        if needed and not order:
            raise CircuitError(
                f"{what} needs an order: rows have none of their own", f'such as {what}("x", order_by="at")'
            )
        return order


def _ordered_by(item: Any) -> ComputedOrder:
    """Return the order by a column name, an expression, or either with a direction."""
    match item:
        case ComputedOrder():
            return item
        case OrderBy(column=column, descending=descending, nulls_first=nulls_first):
            return ComputedOrder(ColumnRef(column), descending, nulls_first)
        case Expr():
            return ComputedOrder(unwrap(item))
    return ComputedOrder(ColumnRef(column_name(item)))
