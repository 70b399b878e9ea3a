"""Intervals: a number of months and a span of time, as in PostgreSQL and DuckDB, added to times."""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from dbsp.expr.build import Expr, lit
from dbsp.sql.errors import refuse
from dbsp.sql.scope import Scope
from dbsp.sql.types import constant, is_constant, type_in
from dbsp.zset.schema import DATE, TIMESTAMP

_MONTHS = {"month": 1, "mon": 1, "quarter": 3, "year": 12, "decade": 120, "century": 1200}
_SPANS = {
    "week": datetime.timedelta(weeks=1),
    "day": datetime.timedelta(days=1),
    "hour": datetime.timedelta(hours=1),
    "minute": datetime.timedelta(minutes=1),
    "min": datetime.timedelta(minutes=1),
    "second": datetime.timedelta(seconds=1),
    "sec": datetime.timedelta(seconds=1),
    "millisecond": datetime.timedelta(milliseconds=1),
    "microsecond": datetime.timedelta(microseconds=1),
}
_PARTS = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")
_MADE = {
    exp.ToDays: "day",
}
SPANS = (exp.Interval, *_MADE, exp.Anonymous)
"""The classes of nodes that may denote an interval."""
_NAMED = {f"to_{unit}s": unit for unit in (*_MONTHS, *_SPANS)}


@dataclass(frozen=True, slots=True)
class SqlInterval:
    """A number of months and a span of time; both are multiplied by `count`, if there is one, in each row."""

    months: int = 0
    span: datetime.timedelta = datetime.timedelta(0)
    count: Expr | None = None

    def times(self, sign: int) -> SqlInterval:
        """Return the interval multiplied by a sign, 1 or -1."""
        return replace(self, months=self.months * sign, span=self.span * sign)


def is_span(node: Any) -> bool:
    """Return whether the node is a call that makes an interval, such as `to_days(n)`."""
    return type(node) in _MADE or (isinstance(node, exp.Anonymous) and node.name.casefold() in _NAMED)


def interval(node: Any, lower: Callable[[Any], Expr]) -> SqlInterval | None:
    """Return the interval that a part of the query denotes, or None if it is no interval."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Interval):
        return _written(node, lower)
    if isinstance(node, exp.Neg):
        inner = interval(node.this, lower)
        return None if inner is None else inner.times(-1)
    if isinstance(node, exp.Mul):
        for one, other in ((node.this, node.expression), (node.expression, node.this)):
            inner = interval(one, lower)
            if inner is not None and inner.count is None:
                return _times(node, inner, lower(other))
    unit = _MADE.get(type(node)) or (_NAMED.get(node.name.casefold()) if isinstance(node, exp.Anonymous) else None)
    if unit is not None:
        argument = node.expressions[0] if isinstance(node, exp.Anonymous) else node.this
        return _times(node, _of(node, decimal.Decimal(1), unit), lower(argument))
    return None


def _written(node: Any, lower: Callable[[Any], Expr]) -> SqlInterval:
    unit = node.args.get("unit")
    if unit is None:
        return _parsed(node, node.this.name)
    value = lower(node.this)
    if not is_constant(value):
        return _times(node, _of(node, decimal.Decimal(1), unit.name), value)
    return _of(node, _number(node, value), unit.name)


def _number(node: Any, value: Expr) -> decimal.Decimal:
    """Return the number of units that a constant gives; refuse a constant that is no number."""
    written = str(constant(value)).strip()
    try:
        return decimal.Decimal(written)
    except decimal.InvalidOperation:
        return refuse(node, f"the amount of an interval must be a number: number={written}", "write interval 5 minute")


def _parsed(node: Any, text: str) -> SqlInterval:
    """Return the interval that a text such as `1 day 2 hours` denotes."""
    found = SqlInterval()
    at = 0
    while at < len(text):
        match = _PARTS.match(text, at)
        if match is None:
            refuse(node, f"not an interval: interval={text!r}", "write interval '1 day 2 hours', or interval 5 minute")
        part = _of(node, decimal.Decimal(match[1]), match[2])
        found = replace(found, months=found.months + part.months, span=found.span + part.span)
        at = match.end()
    return found


def _of(node: Any, number: decimal.Decimal, unit: str) -> SqlInterval:
    unit = unit.casefold()
    unit = unit if unit in _MONTHS or unit in _SPANS else unit.removesuffix("s")
    if unit in _MONTHS:
        return SqlInterval(months=int(number * _MONTHS[unit]))
    if unit not in _SPANS:
        refuse(node, f"no such unit of time: unit={unit}", f"there are {', '.join([*_MONTHS, *_SPANS])}")
    micro = datetime.timedelta(microseconds=1)
    try:
        return SqlInterval(span=int(number * (_SPANS[unit] // micro)) * micro)
    except (ArithmeticError, ValueError):
        refuse(node, f"an interval that is too long: number={str(number)[:80]} unit={unit}", "write a shorter one")


def _times(node: Any, span: SqlInterval, count: Expr) -> SqlInterval:
    if is_constant(count):
        number = _number(node, count)
        return SqlInterval(
            months=span.months * int(number), span=span.span * float(number) if number % 1 else span.span * int(number)
        )
    return replace(span, count=count)


def shifted(value: Expr, by: SqlInterval, scope: Scope) -> Expr:
    """Return a time moved by an interval; a date becomes a timestamp."""
    if is_constant(value) and isinstance(constant(value), str):
        value = lit(constant(value), TIMESTAMP)
    if by.months:
        if type_in(value, scope.schema) == DATE:
            value = value.cast(TIMESTAMP) if not is_constant(value) else lit(constant(value), TIMESTAMP)
        value = value.add_months(by.months if by.count is None else by.count * by.months)
    if by.span:
        return value + (lit(by.span) if by.count is None else by.count * lit(by.span))
    if type_in(value, scope.schema) == DATE and not by.months:
        return value.cast(TIMESTAMP)
    return value
