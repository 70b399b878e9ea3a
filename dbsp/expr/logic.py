"""Comparisons and three-valued logic, as in SQL: a comparison with null is null.

`false & null` is false, and `true | null` is true. A NaN equals itself and is greater than every other number, as in
DuckDB and PostgreSQL. So grouping, ordering and comparing agree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.errors import CircuitError
from dbsp.expr.cast import to_common
from dbsp.expr.expression import Call, Expression, Function, Operands, broadcast, is_expensive
from dbsp.expr.rows import ColumnReader, Subset
from dbsp.expr.type_names import spelled
from dbsp.expr.types import adopt, is_float, type_of, typed
from dbsp.zset.arrays import canonical_floats
from dbsp.zset.equality import equal_keys
from dbsp.zset.schema import BOOL, is_scalar

SPARED_ROWS_MIN = 1024
"""With fewer rows, the second operand is computed for all of them: choosing rows would cost as much."""
SPARED_SHARE = 0.75
"""If a greater share of the rows needs an expensive value, all rows compute it: taking rows out would save nothing."""


def _bool(*_types: Any) -> pa.DataType:
    return BOOL


def _nan(values: Any) -> Any | None:
    """Return where the values are NaN, or None if none is."""
    if not is_float(values.type):
        return None
    found = pc.is_nan(values)
    some = found.as_py() if isinstance(found, pa.Scalar) else pc.any(found).as_py()
    return found if some else None


def ordered(compare: Callable[..., pa.Array], left: Any, right: Any) -> pa.Array:
    """Compare by (is NaN, value): two NaNs are equal, and a NaN is above every number."""
    nan_left, nan_right = _nan(left), _nan(right)
    if nan_left is None and nan_right is None:
        return compare(left, right)
    level = compare(pc.is_nan(left).cast(pa.int8()), pc.is_nan(right).cast(pa.int8()))
    return pc.if_else(pc.or_(pc.is_nan(left), pc.is_nan(right)), level, compare(left, right))


def _fit_comparison(operands: Operands) -> tuple[Expression, ...]:
    if any(type_ is not None and pa.types.is_list(type_) for type_ in operands.types):
        raise operands.refuse("lists can be compared only by == and !=, with a list of the same type: compare elements")
    if any(type_ is not None and pa.types.is_struct(type_) for type_ in operands.types):
        raise operands.refuse(
            "structs can be compared only by == and !=, with a struct of the same type: compare fields"
        )
    return to_common(operands)


def _fit_equality(operands: Operands) -> tuple[Expression, ...]:
    """Fit a comparison for equality, which also takes two structs or two lists of one type."""
    left, right = operands.types
    nested = left is not None and not is_scalar(left)
    return operands.args if nested and left == right else _fit_comparison(operands)


def _same(left: Any, right: Any, compare: Callable[..., pa.Array]) -> Any:
    """Return whether structs or lists are equal, nulls inside them included; null where one side is null."""
    if is_scalar(left.type):
        return ordered(compare, left, right)
    rows = max((len(side) for side in (left, right) if not isinstance(side, pa.Scalar)), default=-1)
    if rows < 0:
        return _same(broadcast(left, 1), right, compare)[0]
    left, right = broadcast(left, rows), broadcast(right, rows)
    every = np.arange(rows)
    same = equal_keys(left, every, right, every)
    found = pa.array(same if compare is pc.equal else ~same)
    return pc.if_else(pc.and_(left.is_valid(), right.is_valid()), found, pa.scalar(None, BOOL))


def _comparison(name: str, compare: Callable[..., pa.Array], symbol: str) -> Function:
    return Function(
        name=name,
        fit=_fit_equality if compare in (pc.equal, pc.not_equal) else _fit_comparison,
        result=_bool,
        compute=lambda left, right: _same(left, right, compare),
        text=f"({{0}} {symbol} {{1}})",
    )


EQUAL = _comparison("equal", pc.equal, "==")
NOT_EQUAL = _comparison("not_equal", pc.not_equal, "!=")
LESS = _comparison("less", pc.less, "<")
LESS_EQUAL = _comparison("less_equal", pc.less_equal, "<=")
GREATER = _comparison("greater", pc.greater, ">")
GREATER_EQUAL = _comparison("greater_equal", pc.greater_equal, ">=")


def _fit_bools(operands: Operands) -> tuple[Expression, ...]:
    args = typed(operands, BOOL)
    for arg, own in zip(args, operands.types, strict=True):
        type_ = type_of(arg, own)
        if type_ != BOOL:
            raise operands.refuse(f"& | ~ join conditions: write a comparison, such as ({arg} != …), in brackets")
    return args


def _by_need(
    undecided: Callable[[pa.Array], pa.Array], combine: Callable[..., pa.Array]
) -> Callable[[Call, ColumnReader], pa.Array]:
    """Return a function that computes the right side only for rows that the left side leaves undecided."""

    def compute(call: Call, rows: ColumnReader) -> pa.Array:
        left = broadcast(call.args[0].datum(rows), len(rows))
        needed = undecided(left)
        right = scatter(call.args[1], rows, needed)
        return combine(left, right)

    return compute


def _sparing(
    undecided: Callable[[pa.Array], pa.Array], combine: Callable[..., pa.Array]
) -> Callable[[Call, ColumnReader], pa.Array | None]:
    """Return a function that spares decided rows an expensive right side.

    It returns None if the right side is not expensive, or if there are too few rows.
    """

    def compute(call: Call, rows: ColumnReader) -> pa.Array | None:
        if len(rows) < SPARED_ROWS_MIN or not is_expensive(call.args[1]):
            return None
        left = broadcast(call.args[0].datum(rows), len(rows))
        return combine(left, spared(call.args[1], rows, undecided(left)))

    return compute


def spared(value: Expression, rows: ColumnReader, needed: pa.Array) -> Any:
    """Compute a value where it is needed; compute it everywhere if it is cheap or most rows need it."""
    spares = is_expensive(value) and needed.true_count <= SPARED_SHARE * len(rows)
    return scatter(value, rows, needed) if spares else value.datum(rows)


def scatter(expression: Expression, rows: ColumnReader, needed: pa.Array) -> pa.Array:
    """Compute the expression for the rows where `needed` is true; the others are null."""
    mask = pc.fill_null(needed, False).to_numpy(zero_copy_only=False)
    values = expression.evaluate(Subset(rows, pa.array(np.flatnonzero(mask))))
    return values.take(pa.array(np.cumsum(mask) - 1, mask=~mask))


def _not_false(left: pa.Array) -> pa.Array:
    return pc.fill_null(left, True)


def _not_true(left: pa.Array) -> pa.Array:
    return pc.invert(pc.fill_null(left, False))


AND = Function(
    name="and",
    fit=_fit_bools,
    result=_bool,
    compute=pc.and_kleene,
    lazy=_by_need(_not_false, pc.and_kleene),
    spare=_sparing(_not_false, pc.and_kleene),
    text="({0} & {1})",
)
OR = Function(
    name="or",
    fit=_fit_bools,
    result=_bool,
    compute=pc.or_kleene,
    lazy=_by_need(_not_true, pc.or_kleene),
    spare=_sparing(_not_true, pc.or_kleene),
    text="({0} | {1})",
)
NOT = Function(name="not", fit=_fit_bools, result=_bool, compute=pc.invert, text="~{0}")
IS_NULL = Function(name="is_null", fit=typed, result=_bool, compute=pc.is_null, nulls="never", text="{0}.is_null()")
IS_NOT_NULL = Function(
    name="is_not_null", fit=typed, result=_bool, compute=pc.is_valid, nulls="never", text="{0}.is_not_null()"
)


def _fit_is_in(operands: Operands) -> tuple[Expression, ...]:
    (arg,) = typed(operands)
    source = type_of(arg, operands.types[0])
    for value in operands.options[0]:
        if adopt(value, source) is None:
            raise CircuitError(
                f"is_in compares with a constant of another type: column={arg} type={source} value={value!r}",
                f"give constants of {spelled(source)}, or cast the column",
            )
    return (arg,)


def _is_in(values: pa.Array, options: tuple[Any, ...]) -> pa.Array:
    members = [adopt(value, values.type) for value in options if value is not None]
    wanted = canonical_floats(pa.array([member.value for member in members if member], values.type))
    found = pc.is_in(values, value_set=wanted)
    found = pc.if_else(pc.is_valid(values), found, pa.scalar(None, BOOL))
    if None in options:
        found = pc.if_else(found, found, pa.scalar(None, BOOL))
    return found


IS_IN = Function(name="is_in", fit=_fit_is_in, result=_bool, compute=_is_in, nulls="always", text="{0}.is_in({1})")

FUNCTIONS = (
    EQUAL,
    NOT_EQUAL,
    LESS,
    LESS_EQUAL,
    GREATER,
    GREATER_EQUAL,
    AND,
    OR,
    NOT,
    IS_NULL,
    IS_NOT_NULL,
    IS_IN,
)
