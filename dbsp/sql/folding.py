"""Constant folding: expressions that read no column are evaluated once, when the query is compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dbsp.expr.build import Expr
from dbsp.expr.expression import Literal
from dbsp.expr.methods.applied import unwrap
from dbsp.expr.now import has_now
from dbsp.expr.outcomes import outcomes
from dbsp.expr.resolving import resolve
from dbsp.sql.errors import refuse
from dbsp.sql.types import common
from dbsp.zset.batch import Batch
from dbsp.zset.schema import NO_COLUMNS

_NO_TYPE = "write cast(null as bigint)"
_ONE_ROW = Batch(schema=NO_COLUMNS, columns=(), weights=np.ones((1, 1), np.int64))


def reads_nothing(value: Expr) -> bool:
    """Return whether the value is constant: it reads no column and not the clock."""
    expression = unwrap(value)
    return not expression.columns() and not has_now(expression)


def folded(values: Sequence[Expr], nodes: Sequence[Any]) -> tuple[pa.DataType, tuple[Any, ...]]:
    """Return the common type of constant expressions, and their Python values in this type.

    `nodes` are the parts of the query that the values were lowered from; errors are reported there.
    """
    found: pa.DataType | None = None
    for value, node in zip(values, nodes, strict=True):
        type_ = _type_of(value)
        meet = type_ if found is None else found if type_ is None else common(found, type_)
        if meet is None and type_ is not None:
            refuse(node, f"values of these types cannot be combined: {found} and {type_}", "cast one of them")
        found = meet
    if found is None:
        refuse(nodes[0], "a null has no type here", _NO_TYPE)
    return found, tuple(_computed(value, found, node) for value, node in zip(values, nodes, strict=True))


def _type_of(value: Expr) -> pa.DataType | None:
    """Return the type of a constant expression, or None for a null without a type."""
    expression = unwrap(value)
    if isinstance(expression, Literal) and expression.value is None and expression.dtype is None:
        return None
    found: pa.DataType = resolve(expression, NO_COLUMNS).type(NO_COLUMNS)
    return found


def _computed(value: Expr, type_: pa.DataType, node: Any) -> Any:
    own = _type_of(value)
    if own is None:
        return None
    wanted = value if own == type_ else value.cast(type_)
    made, reasons = outcomes(resolve(unwrap(wanted), NO_COLUMNS), _ONE_ROW)
    if reasons:
        refuse(node, f"this constant expression cannot be computed: {reasons[0]}", "write another one")
    return _as_constant(made.to_pylist()[0])


def _as_constant(value: Any) -> Any:
    """Return a Python value in the form that `Literal` holds: lists and structs as tuples."""
    if isinstance(value, dict):
        return tuple(map(_as_constant, value.values()))
    return tuple(map(_as_constant, value)) if isinstance(value, list) else value
