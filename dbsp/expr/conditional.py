"""Choices between values: `when … otherwise`, `coalesce`, and `or_null`.

`when` and `coalesce` compute all values of all rows and then choose, since whole columns are fast. If a row fails,
they compute only the values that each row needs. A group of a pattern is an example of an expensive value. A `when`
computes such a value only for the rows that take it, if at most three quarters of the rows do.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dbsp.expr.cast import to_common
from dbsp.expr.expression import Call, Expression, Function, Operands, branch_values, broadcast, is_expensive
from dbsp.expr.logic import SPARED_ROWS_MIN, scatter, spared
from dbsp.expr.outcomes import outcomes
from dbsp.expr.rows import ColumnReader
from dbsp.expr.types import type_of, typed
from dbsp.zset.schema import BOOL


def _part(operands: Operands, positions: list[int]) -> Operands:
    args = tuple(operands.args[position] for position in positions)
    return Operands(operands.function, args, tuple(operands.types[position] for position in positions), ())


def _fit_case(operands: Operands) -> tuple[Expression, ...]:
    """Fit conditions to booleans and values to one type; the order condition, value, …, otherwise stays."""
    last = len(operands.args) - 1
    conditions = _part(operands, list(range(0, last, 2)))
    values = _part(operands, [*range(1, last, 2), last])
    fitted_conditions = typed(conditions, BOOL)
    for arg, own in zip(fitted_conditions, conditions.types, strict=True):
        if type_of(arg, own) != BOOL:
            raise conditions.refuse("the first argument of when() is a condition, such as dbsp.col('x') > 0")
    fitted_values = to_common(values)
    pairs = zip(fitted_conditions, fitted_values[:-1], strict=True)
    return (*(arg for pair in pairs for arg in pair), fitted_values[-1])


def _case_type(*types: pa.DataType) -> pa.DataType:
    return types[-1]


def _case(*data: Any) -> pa.Array:
    result = data[-1]
    for position in range(len(data) - 3, -1, -2):
        result = pc.if_else(_true(data[position]), data[position + 1], result)
    if isinstance(result, pa.Scalar):
        rows = next(len(datum) for datum in data if isinstance(datum, pa.Array))
        result = broadcast(result, rows)
    return result


def _true(condition: Any) -> Any:
    if isinstance(condition, pa.Scalar):
        return pa.scalar(condition.as_py() is True)
    return pc.fill_null(condition, False)


def _case_sparing(call: Call, rows: ColumnReader) -> Any | None:
    """Compute expensive values only for the rows that take them.

    Return None if no value is expensive, or if there are too few rows.
    """
    conditions, values = call.args[:-1:2], branch_values(call.args)
    if len(rows) < SPARED_ROWS_MIN or not any(map(is_expensive, values)):
        return None
    data: list[Any] = []
    waiting: pa.Array = pa.repeat(True, len(rows))
    for condition, value in zip(conditions, values[:-1], strict=True):
        holds = broadcast(_true(condition.datum(rows)), len(rows))
        data += [holds, spared(value, rows, pc.and_(waiting, holds))]
        waiting = pc.and_not(waiting, holds)
    return call.compute([*data, spared(values[-1], rows, waiting)])


def _case_by_need(call: Call, rows: ColumnReader) -> pa.Array:
    """Compute conditions and values only for rows that no earlier condition takes."""
    count = len(rows)
    waiting: pa.Array = pa.repeat(True, count)
    values: list[tuple[pa.Array, pa.Array]] = []
    for condition, value in zip(call.args[:-1:2], branch_values(call.args)[:-1], strict=True):
        holds = pc.fill_null(scatter(condition, rows, waiting), False)
        taken = pc.and_(waiting, holds)
        values.append((taken, scatter(value, rows, taken)))
        waiting = pc.and_(waiting, pc.invert(holds))
    result = scatter(call.args[-1], rows, waiting)
    for taken, chosen in values:
        result = pc.if_else(taken, chosen, result)
    return result


def _fit_same(operands: Operands) -> tuple[Expression, ...]:
    return to_common(operands)


def _first(*data: Any) -> pa.Array:
    return pc.coalesce(*data)


def _first_by_need(call: Call, rows: ColumnReader) -> pa.Array:
    """Compute each argument only for rows where all earlier ones are null."""
    result = broadcast(call.args[0].datum(rows), len(rows))
    for arg in call.args[1:]:
        result = pc.coalesce(result, scatter(arg, rows, pc.is_null(result)))
    return result


def _try_by_row(call: Call, rows: ColumnReader) -> pa.Array:
    """Return the argument's values, null on the rows where it fails."""
    (arg,) = call.args
    values, _ = outcomes(arg, rows)
    return values


TRY = Function(
    name="try",
    fit=typed,
    result=lambda type_: type_,
    compute=lambda values: values,
    lazy=_try_by_row,
    nulls="always",
    text="{0}.or_null()",
)
CASE = Function(
    name="case", fit=_fit_case, result=_case_type, compute=_case, lazy=_case_by_need, nulls="case", spare=_case_sparing
)
COALESCE = Function(
    name="coalesce", fit=_fit_same, result=lambda first, *_: first, compute=_first, lazy=_first_by_need, nulls="all"
)

FUNCTIONS = (CASE, COALESCE, TRY)
