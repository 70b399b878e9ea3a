"""Lists made by an expression: one of each element, the elements that meet a condition, and values of one row.

The expression over an element is a constant parameter of the call (`Body`). The columns of the row that it reads are
arguments of the call. So pruning, renaming and substitution of columns need to know nothing of bodies.

Invariants:
1. A body reads `ELEMENT`, `POSITION` (counted from 1) and `argument_name(n)` for the call's arguments after the list.
2. A row fails only if the body fails for one of its elements: a row without elements never fails.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.errors import CircuitError
from dbsp.expr.cast import to_common
from dbsp.expr.expression import Call, ColumnRef, Expression, Function, Operands, OwnedColumn, broadcast
from dbsp.expr.list_functions import is_list, relisted
from dbsp.expr.resolving import resolve
from dbsp.expr.types import typed
from dbsp.expr.walking import fold
from dbsp.zset.arrays import Positions
from dbsp.zset.schema import BOOL, INT64, Schema, list_of

ELEMENT, POSITION = "element", "position"


def argument_name(number: int) -> str:
    """Return the name under which a body reads the call's argument of this number."""
    return f"${number}"


@dataclass(frozen=True, slots=True)
class Body:
    """The expression over an element, not resolved: the types of the call's arguments decide its type."""

    expression: Expression
    arguments: int

    def token(self) -> str:
        """Return the canonical text."""
        return f"(body {self.expression.token()})"

    def __str__(self) -> str:
        """Return the body as a user would write it."""
        names = [ELEMENT, *([POSITION] if POSITION in self.expression.columns() else [])]
        names += map(argument_name, range(self.arguments))
        return f"lambda {', '.join(names)}: {self.expression}"

    def resolved(self, list_: pa.DataType, *arguments: pa.DataType) -> tuple[Expression, pa.DataType]:
        """Return the resolved expression over elements of this list, and its type."""
        schema = _schema(list_, arguments)
        expression = resolve(self.expression, schema)
        return expression, expression.type(schema)


@lru_cache(maxsize=512)
def _schema(list_: pa.DataType, arguments: tuple[pa.DataType, ...]) -> Schema:
    """Return the schema of the columns that a body reads.

    Equal types give the same object, because an expression caches its resolved form by the identity of the schema.
    """
    numbered = {argument_name(number): type_ for number, type_ in enumerate(arguments)}
    return Schema.of({ELEMENT: list_.value_type, POSITION: INT64, **numbered})


def over_elements(
    function: Function, list_: Expression, body: Expression, element: ColumnRef, position: ColumnRef | None
) -> Call:
    """Return the call of a function over each element of a list.

    The body reads the element and its position by these two references. The other columns that it reads, and the clock,
    become arguments of the call.
    """
    captured: dict[Any, int] = {}

    def own(leaf: Expression) -> Expression:
        if leaf == element:
            return ColumnRef(ELEMENT)
        if leaf == position:
            return ColumnRef(POSITION)
        is_read = isinstance(leaf, ColumnRef) or (isinstance(leaf, Call) and leaf.function.name == "now")
        return ColumnRef(argument_name(captured.setdefault(leaf, len(captured)))) if is_read else leaf

    def made(node: Expression, args: list[Expression]) -> Expression:
        return own(Call(node.function, tuple(args), node.options) if isinstance(node, Call) else node)

    closed = fold(body, made)
    return Call(function, (list_, *captured), (Body(closed, len(captured)),))


def parameter(name: str) -> OwnedColumn:
    """Return a reference that no column of any stream equals, for an element or its position."""
    return OwnedColumn(name, object())


@dataclass(frozen=True, slots=True)
class _Elements:
    """All elements of the lists of some rows, as the rows that a body reads."""

    columns: dict[str, pa.Array] = field(default_factory=dict)

    def column(self, name: str) -> pa.Array:
        return self.columns[name]

    def __len__(self) -> int:
        return len(self.columns[ELEMENT])


def _computed(values: Any, arguments: tuple[Any, ...], body: Body) -> tuple[pa.Array, pa.Array, Positions, pa.Array]:
    """Return the lists, their elements, the list of each element, and the body's value for each."""
    rows = max(len(datum) for datum in (values, *arguments) if not isinstance(datum, pa.Scalar))
    lists = broadcast(values, rows)
    owners, elements = pc.list_parent_indices(lists), lists.flatten()
    held = np.asarray(owners, np.int64)
    places = np.arange(len(held)) - np.searchsorted(held, held) + 1
    columns = {ELEMENT: elements, POSITION: pa.array(places, INT64)}
    for number, datum in enumerate(arguments):
        columns[argument_name(number)] = broadcast(datum, rows).take(owners)
    expression, _ = body.resolved(lists.type, *(datum.type for datum in arguments))
    return lists, elements, held, expression.evaluate(_Elements(columns))


def _transformed(values: Any, *rest: Any) -> pa.Array:
    """Return the lists of the body's values."""
    lists, _, owners, made = _computed(values, rest[:-1], rest[-1])
    return relisted(made, np.bincount(owners, minlength=len(lists)), lists, list_of(made.type))


def _filtered(values: Any, *rest: Any) -> pa.Array:
    """Return the lists of the elements for which the body is true, not false and not null."""
    lists, elements, owners, made = _computed(values, rest[:-1], rest[-1])
    kept = pc.fill_null(made, False)
    counts = np.bincount(owners[np.asarray(kept)], minlength=len(lists))
    return relisted(elements.filter(kept), counts, lists, lists.type)


def _fitting(condition: bool) -> Callable[[Operands], tuple[Expression, ...]]:
    """Return the function that checks the list, and that the body is a boolean if it has to be a `condition`."""

    def fit(operands: Operands) -> tuple[Expression, ...]:
        if not is_list(operands.types[0]):
            raise operands.refuse("it is for lists: a column of type dbsp.list_of(…), or text after .split(…)")
        (body,) = operands.options
        args = typed(operands)
        types = [
            own if own is not None else arg.type(Schema.of({})) for arg, own in zip(args, operands.types, strict=True)
        ]
        expression, type_ = body.resolved(*types)
        if condition and type_ != BOOL:
            hint = "write a comparison, such as lambda x: x > 0"
            raise CircuitError(f"the function of list_filter is no condition: value={expression} type={type_}", hint)
        return args

    return fit


def _of_row(*data: Any) -> pa.Array:
    """Return the list of each row's values, in the order of the arguments."""
    rows = max(len(datum) for datum in data if not isinstance(datum, pa.Scalar))
    all_values = pa.concat_arrays([broadcast(datum, rows) for datum in data])
    order = np.arange(len(all_values)).reshape(len(data), rows).T.ravel()
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * len(data), pa.int32())
    return pa.ListArray.from_arrays(offsets, all_values.take(pa.array(order)))


LIST_TRANSFORM = Function(
    name="list_transform",
    fit=_fitting(condition=False),
    result=lambda list_, *rest: list_of(rest[-1].resolved(list_, *rest[:-1])[1]),
    compute=_transformed,
)
LIST_FILTER = Function(
    name="list_filter", fit=_fitting(condition=True), result=lambda list_, *_: list_, compute=_filtered
)
LIST_VALUE = Function(
    name="list_value", fit=to_common, result=lambda first, *_: list_of(first), compute=_of_row, nulls="never"
)

FUNCTIONS = (LIST_TRANSFORM, LIST_FILTER, LIST_VALUE)
