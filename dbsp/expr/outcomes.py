"""Outcomes of an expression on which some rows fail: the failed rows, their reasons, and the values of the others.

Each call first sets aside the rows whose arguments failed. Then it sets aside those that the function knows to fail
(division by zero). The call itself is bisected over the rest (`dbsp.expr.bisection`), over the different values if it
has one argument. So a failing row repeats at most one kernel, not the expression. A call that computes by need
(`when`, `coalesce`, `and`) is bisected as a whole.

**Law** Values and reasons are those of each row evaluated alone.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from dbsp.expr.bisection import Positions, computed
from dbsp.expr.expression import Call, Expression, broadcast
from dbsp.expr.rows import ROW_ERRORS, ColumnReader, Known, Subset, schedule_of
from dbsp.expr.types import is_float

Reasons = dict[int, str]
Data = list[Any]  # one array or scalar per argument


def outcomes(expression: Expression, rows: ColumnReader) -> tuple[pa.Array, Reasons]:
    """Return the values, null where a row failed, and the reasons by row.

    **Cost** one evaluation if no row fails. Otherwise one per level of the expression, and about 2 log2(rows)
    evaluations of the failing call per failing row. A failing value of a single argument counts once, and a row that
    the function knows to fail adds none.
    """
    if not isinstance(expression, Call):
        return broadcast(expression.datum(rows), len(rows)), {}
    known = Known(rows, schedule_of(expression))
    with suppress(*ROW_ERRORS):
        return broadcast(known.root(expression), len(rows)), {}
    done: dict[int, tuple[Any, Reasons]] = {}
    waiting: list[Expression] = [expression]
    while waiting:
        node = waiting[-1]
        missing = [] if id(node) in done else _failing(node, known, done)
        waiting.extend(missing)
        if not missing:
            waiting.pop()
    values, reasons = done[id(expression)]
    return broadcast(values, len(rows)), reasons


def _failing(node: Expression, known: Known, done: dict[int, tuple[Any, Reasons]]) -> list[Expression]:
    """Store the outcomes of a node; or return the arguments that need outcomes first, if one of them may have failed."""
    with suppress(*ROW_ERRORS):
        done[id(node)] = node.datum(known), {}  # a value that reads no column stays a scalar
        return []
    assert isinstance(node, Call)  # noqa: S101 (columns and constants do not fail)
    if node.function.lazy is not None:
        done[id(node)] = computed(lambda at: node.evaluate(Subset(known.rows, pa.array(at))), len(known))
        return []
    missing = [arg for arg in node.args if id(arg) not in done]
    if missing:
        return missing[::-1]
    data, reasons = [], Reasons()
    for arg in node.args:
        values, failed = done[id(arg)]
        data.append(values if isinstance(values, pa.Scalar) else broadcast(values, len(known)))
        reasons = failed | reasons
    done[id(node)] = _over_the_rest(node, data, reasons, len(known))
    return []


def _over_the_rest(call: Call, data: Data, reasons: Reasons, rows: int) -> tuple[pa.Array, Reasons]:
    """Compute the call over the rows whose arguments did not fail; the others are null."""
    reasons = _sure_failures(call, data, rows) | reasons
    if not reasons:
        return _bisected(call, data, rows)
    failed = np.zeros(rows, np.bool_)
    failed[list(reasons)] = True
    rest = np.flatnonzero(~failed)
    found, failures = _bisected(call, _taken(data, pa.array(rest)), len(rest))
    places = np.zeros(rows, np.int64)
    places[rest] = np.arange(len(rest))
    spread = found.take(pa.array(places, mask=failed))
    return spread, reasons | {int(rest[row]): reason for row, reason in failures.items()}


def _sure_failures(call: Call, data: Data, rows: int) -> Reasons:
    """Return the rows that the function knows to fail; the first row's reason counts for all."""
    if call.function.fails is None:
        return {}
    mask = broadcast(call.function.fails(*data, *call.options), rows).fill_null(False)
    suspects = np.flatnonzero(mask.to_numpy(zero_copy_only=False))
    if not len(suspects):
        return {}
    _, reasons = _bisected(call, _taken(data, pa.array(suspects[:1])), 1)
    return dict.fromkeys(suspects.tolist(), reasons[0]) if reasons else {}


def _bisected(call: Call, data: Data, rows: int) -> tuple[pa.Array, Reasons]:
    """Compute the call, bisected where it fails; a single argument's equal values are computed once.

    Equal floats are computed separately, because -0.0 equals 0.0 and may have another result.
    """
    arrays = [values for values in data if not isinstance(values, pa.Scalar)]
    if len(arrays) == 1 and not (pa.types.is_nested(arrays[0].type) or is_float(arrays[0].type)):
        coded = arrays[0].dictionary_encode(null_encoding="encode")
        distinct = [values if isinstance(values, pa.Scalar) else coded.dictionary for values in data]
        found, reasons = _pieces(call, distinct, len(coded.dictionary))
        return found.take(coded.indices), _spread(coded.indices, reasons)
    return _pieces(call, data, rows)


def _spread(codes: pa.Array, reasons: Reasons) -> Reasons:
    """Return the reasons of values as those of the rows that have them."""
    if not reasons:
        return {}
    found = codes.to_numpy()
    rows = np.flatnonzero(np.isin(found, list(reasons)))
    return {row: reasons[code] for row, code in zip(rows.tolist(), found[rows].tolist(), strict=True)}


def _pieces(call: Call, data: Data, rows: int) -> tuple[pa.Array, Reasons]:
    def compute(positions: Positions) -> pa.Array:
        if not len(positions):
            return call.compute(
                [broadcast(values, 0) if isinstance(values, pa.Scalar) else values[:0] for values in data]
            )
        low, count = int(positions[0]), len(positions)
        part = [values if isinstance(values, pa.Scalar) else values.slice(low, count) for values in data]
        return broadcast(call.compute(part), count)

    return computed(compute, rows)


def _taken(data: Data, positions: pa.Array) -> Data:
    """Return the arguments at some rows."""
    return [values if isinstance(values, pa.Scalar) else values.take(positions) for values in data]
