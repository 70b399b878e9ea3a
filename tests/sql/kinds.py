"""Kinds of values, the columns that a query sees, and random expressions over them.

Left out, each for what docs/sql.md says of DuckDB:

1. Divisors are constants that are not 0, and no argument leaves the domain of its function: such a row fails, DuckDB's does not.
2. A mean or a spread, whose last digits depend on the order of a sum, is shown, or rounded before anything compares it: `APART`.
3. Doubles are multiples of 1/8 and small, or NaN or infinite, so that their sums are the same in any order, and nothing but sums
   and extremes is asked of them.
4. Lists are of `bigint` alone: lists of other types do not meet in a set operation, which is refused by name.
5. `any_value`, `mode`, `corr`, `regr_slope`, `arg_max` of another column: ties and constant sides are DuckDB's own affair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from tests.sql.drawing import Draw

INT, TEXT, DEC, FLOAT, DAY, TIME, BOOL, LIST, STRUCT, APART = (
    "int", "text", "dec", "float", "day", "time", "bool", "list", "struct", "apart",
)  # fmt: skip
ORDERED = (INT, TEXT, DEC, FLOAT, DAY, TIME, BOOL)
KINDS = (*ORDERED, LIST, STRUCT)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a relation, as an expression names it."""

    name: str
    kind: str


Scope: TypeAlias = tuple[Column, ...]

CONSTANTS = {
    INT: ("bigint", "1", "0", "2", "3"), TEXT: ("varchar", "'x'", "'y'", "''", "'é'"), DEC: ("decimal(9, 2)", "1.5", "2.25", "1"),
    FLOAT: ("double", "cast(0.5 as double)", "cast(1 as double)"), DAY: ("date", "date '2024-02-29'", "date '2024-01-31'"),
    TIME: ("timestamp", "timestamp '2024-02-29 00:00:00'", "timestamp '2024-01-31 00:00:00'"), BOOL: ("boolean", "true", "false"),
}  # fmt: skip
"""A type for nulls, and constants."""
FORMS: dict[str, tuple[tuple[str, ...], ...]] = {
    INT: (
        ("({} + {})", INT, INT), ("({} - 1)", INT), ("coalesce({}, 0)", INT), ("({} % 2)", INT), ("({} * 2)", INT),
        ("nullif({}, 1)", INT), ("greatest({}, {})", INT, INT), ("length({})", TEXT), ("month({})", DAY), ("len({})", LIST),
        ("case when {} then {} else {} end", BOOL, INT, INT), ("cast({} as int)", BOOL), ("({}).x", STRUCT),
        ("cast(round({}) as int)", DEC), ("({} // 2)", INT), ("abs({})", INT),
    ),
    TEXT: (
        ("({} || {})", TEXT, TEXT), ("upper({})", TEXT), ("coalesce({}, 'n')", TEXT), ("cast({} as varchar)", INT),
        ("nullif({}, '')", TEXT), ("({}).y", STRUCT),
        ("concat({}, '-', {})", TEXT, INT), ("case when {} then {} end", BOOL, TEXT),
        ("case {} when 1 then {} else {} end", INT, TEXT, TEXT), ("substr({}, 1, 1)", TEXT),
    ),
    DEC: (
        ("({} + {})", DEC, DEC), ("({} * 2)", DEC), ("coalesce({}, 0)", DEC), ("cast({} as decimal(9, 2))", INT),
        ("round({}, 1)", DEC), ("least({}, {})", DEC, DEC),
    ),
    FLOAT: (
        ("({} + {})", FLOAT, INT), ("({} * 2)", FLOAT), ("({} / 2)", INT), ("cast({} as double)", DEC), ("abs({})", FLOAT),
        ("coalesce({}, {})", FLOAT, FLOAT),
    ),
    DAY: (("({} + 1)", DAY), ("cast({} as date)", TIME), ("last_day({})", DAY)),
    TIME: (
        ("({} + interval 1 month)", TIME), ("({} - interval 1 day)", TIME), ("cast({} as timestamp)", DAY),
        ("date_trunc('month', {})", TIME),
    ),
    STRUCT: (("{{'x': cast({} as bigint), 'y': {}}}", INT, TEXT),),
    LIST: (("generate_series(cast(1 as bigint), cast(least({}, 4) as bigint))", INT),),
}  # fmt: skip
"""What makes a value of a kind, and the kinds of its arguments."""

AGGREGATES: tuple[tuple[str, ...], ...] = (
    ("count(*){filter}", INT), ("count({}){filter}", INT, INT), ("sum({}){filter}", INT, INT), ("min({}){filter}", INT, INT),
    ("max({}){filter}", TEXT, TEXT), ("count(distinct {}){filter}", INT, TEXT), ("sum(distinct {}){filter}", INT, INT),
    ("cast(sum({}){filter} as decimal(18, 4))", DEC, DEC), ("sum({}){filter}", FLOAT, FLOAT), ("avg({}){filter}", APART, INT),
    ("round(avg({}){filter}, 6)", FLOAT, DEC), ("avg(distinct {}){filter}", APART, INT), ("min({}){filter}", DEC, DEC),
    ("max({}){filter}", DAY, DAY), ("min({}){filter}", TIME, TIME), ("max({}){filter}", BOOL, BOOL),
    ("min({}){filter}", FLOAT, FLOAT),
    ("count_if({})", INT, BOOL), ("median({}){filter}", FLOAT, INT), ("quantile_disc({}, 0.25){filter}", INT, INT),
    ("quantile_disc({}, 0.5){filter}", TEXT, TEXT), ("round(quantile_cont({}, 0.3){filter}, 6)", FLOAT, INT),
    ("round(stddev({}){filter}, 6)", FLOAT, INT), ("round(var_pop({}){filter}, 6)", FLOAT, INT),
    ("bool_and({}){filter}", BOOL, BOOL),
    ("bool_or({}){filter}", BOOL, BOOL), ("bit_xor({}){filter}", INT, INT), ("bit_or({}){filter}", INT, INT),
    ("count(distinct {}){filter}", INT, DAY), ("count(distinct {}){filter}", INT, STRUCT), ("count({}){filter}", INT, LIST),
    ("(max({}) - min({}))", INT, INT, INT), ("coalesce(sum({}){filter}, 0)", INT, INT),
    ("regr_count({}, {}){filter}", INT, INT, INT),
    ("round(covar_pop({}, {}){filter}, 6)", FLOAT, INT, INT), ("(count(*){filter} + 1)", INT),
    ("string_agg({0}, '|' order by {0}){filter}", TEXT, TEXT), ("array_agg(cast({0} as bigint) order by {0}){filter}", LIST, INT),
    ("array_agg(cast({0} as bigint) order by {0} desc nulls last){filter}", LIST, INT),
    ("first({0} order by {0}){filter}", INT, INT),
    ("last({0} order by {0} desc){filter}", TEXT, TEXT), ("arg_max({0}, {0}){filter}", INT, INT),
    ("array_agg(distinct cast({0} as bigint) order by cast({0} as bigint)){filter}", LIST, INT),
    ("string_agg(distinct {0}, '' order by {0}){filter}", TEXT, TEXT),
)  # fmt: skip
"""What makes a value of a group; its kind, and the kinds of its arguments."""


def seen(scope: Scope, kind: str) -> list[str]:
    """The columns of a kind."""
    return [column.name for column in scope if column.kind == kind]


def constant(draw: Draw, kind: str) -> str:
    """A constant, now and then null."""
    type_, *values = CONSTANTS[kind]
    return f"cast(null as {type_})" if draw.now_and_then(0.1) else draw.of(values)


def form_of(draw: Draw, scope: Scope, forms: Sequence[tuple[str, ...]], least: int) -> tuple[str, ...]:
    """One of these whose arguments, behind so many words, the scope has columns for; where there is none, any."""
    kinds = {column.kind for column in scope}
    return draw.of([form for form in forms if kinds.issuperset(form[least:])] or forms)


def value(draw: Draw, scope: Scope, kind: str, depth: int = 1) -> str:
    """An expression of a kind."""
    columns = seen(scope, kind)
    if columns and (depth <= 0 or not draw.now_and_then(0.5)):
        return draw.of(columns)
    if kind == BOOL and depth > 0:
        return condition(draw, scope, depth - 1)
    if kind in CONSTANTS and (depth <= 0 or not scope):
        return constant(draw, kind)
    form, *kinds = form_of(draw, scope, FORMS[kind], 1)
    return form.format(*(value(draw, scope, each, depth - 1) for each in kinds))


def other_value(draw: Draw, scope: Scope, column: Column) -> str:
    """A value to compare a column with: another one, or a constant."""
    others = [name for name in seen(scope, column.kind) if name != column.name]
    return draw.of(others) if others and not draw.now_and_then(0.2) else constant(draw, column.kind)


def own_value(draw: Draw, scope: Scope, kind: str) -> str:
    """An expression that has a column in it, where the scope has one of the kind."""
    columns = seen(scope, kind)
    if not columns or draw.now_and_then(0.2):
        made = value(draw, scope, kind, 1)
        return made if any(column.name in made for column in scope) else (draw.of(columns) if columns else made)
    return draw.of(columns)


def condition(draw: Draw, scope: Scope, depth: int = 1) -> str:
    """A condition of values."""
    if depth > 0 and draw.now_and_then(0.25):
        both = condition(draw, scope, depth - 1), condition(draw, scope, depth - 1)
        return f"({both[0]} {draw.pick('or', 'and', 'or')} {both[1]})"
    columns = [column for column in scope if column.kind in ORDERED]
    if not columns:
        return draw.pick("true", "(1 < 0)")
    column = draw.of(columns)
    kind, one = column.kind, column.name
    if draw.now_and_then(0.2):
        one = value(draw, scope, kind, depth)
    match draw.below(9):
        case 0 | 1 | 2:
            return f"({one} {draw.pick('<=', '>=', '<>', '=')} {constant(draw, kind)})"
        case 3 | 4:
            return f"({one} {draw.pick('<=', '<>', '=', '>')} {other_value(draw, scope, column)})"
        case 5:
            return f"({one} is {draw.pick('not ', '')}null)"
        case 6:
            return f"({one} is {draw.pick('', 'not ')}distinct from {other_value(draw, scope, column)})"
        case 7:
            return f"({one} {draw.pick('', 'not ')}in ({constant(draw, kind)}, {other_value(draw, scope, column)}))"
        case _:
            return f"(not {condition(draw, scope, depth - 1)})" if depth > 0 else f"({one} is null)"


def aggregate(draw: Draw, scope: Scope) -> tuple[str, str]:
    """A value of a group, and its kind."""
    form, kind, *kinds = form_of(draw, scope, AGGREGATES, 2)
    given = [value(draw, scope, each, int(draw.now_and_then(0.3) and "order by" not in form)) for each in kinds]
    filtered = f" filter (where {condition(draw, scope, 0)})" if draw.now_and_then(0.2) else ""
    return form.format(*given, filter=filtered), kind
