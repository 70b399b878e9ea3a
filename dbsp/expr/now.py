"""`now()`: the logged clock of the step, and the conditions that may use it.

A condition on `now()` compares a timestamp of the row with `now()` plus or minus a constant. So a row is in the result
from one clock value on, or until one. Any other condition would read every row at every step, and is refused.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from dbsp.errors import CircuitError
from dbsp.expr.durations import micros
from dbsp.expr.expression import Call, Expression, Function, Literal, Operands
from dbsp.zset.schema import TIMESTAMP

HINT = 'write a filter that compares a timestamp with it, such as dbsp.col("at") > dbsp.now() - dbsp.hours(1)'
VALUE = (
    "a value that moves with the clock would change every row at every step: keep the timestamp, and compare it in a filter,"
    ' such as dbsp.col("at") > dbsp.now() - dbsp.hours(1), or take the difference when you read;'
    " for classes of age, one filter per class, then union"
)
PARTS = (
    "put what does not look at now() into a filter of its own; for one condition or another, union two filters that exclude"
    " each other"
)
SHIFTED = (
    'move the column instead: for today day = dbsp.col("at").truncate("day"), then'
    " (day <= dbsp.now()) & (dbsp.now() < day + dbsp.days(1))"
)
_TURNED = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}


def _refuse(operands: Operands) -> tuple[Expression, ...]:  # noqa: ARG001 (one signature for all functions)
    raise CircuitError("now() is allowed in filters only", VALUE)


def _never(*_: object) -> object:
    raise CircuitError("now() is allowed in filters only", HINT)


NOW = Function(name="now", fit=_refuse, result=lambda: TIMESTAMP, compute=_never, nulls="never", text="now()")
FUNCTIONS = (NOW,)


@dataclass(frozen=True, slots=True)
class ClockSpan:
    """The clock values at which a row is in the result: from (`enters`) or until (not `enters`) `at` + `shift_us`."""

    at: Expression
    shift_us: int
    enters: bool


def has_now(expression: Expression) -> bool:
    """Return whether the expression uses `now()` anywhere."""
    return isinstance(expression, Call) and expression.moving


def span_of(condition: Expression) -> ClockSpan:
    """Return the clock span that a comparison with `now()` gives a row."""
    if not isinstance(condition, Call) or condition.function.name not in _TURNED:
        equal = isinstance(condition, Call) and condition.function.name in ("equal", "not_equal")
        hint = SHIFTED if equal else f"{HINT}; {PARTS}"
        raise CircuitError(f"now() in a condition that is no comparison of order: condition={condition}", hint)
    name, (left, right) = condition.function.name, condition.args
    if has_now(left) and has_now(right):
        raise CircuitError(f"now() on both sides: condition={condition}", HINT)
    if has_now(left):
        name, left, right = _TURNED[name], right, left
    shift = _shift(right, condition)
    match name:
        case "less":  # at < now + c: from the microsecond after at - c
            return ClockSpan(left, 1 - shift, enters=True)
        case "less_equal":
            return ClockSpan(left, -shift, enters=True)
        case "greater":  # at > now + c: until at - c
            return ClockSpan(left, -shift, enters=False)
        case _:
            return ClockSpan(left, 1 - shift, enters=False)


def _shift(expression: Expression, condition: Expression) -> int:
    """Return the constant that is added to `now()`, in microseconds."""
    match expression:
        case Call(function=function) if function == NOW:
            return 0
        case Call(function=function, args=(first, Literal(value=datetime.timedelta() as span))):
            if function.name == "add":
                return _shift(first, condition) + micros(span)
            if function.name == "subtract":
                return _shift(first, condition) - micros(span)
        case Call(function=function, args=(Literal(value=datetime.timedelta() as span), second)):
            if function.name == "add":
                return _shift(second, condition) + micros(span)
    raise CircuitError(f"now() plus or minus a constant is wanted here: condition={condition}", SHIFTED)
