"""GROUP BY: keys, aggregates, and grouping sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import combinations, product
from typing import Any

from sqlglot import exp

import dbsp.aggregates as agg
from dbsp.aggregates import Aggregate
from dbsp.aggregates.ordering import asc, desc
from dbsp.expr.build import Expr, col, lit, struct
from dbsp.expr.expression import ColumnRef, Expression
from dbsp.expr.methods.applied import unwrap
from dbsp.expr.resolving import resolve
from dbsp.sql.errors import about, name_of, refuse
from dbsp.sql.expressions import condition, lowered
from dbsp.sql.parser import Histogram
from dbsp.sql.scope import Scope
from dbsp.sql.signatures import AGGREGATES as SIGNATURES
from dbsp.sql.signatures import check_call
from dbsp.sql.types import constant, is_constant
from dbsp.sql.walks import children
from dbsp.zset.schema import INT64

Made = Callable[[Any, Scope], Aggregate]
Calls = dict[str, tuple[str, Aggregate, bool]]
_WRAPPERS = (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)
_SETS = (exp.Rollup, exp.Cube, exp.GroupingSets)


def text_of(node: Any) -> str:
    """Return a node's SQL text, by which equal calls are recognised."""
    text: str = node.sql(dialect="duckdb")
    return text


def aggregates_in(node: Any) -> Iterator[Any]:
    """Yield the aggregate calls of an expression, except those inside subqueries and those called over a window."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, exp.Query):
            continue
        if isinstance(part, exp.Window):
            called = part.this
            while isinstance(called, _WRAPPERS):
                called = called.this
            inner = [*children(called), *(p for p in children(part) if p is not part.this)]
            waiting.extend(reversed(inner))
        elif _is_aggregate(part):
            yield part
        else:
            waiting.extend(reversed(children(part)))


def _is_aggregate(node: Any) -> bool:
    if isinstance(node, _WRAPPERS):
        return _is_aggregate(node.this)
    return isinstance(node, exp.AggFunc | exp.Grouping) or (
        isinstance(node, exp.Anonymous) and node.name.casefold() in _NAMED
    )


def calls_of(nodes: Iterable[Any], scope: Scope, names: Mapping[str, str]) -> Calls:
    """Return the aggregates by their SQL text, equal calls once.

    Each value holds the name of the result column, the aggregate, and whether its result is 0 for no rows. GROUPING is
    left out.
    """
    calls: Calls = {}
    for node in nodes:
        text = text_of(node)
        if text in calls or isinstance(node, exp.Grouping):
            continue
        with about(node):
            name = names.get(text) or f"__{len(calls)}"
            made = aggregate(node, scope)
            scope.stream.aggregate(checked=made)  # checks the call now, so that an error has the call's place
            calls[text] = name, made, _counts(node)
    return calls


def _counts(node: Any) -> bool:
    """Return whether the aggregate counts, so that its result for no rows is 0 and not null."""
    while isinstance(node, _WRAPPERS):
        node = node.this
    return isinstance(node, exp.Count | exp.RegrCount | exp.ApproxDistinct) or (
        isinstance(node, exp.Anonymous) and node.name == "count_star"
    )


def aggregate(node: Any, scope: Scope) -> Aggregate:
    """Return the aggregate of a call, with its FILTER, order and treatment of nulls."""
    if isinstance(node, exp.Filter):
        return aggregate(node.this, scope).where(condition(node.expression.this, scope))
    if isinstance(node, exp.IgnoreNulls | exp.RespectNulls):
        if isinstance(node.this, exp.First | exp.Last):
            return _first(node.this, scope, ignore_nulls=isinstance(node, exp.IgnoreNulls))
        if isinstance(node.this, exp.AnyValue) and isinstance(node, exp.IgnoreNulls):
            return aggregate(node.this, scope)  # the parser adds IGNORE NULLS to a plain any_value(x)
        hint = "write filter (where x is not null)" if isinstance(node, exp.IgnoreNulls) else "leave it out"
        refuse(node, "only first, last and window functions take IGNORE NULLS or RESPECT NULLS", hint)
    if isinstance(node, exp.WithinGroup):
        return _within(node, scope)
    for kind in type(node).__mro__:
        if kind in AGGREGATES:
            _check_arguments(node, kind, scope)
            return AGGREGATES[kind](node, scope)
    if isinstance(node, exp.Anonymous) and node.name.casefold() in _NAMED:
        return _NAMED[node.name.casefold()](node, scope)
    name = name_of(node)
    return refuse(node, f"no such aggregate: aggregate={name}", _INSTEAD.get(name, "docs/sql.md lists them"))


def _check_arguments(node: Any, kind: type, scope: Scope) -> None:
    """Refuse a call of an aggregate that does not fit its signature; a quantile WITHIN GROUP has its own form."""
    if not (kind in (exp.PercentileCont, exp.PercentileDisc) and isinstance(node.parent, exp.WithinGroup)):
        check_call(node, SIGNATURES[kind], lambda part: lowered(part, scope), scope.schema)


def _value(node: Any, scope: Scope) -> Expr:
    if isinstance(node, exp.Distinct):
        refuse(
            node,
            "this aggregate does not take DISTINCT",
            "count, sum, avg, string_agg and array_agg do; else select distinct in FROM",
        )
    return lowered(node, scope)


def _plain(function: Callable[[Any], Aggregate]) -> Made:
    return lambda node, scope: function(_value(node.this, scope))


def _count(node: Any, scope: Scope) -> Aggregate:
    if isinstance(node.this, exp.Distinct):
        if len(node.this.expressions) != 1:
            refuse(node, "DISTINCT takes one column here", "count the rows of (select distinct a, b from t)")
        return agg.count_distinct(lowered(node.this.expressions[0], scope))
    if node.this is None or isinstance(node.this, exp.Star):
        return agg.count()
    return agg.count(lowered(node.this, scope))


def _summed(function: Callable[..., Aggregate]) -> Made:
    def made(node: Any, scope: Scope) -> Aggregate:
        if isinstance(node.this, exp.Distinct):
            return function(lowered(node.this.expressions[0], scope), distinct=True)
        return function(lowered(node.this, scope))

    return made


def _pair(function: Callable[[Any, Any], Aggregate]) -> Made:
    def made(node: Any, scope: Scope) -> Aggregate:
        if isinstance(node, exp.Anonymous) and len(node.expressions) != 2:  # noqa: PLR2004 (a pair)
            refuse(node, f"two arguments are wanted here: aggregate={name_of(node)}", f"write {name_of(node)}(x, y)")
        first, second = (node.this, node.expression) if not isinstance(node, exp.Anonymous) else node.expressions
        return function(_value(first, scope), lowered(second, scope))

    return made


def _extreme(function: Callable[[Any, Any], Aggregate]) -> Made:
    """Return the function that lowers `arg_min` or `arg_max`; several values in brackets are compared as a struct."""

    def made(node: Any, scope: Scope) -> Aggregate:
        by = node.expression
        if not isinstance(by, exp.Tuple):
            return _pair(function)(node, scope)
        fields = {f"f{at}": lowered(part, scope) for at, part in enumerate(by.expressions)}
        return function(_value(node.this, scope), struct(**fields))

    return made


def _ordered(node: Any, scope: Scope) -> tuple[Any, Any, bool]:
    """Return the argument of an aggregate, its order or None, and whether it has DISTINCT."""
    argument, order = node.this, None
    if isinstance(argument, exp.Order):
        order = [ordering(by, scope) for by in argument.expressions]
        argument = argument.this
    distinct = isinstance(argument, exp.Distinct)
    return (argument.expressions[0] if distinct else argument), order, distinct


def ordering(by: Any, scope: Scope) -> Any:
    """Return one element of an ORDER BY, with its direction and the place of nulls."""
    value = lowered(by.this, scope)
    return (desc if by.args.get("desc") else asc)(value, nulls_first=bool(by.args.get("nulls_first")))


def _first(node: Any, scope: Scope, *, ignore_nulls: bool = False) -> Aggregate:
    argument, order, _ = _ordered(node, scope)
    if order is None:
        refuse(node, "first and last need an order", "write first(x order by at), or any_value(x)")
    function = agg.first if isinstance(node, exp.First) else agg.last
    return function(lowered(argument, scope), order_by=order, ignore_nulls=ignore_nulls)


def _texts(node: Any, scope: Scope) -> Aggregate:
    argument, order, distinct = _ordered(node, scope)
    separator = node.args.get("separator")
    between = "," if separator is None else constant(lowered(separator, scope))
    return agg.string_agg(lowered(argument, scope), between, order_by=order, distinct=distinct)


def _list(node: Any, scope: Scope) -> Aggregate:
    argument, order, distinct = _ordered(node, scope)
    return agg.array_agg(lowered(argument, scope), order_by=order, distinct=distinct)


def _part(node: Any, scope: Scope) -> float:
    value = lowered(node, scope)
    held = constant(value) if is_constant(value) else None
    if isinstance(held, bool) or not isinstance(held, int | float | Decimal) or not 0 <= held <= 1:
        refuse(
            node,
            f"the fraction of a quantile must be a constant from 0 to 1: got={value}",
            "write a call for each fraction",
        )
    return float(held)


def _quantile(function: Callable[[Any, float], Aggregate]) -> Made:
    def made(node: Any, scope: Scope) -> Aggregate:
        part = node.args.get("expression") or node.args.get("quantile")
        return function(_value(node.this, scope), _part(part, scope))

    return made


def _within(node: Any, scope: Scope) -> Aggregate:
    called = node.this
    if not isinstance(called, exp.PercentileCont | exp.PercentileDisc):
        return refuse(
            node,
            "WITHIN GROUP is supported only for percentile_cont and percentile_disc",
            "write string_agg(x, ',' order by y)",
        )
    if len(node.expression.expressions) != 1 or called.args.get("expression") is not None:
        refuse(
            node, "a quantile takes one fraction and one order", "write percentile_cont(0.5) within group (order by x)"
        )
    (by,) = node.expression.expressions
    part = _part(called.this, scope)
    if by.args.get("desc"):
        if isinstance(called, exp.PercentileDisc) and 0 < part < 1:
            refuse(
                node,
                "percentile_disc does not take a descending order",
                "negate the values, -percentile_disc(p) within group (order by -x)",
            )
        part = 1 - part
    function = agg.quantile_cont if isinstance(called, exp.PercentileCont) else agg.quantile_disc
    return function(lowered(by.this, scope), part)


AGGREGATES: dict[type, Made] = {
    exp.Count: _count,
    exp.Sum: _summed(agg.sum),
    exp.Avg: _summed(agg.avg),
    exp.Min: _plain(agg.min),
    exp.Max: _plain(agg.max),
    exp.AnyValue: _plain(agg.min),
    exp.ArgMax: _extreme(agg.arg_max),
    exp.ArgMin: _extreme(agg.arg_min),
    exp.First: _first,
    exp.Last: _first,
    exp.ApproxDistinct: _plain(agg.approx_count_distinct),
    Histogram: _plain(agg.histogram),
    exp.Skewness: _plain(agg.skewness),
    exp.Kurtosis: _plain(agg.kurtosis),
    exp.CountIf: lambda node, scope: agg.sum(
        condition(node.this, scope).cast(INT64)
    ),  # null if all values are null, as in DuckDB
    exp.Stddev: _plain(agg.stddev),
    exp.StddevSamp: _plain(agg.stddev_samp),
    exp.StddevPop: _plain(agg.stddev_pop),
    exp.Variance: _plain(agg.variance),
    exp.VariancePop: _plain(agg.var_pop),
    exp.Median: _plain(agg.median),
    exp.Mode: _plain(agg.mode),
    exp.Corr: _pair(agg.corr),
    exp.CovarPop: _pair(agg.covar_pop),
    exp.CovarSamp: _pair(agg.covar_samp),
    exp.RegrSlope: _pair(agg.regr_slope),
    exp.RegrIntercept: _pair(agg.regr_intercept),
    exp.RegrR2: _pair(agg.regr_r2),
    exp.RegrCount: _pair(agg.regr_count),
    exp.RegrAvgx: _pair(agg.regr_avgx),
    exp.RegrAvgy: _pair(agg.regr_avgy),
    exp.PercentileCont: _quantile(agg.quantile_cont),
    exp.PercentileDisc: _quantile(agg.quantile_disc),
    exp.Quantile: _quantile(agg.quantile_disc),
    exp.LogicalAnd: _plain(agg.bool_and),
    exp.LogicalOr: _plain(agg.bool_or),
    exp.BitwiseAndAgg: _plain(agg.bit_and),
    exp.BitwiseOrAgg: _plain(agg.bit_or),
    exp.BitwiseXorAgg: _plain(agg.bit_xor),
    exp.GroupConcat: _texts,
    exp.ArrayAgg: _list,
}
_NAMED: dict[str, Made] = {
    "min_by": _pair(agg.arg_min),
    "max_by": _pair(agg.arg_max),
    "count_star": lambda _node, _scope: agg.count(),
}
_INSTEAD = {
    "regr_sxx": "write regr_count(y, x) * var_pop(x) of the rows where both are there",
    "regr_syy": "write regr_count(y, x) * var_pop(y) of the rows where both are there",
    "regr_sxy": "write regr_count(y, x) * covar_pop(y, x)",
    "approx_quantile": "write quantile_cont(x, 0.5), which is exact",
}


def key_sets(select: Any, items: Sequence[Any]) -> list[list[Any]] | None:
    """Return the keys of GROUP BY, one list for each grouping set; None without GROUP BY.

    GROUP BY ALL groups by every item that has a column and no aggregate, and has no effect if there is neither. Items
    without columns are no keys: by constants alone, an empty input would have no row.
    """
    group = select.args.get("group")
    if group is None:
        return None
    for empty in [*(group.args.get("rollup") or []), *(group.args.get("cube") or [])]:
        if not empty.expressions:
            what = empty.key
            refuse(group, f"GROUP BY … WITH {what.upper()} is not supported", f"write group by {what} (a, b)")
    others = [*group.expressions, *(each for key in _CLAUSES for each in group.args.get(key) or [])]
    if group.args.get("all") and not others:
        keys = [item for item in items if item.find(exp.Column) and not (_aggregated(item) or item.find(exp.Window))]
        return [keys] if keys or any(map(_aggregated, items)) else None
    parts = [_sets(node, items) for node in group.expressions]
    for key in _CLAUSES:
        parts += [_sets(node, items) for node in group.args.get(key) or []]
    found = [[key for part in chosen for key in part] for chosen in product(*parts)]
    if group.args.get("all") is False:  # GROUP BY DISTINCT: drop sets that repeat the keys of an earlier one
        found = list({frozenset(map(text_of, keys)): keys for keys in reversed(found)}.values())[::-1]
    return found


_CLAUSES = ("rollup", "cube", "grouping_sets")


def _aggregated(item: Any) -> bool:
    return any(True for _ in aggregates_in(item))


def _sets(node: Any, items: Sequence[Any]) -> list[list[Any]]:
    """Return the alternative key lists of one element of GROUP BY: several for ROLLUP, CUBE and GROUPING SETS, else one."""
    if not isinstance(node, _SETS):
        return [[_key(part, items) for part in _flat(node)]]
    if isinstance(node, exp.GroupingSets):
        return [keys for part in node.expressions for keys in _sets(part, items)]
    keys = [[_key(part, items) for part in _flat(each)] for each in node.expressions]
    if isinstance(node, exp.Rollup):
        chosen: Iterable[Sequence[list[Any]]] = [keys[:length] for length in range(len(keys), -1, -1)]
    else:
        chosen = [each for length in range(len(keys), -1, -1) for each in combinations(keys, length)]
    return [[key for part in each for key in part] for each in chosen]


def _flat(node: Any) -> list[Any]:
    """Return the keys inside brackets, or the node itself."""
    if isinstance(node, exp.Tuple):
        return list(node.expressions)
    return [node.this] if isinstance(node, exp.Paren) else [node]


def _key(node: Any, items: Sequence[Any]) -> Any:
    """Return a key of GROUP BY; a whole number denotes an item of SELECT, counted from 1."""
    if not isinstance(node, exp.Literal) or node.is_string:
        return node
    at = int(node.this)
    if not 1 <= at <= len(items):
        refuse(node, f"GROUP BY has no such position: place={at} columns={len(items)}", "name the column")
    return items[at - 1]


def grouped(scope: Scope, sets: Sequence[Sequence[Any]], nodes: Sequence[Any], names: Mapping[str, str]) -> Scope:
    """Return the scope after GROUP BY, whose columns are the keys and the results of the aggregates.

    `sets` are the grouping sets, `nodes` the aggregate calls, and `names` the names that SELECT gives to expressions,
    by their text.
    """
    keys: dict[Expression, str] = {}
    named: dict[str, Expr] = {}
    chosen = [[_named_key(node, scope, keys, named, names) for node in keys_] for keys_ in sets]
    calls = calls_of(nodes, scope, _free(names, [*keys.values()]))
    aggregates: dict[str, Any] = {name: call for name, call, _ in calls.values()}
    stream = scope.stream.with_columns(**named) if named and len(chosen) > 1 else scope.stream
    grouping = next((node for node in nodes if isinstance(node, exp.Grouping)), None)
    bits = scope.fresh("grouping")
    if len(chosen) > 1:
        if not aggregates:  # grouping sets need an aggregate, even if nothing reads it
            aggregates[scope.fresh("rows")] = agg.count()
        wanted = bits if grouping is not None else None
        made = stream.grouping_sets([list(dict.fromkeys(each)) for each in chosen], wanted).aggregate(**aggregates)
    elif chosen[0]:
        plain = [name for name in dict.fromkeys(chosen[0]) if name not in named]
        made = stream.group_by(*plain, **named).aggregate(**aggregates)
    else:
        made = stream.aggregate(**aggregates)
    fields = tuple(f for f in scope.fields if f.column in keys.values() and ColumnRef(f.column) in keys)
    after = Scope(scope.tables, made, fields, {}, scope.aliases, scope, keys)
    after.made = {
        part: col(keys[key])
        for part, value in scope.made.items()
        if (key := resolve(unwrap(value), scope.schema)) in keys
    }
    after.aggregates = {text: col(name) for text, (name, _, _) in calls.items()}
    if len(chosen) > 1:  # a constant key is null in the sets without it, so it has to be read as a column
        constants = ((node, lowered(node, scope)) for each in sets for node in map(scope.meant, each))
        after.aggregates |= {
            text_of(node): col(keys[resolve(unwrap(value), scope.schema)])
            for node, value in constants
            if node.find(exp.Column) is None
        }
    order = list(dict.fromkeys(name for each in chosen for name in each))
    for node in nodes:
        if isinstance(node, exp.Grouping):
            after.aggregates[text_of(node)] = _grouping(node, scope, keys, order, bits if len(chosen) > 1 else "")
    return after


def _free(names: Mapping[str, str], taken: Sequence[str]) -> dict[str, str]:
    """Return the names that SELECT gives to expressions, without those taken by keys and those of internal columns."""
    return {text: name for text, name in names.items() if name not in taken and not name.startswith("__")}


def _named_key(
    node: Any, scope: Scope, keys: dict[Expression, str], named: dict[str, Expr], names: Mapping[str, str]
) -> str:
    """Return the column that holds a key.

    A key that is no column gets a new column, which this function adds to `named`; `keys` maps each key's expression to
    its column.
    """
    with about(node):
        value = lowered(node, scope)
        expression = resolve(unwrap(value), scope.schema)
        if expression in keys:
            return keys[expression]
        if isinstance(expression, ColumnRef):
            keys[expression] = expression.name
            return expression.name
        name = names.get(text_of(node), "")
        if isinstance(node, exp.Column) and not node.table:
            name = node.name
        if not name or name in scope.schema or name in keys.values():
            name = f"__key{len(keys)}"
        keys[expression] = name
        named[name] = value
        return name


def _grouping(node: Any, scope: Scope, keys: Mapping[Expression, str], order: Sequence[str], bits: str) -> Expr:
    """Return the value of GROUPING(…), whose highest bit belongs to the first argument.

    The column `bits` has one bit for each key in `order`. If there is one grouping set, `bits` is empty and the value
    is 0.
    """
    found: Expr | None = None
    for argument in node.expressions:
        expression = resolve(unwrap(lowered(argument, scope)), scope.schema)
        if expression not in keys:
            refuse(argument, "GROUPING takes keys of GROUP BY", "name one of them")
        shift = len(order) - 1 - order.index(keys[expression])
        bit = (col(bits) // (1 << shift)) % 2 if bits else lit(0, INT64)
        found = bit if found is None else found * 2 + bit
    if found is None:
        return refuse(node, "GROUPING takes keys of GROUP BY", "name one of them")
    return found
