"""The base of every family of methods: the carried expression, and the application of a function to it."""

from __future__ import annotations

from typing import Any, Self

from dbsp.diagnostics.source_lines import located, user_line
from dbsp.errors import CircuitError
from dbsp.expr.answering import Answering
from dbsp.expr.by_row import SAMPLES, by_row
from dbsp.expr.expression import Call, ColumnRef, Expression, Function, Literal, check_constant
from dbsp.expr.strings import CONSTANT


class Applied(Answering):
    """An object that carries an expression and applies functions to it."""

    __slots__ = ("_expression",)

    def __init__(self, expression: Expression) -> None:
        """Create it from an expression; `col`, `lit`, `when`, `coalesce` and operators do so."""
        self._expression = expression

    def _call(self, function: Function, *others: Any, options: tuple[Any, ...] = ()) -> Self:
        return type(self)(Call(function, (self._expression, *map(unwrap, others)), options))

    def _with(self, function: Function, **constants: Any) -> Self:
        """Apply the function with these constants, any of which may be a column."""
        if any(isinstance(constant, Applied) for constant in constants.values()):
            return self._call(by_row(function), *constants.values())
        checks = (text if isinstance(sample, str) else whole for sample in SAMPLES[function])
        options = tuple(check(*item) for check, item in zip(checks, constants.items(), strict=True))
        return self._call(function, options=options)


def text(name: str, value: Any) -> str:
    """Return a constant text, or raise an error that names the argument and the way out."""
    with located(user_line()):
        if not isinstance(value, str):
            raise CircuitError(f"a constant text is wanted: {name}={value!r}", CONSTANT)
    return value


def whole(name: str, value: Any) -> int:
    """Return a whole number, or raise an error that names the argument."""
    with located(user_line()):
        if isinstance(value, bool) or not isinstance(value, int):
            raise CircuitError(f"a whole number is wanted: {name}={value!r}", "give it as a plain int")
    return value


def unwrap(value: Any) -> Expression:
    """Return the expression that an `Expr` carries, or a literal of any other value."""
    if isinstance(value, Applied):
        return value._expression
    if isinstance(value, ColumnRef | Literal | Call):
        return value
    if type(value) not in _PLAIN:
        _check_value(value)
    return Literal(value)


_PLAIN = frozenset([bool, int, float, str])


def _check_value(value: Any) -> None:
    """Refuse a value that is neither an expression nor a constant."""
    with located(user_line()):
        if isinstance(value, Answering):
            raise value._no_value()
        check_constant(value)
