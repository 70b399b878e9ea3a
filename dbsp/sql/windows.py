"""OVER: window functions, each lowered to a column that a window of a stream adds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

import dbsp.stream.window_functions as win
from dbsp.aggregates.aggregate import Aggregate, order_of
from dbsp.aggregates.lists import ArrayAgg, StringAgg
from dbsp.expr.build import Expr, col
from dbsp.sql.errors import about, refuse
from dbsp.sql.expressions import lowered
from dbsp.sql.grouping import aggregate, ordering, text_of
from dbsp.sql.intervals import interval
from dbsp.sql.scope import Scope
from dbsp.sql.signatures import WINDOWS, check_call
from dbsp.sql.types import constant, is_constant, resolved
from dbsp.sql.walks import children

PLACES = {
    exp.RowNumber: win.row_number,
    exp.Rank: win.rank,
    exp.DenseRank: win.dense_rank,
    exp.PercentRank: win.percent_rank,
    exp.CumeDist: win.cume_dist,
}
VALUES = {exp.FirstValue: win.first_value, exp.LastValue: win.last_value, exp.NthValue: win.nth_value}
_WHOLE = "write rows between unbounded preceding and unbounded following"


def windows_in(node: Any) -> Iterator[Any]:
    """Yield the window calls of an expression, except those inside subqueries."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, exp.Window):
            yield part
        elif not isinstance(part, exp.Query):
            waiting.extend(reversed(children(part)))


def windowed(scope: Scope, nodes: Sequence[Any], select: Any, names: Mapping[str, str]) -> None:
    """Add a column to the scope for every window function; functions of the same window share one operator."""
    named = {window.name.casefold(): window for window in select.args.get("windows") or []}
    groups: dict[str, list[Any]] = {}
    for node in nodes:
        partition, order, _ = _spec(node, named)
        text = f"{[text_of(part) for part in partition]} {'' if order is None else text_of(order)}"
        groups.setdefault(text, []).append(node)
    for calls in groups.values():
        _add(scope, calls, named, names)


def _add(scope: Scope, nodes: Sequence[Any], named: Mapping[str, Any], names: Mapping[str, str]) -> None:
    """Add the functions of one window to the scope in one pass."""
    partition, order, _ = _spec(nodes[0], named)
    with about(nodes[0]):
        by = [] if order is None else [ordering(each, scope) for each in order.expressions]
        keys = {resolved(value := lowered(part, scope), scope.schema): value for part in partition}
        window = scope.stream.window(list(keys.values()), by)
        functions: dict[str, Any] = {}
        for node in nodes:
            wanted = names.get(text_of(node), "")
            name = (
                wanted
                if wanted and wanted not in scope.schema and wanted not in functions
                else _fresh(scope, functions)
            )
            with about(node):
                functions[name] = _function(node, scope, _spec(node, named)[2], by)
            scope.made[id(node)] = col(name)
        scope.stream = window.with_columns(**functions)


def _fresh(scope: Scope, functions: Mapping[str, Any]) -> str:
    number = len(functions)
    while f"__window{number}" in scope.schema or f"__window{number}" in functions:
        number += 1
    return f"__window{number}"


def _spec(node: Any, named: Mapping[str, Any]) -> tuple[list[Any], Any, Any]:
    """Return the partition, order and frame of a call, which may be in a named window of the WINDOW clause."""
    parts = [node]
    while (alias := parts[-1].args.get("alias")) is not None:
        base = named.get(alias.name.casefold())
        if base is None or base in parts:
            refuse(node, f"no such window: window={alias.name}", "define it by WINDOW w AS (…)")
        parts.append(base)
    partition: list[Any] = next((part.args["partition_by"] for part in parts if part.args.get("partition_by")), [])
    order = next((part.args["order"] for part in parts if part.args.get("order")), None)
    spec = next((part.args["spec"] for part in parts if part.args.get("spec")), None)
    return partition, order, spec


def _function(node: Any, scope: Scope, spec: Any, by: Sequence[Any]) -> Any:
    called, ignores, bare = node.this, False, node.this
    while isinstance(bare, exp.IgnoreNulls | exp.RespectNulls):
        ignores = ignores or isinstance(bare, exp.IgnoreNulls)
        bare = bare.this
    kind = type(bare)
    if kind in WINDOWS:
        check_call(bare, WINDOWS[kind], lambda part: lowered(part, scope), scope.schema)
    if kind in PLACES:
        return PLACES[kind]()
    if kind is exp.Ntile:
        return win.ntile(_whole(bare, bare.this, scope))
    if kind in (exp.Lag, exp.Lead):
        return _neighbour(bare, scope, ignores)
    if kind in VALUES:
        return _place(bare, scope, spec, ignores)
    if isinstance(bare, exp.AnyValue):
        called = bare
    rows, range_ = _frame(spec, scope, ordered=bool(by))
    return win.rolling(_in_order(bare, aggregate(called, scope), by), rows=rows, range=range_)


def _in_order(node: Any, made: Aggregate, by: Sequence[Any]) -> Aggregate:
    """Return a list or text aggregate with the window's order, unless it has an order of its own."""
    if not isinstance(made.kind, ArrayAgg | StringAgg) or made.order or not by:
        return made
    order = order_of(made.kind.sql(("…",)), by, needed=False)
    if made.kind.distinct and [each.expression for each in order] != list(made.arguments):
        refuse(
            node,
            "DISTINCT values can be ordered only by themselves, and the window has another order",
            "order by the value in the call too, such as array_agg(distinct x order by x) over (…)",
        )
    return replace(made, order=order)


def _neighbour(node: Any, scope: Scope, ignores: bool) -> Any:
    function = win.lag if isinstance(node, exp.Lag) else win.lead
    offset, default = node.args.get("offset"), node.args.get("default")
    count = 1 if offset is None else _whole(node, offset, scope)
    value = lowered(node.this, scope)
    if default is None or (is_constant(lowered(default, scope)) and constant(lowered(default, scope)) is None):
        return function(value, count, ignore_nulls=ignores)
    other = lowered(default, scope)
    return function(value, count, constant(other) if is_constant(other) else other, ignore_nulls=ignores)


def _whole(node: Any, part: Any, scope: Scope) -> int:
    """Return the constant whole number that an argument of a window function must be."""
    value = lowered(part, scope)
    held = constant(value) if is_constant(value) else None
    if not isinstance(held, int) or isinstance(held, bool):
        refuse(
            part,
            f"a constant whole number is wanted here: function={node.key} got={value}",
            "write ntile(4), lag(x, 1)",
        )
    return held


def _place(node: Any, scope: Scope, spec: Any, ignores: bool) -> Any:
    """Return `first_value`, `last_value` or `nth_value`; refuse a frame that does not cover the needed part of the partition."""
    if isinstance(node.this, exp.Order):
        refuse(node, "a window function takes its order from OVER", "write first_value(x) over (order by v)")
    start, end = _sides(spec)
    first = isinstance(node, exp.FirstValue)
    if start != "UNBOUNDED" or (end != "UNBOUNDED" and not (first and end == "CURRENT ROW" and not ignores)):
        refuse(
            node,
            f"{node.sql_name().lower()} over only a part of the partition is not supported",
            f"{_WHOLE}, or coalesce(x, lag(x ignore nulls) over (…))",
        )
    value = lowered(node.this, scope)
    if isinstance(node, exp.NthValue):
        return win.nth_value(value, _whole(node, node.args.get("offset"), scope), ignore_nulls=ignores)
    function: Any = VALUES[type(node)]
    return function(value, ignore_nulls=ignores)


def _sides(spec: Any) -> tuple[Any, Any]:
    """Return both bounds of a frame; without a frame it ends with the current row and its ties."""
    if spec is None:
        return "UNBOUNDED", "CURRENT ROW"
    return spec.args.get("start"), spec.args.get("end") or "CURRENT ROW"


def _frame(spec: Any, scope: Scope, *, ordered: bool) -> tuple[Any, Any]:
    """Return the `rows` and `range` arguments of a rolling aggregate; at least one of them is None."""
    if spec is None:
        return ((None, None), None) if not ordered else (None, (None, 0))
    kind = (spec.args.get("kind") or "ROWS").upper()
    if kind not in ("ROWS", "RANGE"):
        refuse(spec, "this frame is not supported", "write rows or range between … and …")
    start, end = _sides(spec)
    bounds = _bound(start, spec.args.get("start_side"), scope, 1), _bound(end, spec.args.get("end_side"), scope, -1)
    if bounds == (None, None) or kind == "ROWS":
        return bounds, None
    return None, bounds


def _bound(bound: Any, side: Any, scope: Scope, direction: int) -> Any:
    """Return how far a frame extends before the row (for its end: after the row), or None if it is unbounded."""
    if bound == "UNBOUNDED":
        return None
    if bound == "CURRENT ROW":
        return 0
    sign = direction if (side or "PRECEDING").upper() == "PRECEDING" else -direction
    span = interval(bound, lambda part: lowered(part, scope))
    if span is not None:
        if span.months or span.count is not None:
            refuse(bound, "a frame of months has no fixed length", "write a number of days")
        return span.span * sign
    value: Expr = lowered(bound, scope)
    if not is_constant(value):
        refuse(bound, "the bounds of a frame must be constants", "write a number, or an interval")
    return constant(value) * sign
