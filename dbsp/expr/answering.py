"""Errors for a missing method, function or argument, and for an aggregate used as a value.

Python's own errors name the mistake and give no help. `Answering` classes and `answered` functions say at the user's
line what to write instead. The file `suggestions.ini` maps other products' names to ours. Signatures stay as they are
written, for type checkers and editors.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, ParamSpec, TypeVar

from dbsp.diagnostics.source_lines import located, user_line
from dbsp.errors import CircuitError
from dbsp.expr.names import nearest
from dbsp.expr.suggestions import hints, same_words

P = ParamSpec("P")
R = TypeVar("R")


def no_attribute(what: str, owner: object, name: str, others: tuple[str, ...]) -> AttributeError:
    """Return the error for a missing method, with what to write instead or the nearest method names."""
    if name.startswith("_"):
        return lacking(f"{what} has no attribute {name!r}")
    near = nearest(name, [other for other in dir(owner) if not other.startswith("_")])
    hint = hints(*others).get(name, near if near.startswith("did you mean") else "")
    return lacking(f"{what} has no attribute {name!r}" + (f"; {hint}" if hint else ""))


def lacking(message: str) -> AttributeError:
    """Return an attribute error to which Python adds no guess of its own."""
    return AttributeError(message, name=None, obj=None)


def answered(function: Callable[P, R], name: str = "") -> Callable[P, R]:
    """Return the function with checked calls: arguments that do not fit raise a `CircuitError` with what to write."""

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
                raise  # from inside the function
            with located(user_line()):
                raise _misfit(name or function.__name__, function, args, kwargs) from None

    return called


class Answering:
    """A base class of public objects: a missing method or a wrong argument raises an error that says what to write."""

    __slots__ = ()

    _CALLED: ClassVar[str]
    _OTHERS: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        """Wrap every public method of the subclass with `answered`."""
        for name, method in list(vars(cls).items()):
            if isinstance(method, FunctionType) and not name.startswith("_") and not hasattr(method, "__wrapped__"):
                setattr(cls, name, answered(method))

    def _no_value(self) -> CircuitError:
        """Return the error for the use of this object as a value of a row."""
        hint = 'join its rows: .cross_join(stream.aggregate(m=dbsp.avg("x"))), or .join on a key; then its columns are values'
        return CircuitError(f"{self._CALLED} is not a value of a row", hint)

    if not TYPE_CHECKING:  # for the type checker an unknown method is an error

        def __getattr__(self, name: str) -> NoReturn:
            """Raise the error for a missing method; it tells what a method of another product is called here."""
            raise no_attribute(self._CALLED, type(self), name, self._OTHERS)


class NotAValue(Answering):
    """An object that looks like a value of a row and is none: an aggregate, a window function.

    `PLACE` says where the object belongs.
    """

    __slots__ = ()

    PLACE: ClassVar[str]

    def _no_value(self) -> CircuitError:
        """Return the error that says where the object belongs."""
        return CircuitError(f"{self._CALLED} is not a value of a row", self.PLACE)

    def _refuse(self, *_: Any) -> NoReturn:
        with located(user_line()):
            raise CircuitError(f"{self._CALLED} is not a value to compute with", self.PLACE)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __floordiv__ = _refuse
    __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __and__ = __or__ = __invert__ = __neg__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __bool__ = _refuse


def _misfit(name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> CircuitError:
    """Return the error for a call that does not fit the function's parameters, with the form that fits."""
    parameters = inspect.signature(function).parameters
    method = next(iter(parameters), "") == "self"
    shown = {key: parameter for key, parameter in parameters.items() if key != "self"}
    form = f"{'.' if method else 'dbsp.'}{name}({', '.join(map(_shown, shown.values()))})"
    positional = [p.name for p in shown.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    given = {*positional[: len(args) - method], *kwargs}
    unknown = [word for word in kwargs if word not in shown]
    if unknown and not any(p.kind is p.VAR_KEYWORD for p in shown.values()):
        word = unknown[0]
        instead = _instead(name, word, [key for key in shown if key not in given])
        return CircuitError(f'{name} has no such argument: argument="{word}"', f"{instead}it is {form}")
    known = hints("argument")
    hint = f"{known[name]}; it is {form}" if name in known else f"it is {form}"
    missing = [p.name for p in shown.values() if p.default is p.empty and p.kind not in _MANY and p.name not in given]
    if missing:
        return CircuitError(f"{name} needs more arguments: missing={', '.join(missing)}", hint)
    return CircuitError(f"{name} does not take so many arguments: got={len(args) - method}", hint)


_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _instead(name: str, word: str, free: list[str]) -> str:
    """Return what to write instead of an unknown keyword; empty if there is no suggestion."""
    hint = hints("argument")
    if f"{name}.{word}" in hint:
        return hint[f"{name}.{word}"] + "; "
    same = [own for group in same_words() if word in group for own in group if own in free and own != word]
    if same:
        return f"write {same[0]}=…; "
    near = nearest(word, free)
    known = hint.get(f"*.{word}") or (near if near.startswith("did you mean") else hint.get(name))
    return f"{known}; " if known else ""


def _shown(parameter: inspect.Parameter) -> str:
    """Return a parameter as a user would write it."""
    match parameter.kind:
        case parameter.VAR_POSITIONAL:
            return f"*{parameter.name}"
        case parameter.VAR_KEYWORD:
            return "name=…"
        case parameter.KEYWORD_ONLY:
            return f"{parameter.name}=…"
        case _:
            return parameter.name if parameter.default is parameter.empty else f"{parameter.name}=…"
