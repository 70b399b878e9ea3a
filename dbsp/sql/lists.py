"""Lists and structs: elements, slices, lists of values, and functions over the elements of a list.

A lambda is lowered in a scope of its own. It has the columns of the scope around it and two more: the element and
its position. `dbsp.sql.parsing` has numbered the lambdas, and the uses of their parameters by them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
from sqlglot import exp

from dbsp.expr.build import Expr, list_value, lit, struct
from dbsp.expr.element_functions import LIST_FILTER, LIST_TRANSFORM, over_elements
from dbsp.expr.expression import ColumnRef, Expression, Function, Literal
from dbsp.expr.methods.applied import unwrap
from dbsp.sql.errors import refuse
from dbsp.sql.folding import folded, reads_nothing
from dbsp.sql.scope import Scope
from dbsp.sql.types import constant, is_constant, met, type_in
from dbsp.sql.walks import is_parameter, lambda_of, parts
from dbsp.zset.schema import INT64, is_list, list_of

Lower = Callable[[Any], Expr]
LowerIn = Callable[[Any, Scope], Expr]
_LAST = 2**31 - 1
_PARAMETERS_MAX = 2


def bracket(node: Any, lower: Lower, scope: Scope) -> Expr:
    """Lower `l[1]`, `l[1:2]` and `s['field']`."""
    if len(node.expressions) != 1:
        refuse(node, "brackets take one position of a list, or a slice", "write l[1], or l[1:2]")
    value, (place,) = lower(node.this), node.expressions
    type_ = type_in(value, scope.schema)
    if isinstance(place, exp.Slice):
        ends = [(place.this, 1), (place.expression, _LAST)]
        first, last = (default if part is None else argument(lower(part)) for part, default in ends)
        if first is None or last is None:
            return lit(None, type_)
        return value.list_slice(first, last)
    if isinstance(place, exp.Literal) and place.is_string:
        return value.field(place.this)
    if type_ is not None and pa.types.is_list(type_):
        at = lower(place)  # the parser counts constant places from 0
        if is_constant(at) and constant(at) is None:
            return lit(None, type_.value_type)
        if is_constant(at):
            return value.element(constant(at) + 1)
        return value.element(at)
    return refuse(node, "not a list", "write substr(x, 1, 1) of a text")


def argument(value: Expr) -> Any:
    """Return the Python value of a constant expression, and any other expression unchanged."""
    return constant(value) if is_constant(value) else value


def struct_of_parts(node: Any, lower: Lower) -> Expr:
    """Lower `{'a': x}`."""
    for part in node.expressions:
        if not isinstance(part, exp.PropertyEQ):
            refuse(part, "a field of a struct needs a name", "write {'a': x}, or struct_pack(a := x)")
    return struct(**{part.this.name: lower(part.expression) for part in node.expressions})


def list_of_parts(node: Any, lower: Lower, scope: Scope) -> Expr:
    """Lower `[x, y]`: a list of constants is a constant, any other is made for each row."""
    values = [lower(part) for part in node.expressions]
    if not values:
        refuse(node, "an empty list has no type here", "write [null::bigint][2:], with the type that you mean")
    if all(map(reads_nothing, values)):
        type_, held = folded(values, node.expressions)
        return Expr(Literal(held, list_of(type_)))
    return list_value(*met(values, scope.schema))


def transformed(node: Any, scope: Scope, lower: LowerIn) -> Expr:
    """Lower `list_transform(l, lambda x: …)`."""
    return _over_elements(node, LIST_TRANSFORM, scope, lower, lower)


def filtered(node: Any, scope: Scope, lower: LowerIn, condition: LowerIn) -> Expr:
    """Lower `list_filter(l, lambda x: …)`."""
    return _over_elements(node, LIST_FILTER, scope, lower, condition)


def _over_elements(node: Any, function: Function, scope: Scope, lower: LowerIn, lower_body: LowerIn) -> Expr:
    body, name = node.expression, function.name
    if not isinstance(body, exp.Lambda) or not 1 <= len(body.expressions) <= _PARAMETERS_MAX:
        hint = f"write {name}(l, lambda x: x + 1), or lambda x, i: with the position"
        refuse(node, f"a lambda of one or two parameters is wanted: function={name}", hint)
    list_ = lower(node.this, scope)
    type_ = type_in(list_, scope.schema)
    if type_ is None or not is_list(type_):
        refuse(
            node.this,
            f"another type is wanted here: function={name} got={type_ or 'constant'} want=list",
            f"it is {name}(list, lambda)",
        )
    inner, own = _inside(body, type_.value_type, scope)
    made = unwrap(lower_body(body.this, inner))
    position = ColumnRef(own[1]) if len(own) > 1 else None
    return Expr(over_elements(function, unwrap(list_), _typed(made), ColumnRef(own[0]), position))


def _typed(value: Expression) -> Expression:
    """Return the body; a null without a type is one of whole numbers, as a null column of DuckDB's results is."""
    return Literal(None, INT64) if isinstance(value, Literal) and value.value is None and not value.dtype else value


def _inside(body: Any, element: pa.DataType, scope: Scope) -> tuple[Scope, list[str]]:
    """Return the scope of a lambda's body, and the columns in it that hold the element and its position."""
    inner = replace(scope)
    names = [parameter.name for parameter in body.expressions]
    columns = [inner.holding(lit(None, type_), name) for name, type_ in zip(names, (element, INT64), strict=False)]
    found = {name.casefold(): ColumnRef(column) for name, column in zip(names, columns, strict=True)}
    uses = [part for part in parts(body.this) if is_parameter(part) and lambda_of(part) == lambda_of(body)]
    inner.made = {**scope.made, **{id(use): Expr(found[use.name.casefold()]) for use in uses}}
    return inner, columns


def misplaced(node: Any, _scope: Scope) -> Expr:
    """Refuse a lambda's parameter where no row has a value for it: in an aggregate, a window or a query."""
    hint = "unnest the list in FROM, and compute there"
    return refuse(node, f"a lambda's parameter cannot be used inside this: parameter={node.name}", hint)
