"""Lower SQL's operators to expressions over the columns of a scope. The module `functions` lowers calls by name."""

from __future__ import annotations

import datetime
import decimal
import operator
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from sqlglot import exp

from dbsp.errors import CircuitError
from dbsp.expr.arithmetic import CUT_DIVIDE, CUT_MODULO
from dbsp.expr.build import Expr, coalesce, date_diff, lit, now, when
from dbsp.expr.conditional import CASE
from dbsp.expr.expression import TEXT_NODES_MAX, Call, ColumnRef, Literal
from dbsp.expr.mathematics import POWER
from dbsp.expr.methods.applied import unwrap
from dbsp.expr.resolving import resolve
from dbsp.expr.types import adopt, is_integer, is_number
from dbsp.sql import lists
from dbsp.sql.casts import cast, cast_constant
from dbsp.sql.chains import spine
from dbsp.sql.errors import about, name_of, refuse
from dbsp.sql.functions import FUNCTIONS, Lower, as_text, called
from dbsp.sql.intervals import interval, is_span, shifted
from dbsp.sql.scope import Scope
from dbsp.sql.signatures import checked
from dbsp.sql.types import (
    as_float,
    column_type,
    constant,
    floats_of,
    is_constant,
    is_real,
    met,
    resolved,
    type_in,
)
from dbsp.zset.schema import BINARY, BOOL, DATE, FLOAT32, FLOAT64, INT64, NO_COLUMNS

AGGREGATED = (
    "aggregates belong in SELECT, HAVING and ORDER BY; for a row's group write a window, sum(x) over (partition by k)"
)
_SUBQUERY = (
    "make it a column in FROM, such as from (select *, x in (select …) as m from t) as t, and name that column here"
)
_PERCENT = 2


def lowered(node: Any, scope: Scope) -> Expr:
    """Return the expression for a node of the query, evaluated for each row of the scope.

    A node is lowered once while the scope's names keep their meaning. The left sides of a long chain are lowered first,
    innermost first, so that a chain of thousands of operators needs no deep recursion.
    """
    if id(node) in scope.made:
        return scope.made[id(node)]
    if node is None:  # the parser accepts a call without its operand
        raise CircuitError("too few arguments", "docs/sql.md lists the calls")
    key = id(node), scope.expanding
    memo = scope.remembered()
    if key not in memo:
        for part in spine(node, lambda part: (id(part), scope.expanding) in memo or id(part) in scope.made):
            _remember(part, scope)
        return _remember(node, scope)
    return memo[key][1]


def _remember(node: Any, scope: Scope) -> Expr:
    """Lower one node, check its types, and memoize the expression; the caller has lowered the left operands of a chain."""
    value = scope.made.get(id(node))
    if value is None and scope.before is not None:
        value = _of_group(node, scope, scope.before)
    if value is None:
        with about(node):
            value = _lowered(node, scope)
            if not isinstance(unwrap(value), Literal):
                resolved(value, scope.schema)
    scope.remembered()[id(node), scope.expanding] = node, value
    return value


def is_subquery(node: Any) -> bool:
    """Return whether the node is a query, or an EXISTS or IN over one."""
    return isinstance(node, exp.Query | exp.Exists) or (isinstance(node, exp.In) and node.args.get("query") is not None)


def condition(node: Any, scope: Scope) -> Expr:
    """Return the lowered node if its value is true, false or null; refuse any other type."""
    value = lowered(node, scope)
    type_ = type_in(value, scope.schema)
    if type_ is None and isinstance(constant(value), bool | None):
        return lit(constant(value), BOOL)
    if type_ != BOOL:
        refuse(node, f"not a condition: type={type_ or 'constant'}", "write a comparison, such as x <> 0")
    return value


def _of_group(node: Any, scope: Scope, before: Scope) -> Expr | None:
    """Return the column after GROUP BY that holds this value, or None if it has to be computed from its parts.

    Such a column is an aggregate or a key. Refuse a column that is neither grouped nor aggregated.
    """
    fact = before.fact(node)
    called = isinstance(node, exp.AggFunc | exp.Filter | exp.WithinGroup | exp.Grouping | exp.IgnoreNulls)
    if scope.aggregates and (called or (not fact.columns and fact.size <= _CONSTANT_KEY_MAX)):
        text = node.sql(dialect="duckdb")
        if text in scope.aggregates:
            return scope.aggregates[text]
    if not fact.columns or fact.calls or not fact.own:
        return None
    key = resolve(unwrap(lowered(node, before)), before.schema)
    if key in scope.groups:
        return Expr(ColumnRef(scope.groups[key]))
    if isinstance(node, exp.Column):
        if scope.names_alias(node) and node.name.casefold() not in scope.expanding:
            return None
        hint = f"group by it too, or write any_value({node.sql(dialect='duckdb')})"
        refuse(node, f"neither grouped by nor inside an aggregate: column={node.name}", hint)
    return None


_CONSTANT_KEY_MAX = 100
"""Nodes of the largest expression without columns that is searched among the keys of GROUP BY; others are computed."""


def _lowered(node: Any, scope: Scope) -> Expr:
    if is_subquery(node):
        refuse(node, f"a subquery is not allowed here: what={_subquery(node)}", _SUBQUERY)
    name = node.name.casefold() if isinstance(node, exp.Anonymous) else ""
    null = checked(node, name, _lower_in(scope), scope.schema)
    if null is not None:
        return null
    for kind in type(node).__mro__:
        if kind in OPERATORS:
            return OPERATORS[kind](node, scope)
        if kind in FUNCTIONS:
            return FUNCTIONS[kind](node, _lower_in(scope), scope)
    if isinstance(node, exp.AggFunc):
        refuse(node, f"an aggregate is not allowed here: aggregate={name_of(node)}", AGGREGATED)
    if isinstance(node, exp.Window):
        refuse(node, "a window function is not allowed here", "write it in SELECT, and filter by QUALIFY")
    if is_span(node):
        return _span(node, scope)
    if isinstance(node, exp.Anonymous | exp.Func):
        return called(node, _lower_in(scope), scope)
    return refuse(
        node, f"the dialect does not have this: what={type(node).__name__.lower()}", "docs/sql.md says what there is"
    )


def _subquery(node: Any) -> str:
    return "in" if isinstance(node, exp.In) else "exists" if isinstance(node, exp.Exists) else "value"


def _lower_in(scope: Scope) -> Lower:
    return lambda part: lowered(part, scope)


def _column(node: Any, scope: Scope) -> Expr:
    name = node.name.casefold()
    if isinstance(node.this, exp.Star):
        refuse(node, "* cannot be used as a value", "name the columns")
    if scope.names_alias(node) and name not in scope.expanding:
        before, scope.expanding = scope.expanding, (*scope.expanding, name)
        try:
            return lowered(scope.aliases[name], scope)
        finally:
            scope.expanding = before
    return scope.column(node)


def _literal(node: Any, _scope: Scope) -> Expr:
    if node.is_string:
        return lit(node.this)
    return lit(number(node.this))


def number(text: str) -> int | float | decimal.Decimal:
    """Return the value of a numeric literal: an int, a Decimal if it has a point, a float if it has an exponent."""
    text = text.replace("_", "")
    if "e" in text.casefold():
        return float(text)
    try:
        return decimal.Decimal(text) if "." in text else int(text)
    except ValueError:
        raise CircuitError(f"a number of too many digits: digits={len(text)}") from None


def _null(_node: Any, _scope: Scope) -> Expr:
    return Expr(Literal(None))


def _boolean(node: Any, _scope: Scope) -> Expr:
    return lit(bool(node.this))


def _pair(node: Any, scope: Scope) -> tuple[Expr, Expr]:
    """Lower both operands of a binary operator and convert them to a common type."""
    left, right = met([lowered(node.this, scope), lowered(node.expression, scope)], scope.schema)
    return left, right


def _binary(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Scope], Expr]:
    """Return the function that lowers an arithmetic operator of two numbers."""

    return lambda node, scope: _of_pair(operation, _pair(node, scope))


def _of_pair(operation: Callable[[Any, Any], Any], pair: tuple[Expr, Expr]) -> Expr:
    """Apply an operator to two operands; fold two numeric constants into one constant."""
    left, right = pair
    if is_constant(left) and is_constant(right):
        folded = _folded(operation, constant(left), constant(right))
        if folded is not None:
            return lit(folded)
    result: Expr = operation(left, right)
    return result


def _bitwise(method: str, of_constants: Callable[[int, int], int]) -> Callable[[Any, Scope], Expr]:
    """Return the function that lowers a bitwise operator of two whole numbers."""

    def made(node: Any, scope: Scope) -> Expr:
        left, right = _pair(node, scope)
        if (nothing := _null_of([left, right], scope)) is not None:
            return nothing
        values = [constant(side) for side in (left, right) if is_constant(side)]
        if len(values) == len((left, right)) and all(type(value) is int for value in values):
            return lit(of_constants(*values))
        result: Expr = getattr(left, method)(right)
        return result

    return made


def _folded(operation: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Return the untyped result for two exact constants, which can still adopt another type, or None for other operands."""
    numbers = int | decimal.Decimal
    if isinstance(left, bool) or isinstance(right, bool):
        return None
    return operation(left, right) if isinstance(left, numbers) and isinstance(right, numbers) else None


def _comparison(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Scope], Expr]:
    def made(node: Any, scope: Scope) -> Expr:
        if isinstance(node.this, exp.Tuple) or isinstance(node.expression, exp.Tuple):
            refuse(node, "rows of values can be compared only by IN", "write a = c and b = d")
        left, right = _pair(node, scope)
        if is_constant(left) and not is_constant(right):
            left = Expr(unwrap(left))
        result: Expr = operation(left, right)
        return result

    return made


def _added(sign: int) -> Callable[[Any, Scope], Expr]:
    """Return the function that lowers `+` (sign 1) or `-` (sign -1), for numbers, dates, timestamps and intervals."""

    def made(node: Any, scope: Scope) -> Expr:
        for side, other in ((node.expression, node.this), (node.this, node.expression)):
            span = interval(side, _lower_in(scope))
            if span is not None and (side is node.expression or sign > 0):
                return shifted(lowered(other, scope), span.times(sign), scope)
        pair = left, right = _pair(node, scope)
        types = type_in(left, scope.schema), type_in(right, scope.schema)
        if sign < 0 and types == (DATE, DATE):
            return date_diff("day", right, left)
        if sign < 0 and types[1] == DATE and _whole(left, scope):
            refuse(node, "a date cannot be subtracted from a number", "write day - n")
        if DATE in types and _whole(right if types[0] == DATE else left, scope):
            date, days = (left, right) if types[0] == DATE else (right, left)
            day = datetime.timedelta(days=1)
            span_ = lit(day * (sign * constant(days))) if is_constant(days) else days * lit(day * sign)
            return (date + span_).cast(DATE)
        return _of_pair(operator.add if sign > 0 else operator.sub, pair)

    return made


def _whole(value: Expr, scope: Scope) -> bool:
    type_ = type_in(value, scope.schema)
    return isinstance(constant(value), int) if type_ is None else is_integer(type_)


def _divided(node: Any, scope: Scope) -> Expr:
    """Lower `/`: as in DuckDB the quotient is a double, also of decimals, and a real if both operands are reals."""
    left, right = lowered(node.this, scope), lowered(node.expression, scope)
    types = type_in(left, scope.schema), type_in(right, scope.schema)
    if pa.duration("us") in types:
        refuse(node, "an interval cannot be divided", "write epoch(span) / n, or date_diff('second', a, b) / n")
    for side, type_ in zip((left, right), types, strict=True):
        if not is_number(type_) if type_ is not None else isinstance(constant(side), bool):
            refuse(node, f"only numbers can be divided: got={type_ or side}", "cast it, such as x::double")
    if _null_of([left, right], scope) is not None:
        return lit(None, FLOAT64)
    if is_constant(left) and is_constant(right):
        left, right = (lit(float(constant(side)), FLOAT64) for side in (left, right))
    left, right = floats_of([left, right], scope.schema)
    reals = all(is_real(type_in(side, scope.schema)) for side in (left, right))
    return (left / right).cast(FLOAT32) if reals else left / right


def _null_of(operands: list[Expr], scope: Scope) -> Expr | None:
    """Return a null if an operand is the constant null, else None; its type is that of another operand, or int64."""
    if not any(is_constant(operand) and constant(operand) is None for operand in operands):
        return None
    known = [type_ for operand in operands if (type_ := type_in(operand, scope.schema)) is not None]
    return lit(None, known[0] if known else INT64)


def _whole_quotient(node: Any, scope: Scope) -> Expr:
    """Lower `//`: DuckDB truncates toward zero, while `//` of streams rounds down."""
    a, b = _pair(node, scope)
    if (nothing := _null_of([a, b], scope)) is not None:
        return nothing
    if not (_whole(a, scope) and _whole(b, scope)):
        return when((a < 0) == (b < 0), a // b).otherwise(-(_negative(a) // b))
    if _is_large(a, b):
        return Expr(Call(CUT_DIVIDE, (unwrap(a), unwrap(b))))
    return when(_falls_below(a, b), a // b + 1).otherwise(a // b)


def _remainder(node: Any, scope: Scope) -> Expr:
    """Lower `%`: DuckDB's remainder has the sign of the dividend, that of streams the sign of the divisor."""
    a, b = _pair(node, scope)
    if (nothing := _null_of([a, b], scope)) is not None:
        return nothing
    if _whole(a, scope) and _whole(b, scope):
        if _is_large(a, b):
            return Expr(Call(CUT_MODULO, (unwrap(a), unwrap(b))))
        return when(_falls_below(a, b), a % b - b).otherwise(a % b)
    size = lit(abs(constant(b))) if is_constant(b) else b.abs()
    return when(a < 0, -(_negative(a) % size)).otherwise(a % size)


def _is_large(*operands: Expr) -> bool:
    """Return whether an operand is large, so that a quotient written with `//` and `%`, which repeats it five times, is too."""
    return any(isinstance(e := unwrap(operand), Call) and e.nodes > TEXT_NODES_MAX for operand in operands)


def _falls_below(a: Expr, b: Expr) -> Expr:
    """Return the condition that a quotient rounded down is one less than the quotient truncated toward zero.

    The condition compares signs only: the magnitude of the least whole number does not fit its type.
    """
    return (~((a < 0) == (b < 0))) & (a % b != 0)


def _minus(node: Any, scope: Scope) -> Expr:
    return _negative(lowered(node.this, scope))


def _negative(value: Expr) -> Expr:
    if is_constant(value):
        type_ = type_in(value, NO_COLUMNS)
        held = constant(value)
        return value if held is None else Expr(Literal(-held, type_)) if is_real(type_) else lit(-held)
    return -value


def _and(node: Any, scope: Scope) -> Expr:
    return condition(node.this, scope) & condition(node.expression, scope)


def _or(node: Any, scope: Scope) -> Expr:
    return condition(node.this, scope) | condition(node.expression, scope)


def _not(node: Any, scope: Scope) -> Expr:
    return ~condition(node.this, scope)


def _is(node: Any, scope: Scope) -> Expr:
    value, other = lowered(node.this, scope), node.expression
    if isinstance(other, exp.Null):
        return value.is_null()
    if isinstance(other, exp.Boolean):
        return ~condition(node.this, scope).is_distinct_from(bool(other.this))
    return refuse(node, "IS compares only with null, true and false", "write x is not distinct from y")


def _distinct(node: Any, scope: Scope) -> Expr:
    left, right = _pair(node, scope)
    if is_constant(right) and constant(right) is None:
        return left.is_not_null()
    return left.is_distinct_from(right)


def _between(node: Any, scope: Scope) -> Expr:
    value, low = met([lowered(node.this, scope), lowered(node.args["low"], scope)], scope.schema)
    other, high = met([lowered(node.this, scope), lowered(node.args["high"], scope)], scope.schema)
    return (value >= low) & (other <= high)


def _in(node: Any, scope: Scope) -> Expr:
    if isinstance(node.this, exp.Tuple) or node.args.get("unnest") is not None:
        refuse(node, "IN takes one value and constants or a query", "write (a = 1 and b = 2) or …")
    value = lowered(node.this, scope)
    values = [lowered(item, scope) for item in node.expressions]
    value, *values = met([value, *values], scope.schema)
    type_ = type_in(value, scope.schema)
    if all(is_constant(item) and (type_ is None or adopt(constant(item), type_) is not None) for item in values):
        return value.is_in([constant(item) for item in values])
    found = value == values[0]
    for item in values[1:]:
        found = found | (value == item)
    return found


def _text_match(method: str) -> Callable[[Any, Scope], Expr]:
    """Return the function that lowers LIKE or ILIKE; in DuckDB a backslash in the pattern is an ordinary character."""

    def made(node: Any, scope: Scope) -> Expr:
        pattern = lists.argument(lowered(node.expression, scope))
        if pattern is not None:
            pattern = pattern.replace("\\", "\\\\")
        found: Expr = getattr(lowered(node.this, scope), method)(pattern)
        return ~found if node.args.get("negate") else found

    return made


def _joined(node: Any, scope: Scope) -> Expr:
    sides = [lowered(side, scope) for side in (node.this, node.expression)]
    bytes_ = [type_in(side, scope.schema) == BINARY for side in sides]
    if any(bytes_) and (nothing := _null_of(sides, scope)) is not None:
        return nothing
    if any(bytes_) and not all(bytes_):
        refuse(node, "bytes can be concatenated only with bytes", "cast one side: x::blob, or x::varchar")
    left, right = sides if all(bytes_) else [as_text(side, scope) for side in sides]
    return left + right


def _case(node: Any, scope: Scope) -> Expr:
    pairs = [(branch.this, branch.args["true"]) for branch in node.args["ifs"]]
    default = node.args.get("default")
    otherwise = lowered(default, scope) if default is not None else Expr(Literal(None))
    values = met([*(lowered(value, scope) for _, value in pairs), otherwise], scope.schema)
    tests = []
    for test, _ in pairs:
        if node.this is None:
            tests.append(condition(test, scope))
        else:
            left, right = met([lowered(node.this, scope), lowered(test, scope)], scope.schema)
            tests.append(left == right)
    cases = [unwrap(part) for pair in zip(tests, values[:-1], strict=True) for part in pair]
    return Expr(Call(CASE, (*cases, unwrap(values[-1]))))


def _if(node: Any, scope: Scope) -> Expr:
    other = node.args.get("false")
    values = [lowered(node.args["true"], scope), lowered(other, scope) if other is not None else Expr(Literal(None))]
    yes, no = met(values, scope.schema)
    return when(condition(node.this, scope), yes).otherwise(no)


def _coalesce(node: Any, scope: Scope) -> Expr:
    values = met([lowered(part, scope) for part in (node.this, *node.expressions)], scope.schema)
    return Expr(unwrap(coalesce(*values)))


def _cast(node: Any, scope: Scope) -> Expr:
    target, strict = column_type(node.to), not isinstance(node, exp.TryCast)
    value = lowered(node.this, scope)
    source = type_in(value, scope.schema)
    if source is None:
        try:
            return cast_constant(constant(value), target, strict=strict)
        except CircuitError:
            if strict:
                raise
            return lit(None, target)
    return cast(value, source, target, strict=strict)


def _dot(node: Any, scope: Scope) -> Expr:
    return lowered(node.this, scope).field(node.expression.name)


def _span(node: Any, scope: Scope) -> Expr:
    found = interval(node, _lower_in(scope))
    if found is None or found.months:
        refuse(node, "an interval of months has no fixed length", "add it to a time, t + interval 1 month")
    return lit(found.span) if found.count is None else found.count * lit(found.span)


def _paren(node: Any, scope: Scope) -> Expr:
    return lowered(node.this, scope)


def _power(node: Any, scope: Scope) -> Expr:
    left, right = (as_float(lowered(part, scope), scope.schema) for part in (node.this, node.expression))
    if _null_of([left, right], scope) is not None:
        return lit(None, FLOAT64)
    return Expr(Call(POWER, (unwrap(left), unwrap(right))))


def _now(_node: Any, _scope: Scope) -> Expr:
    return now()


OPERATORS: dict[type, Callable[[Any, Scope], Expr]] = {
    exp.Column: _column,
    exp.Literal: _literal,
    exp.Null: _null,
    exp.Boolean: _boolean,
    exp.Paren: _paren,
    exp.Add: _added(1),
    exp.Sub: _added(-1),
    exp.Mul: _binary(lambda a, b: a * b),
    exp.Div: _divided,
    exp.IntDiv: _whole_quotient,
    exp.Mod: _remainder,
    exp.Pow: _power,
    exp.Neg: _minus,
    exp.EQ: _comparison(lambda a, b: a == b),
    exp.NEQ: _comparison(lambda a, b: a != b),
    exp.LT: _comparison(lambda a, b: a < b),
    exp.LTE: _comparison(lambda a, b: a <= b),
    exp.GT: _comparison(lambda a, b: a > b),
    exp.GTE: _comparison(lambda a, b: a >= b),
    exp.And: _and,
    exp.Or: _or,
    exp.Not: _not,
    exp.Is: _is,
    exp.NullSafeNEQ: _distinct,
    exp.NullSafeEQ: lambda node, scope: ~_distinct(node, scope),
    exp.Between: _between,
    exp.In: _in,
    exp.Like: _text_match("like"),
    exp.ILike: _text_match("ilike"),
    exp.DPipe: _joined,
    exp.Case: _case,
    exp.If: _if,
    exp.Coalesce: _coalesce,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Bracket: lambda node, scope: lists.bracket(node, _lower_in(scope), scope),
    exp.Struct: lambda node, scope: lists.struct_of_parts(node, _lower_in(scope)),
    exp.Dot: _dot,
    exp.Array: lambda node, scope: lists.list_of_parts(node, _lower_in(scope), scope),
    exp.Transform: lambda node, scope: lists.transformed(node, scope, lowered),
    exp.ArrayFilter: lambda node, scope: lists.filtered(node, scope, lowered, condition),
    exp.Identifier: lists.misplaced,
    exp.Interval: _span,
    exp.CurrentTimestamp: _now,
    exp.BitwiseAnd: _bitwise("bit_and", operator.and_),
    exp.BitwiseOr: _bitwise("bit_or", operator.or_),
    exp.BitwiseXor: _bitwise("bit_xor", operator.xor),
    exp.BitwiseNot: lambda node, scope: lowered(node.this, scope).bit_not(),
    exp.BitwiseLeftShift: lambda node, scope: lowered(node.this, scope).shift_left(lowered(node.expression, scope)),
    exp.BitwiseRightShift: lambda node, scope: lowered(node.this, scope).shift_right(lowered(node.expression, scope)),
}
