"""The answer to a method, a function or an argument that is not there, and to an aggregate used as a value.

Python's own errors name what is wrong and leave the user there. `Answering` classes and `answered` functions say at the user's
line what to write instead; what others call things is in `suggestions.ini`. Signatures are not touched: type
checkers and editors see them as they are written.
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
    """The error for a method that is not there: what to write instead, or the methods nearest to it."""
    if name.startswith("_"):
        return lacking(f"{what} has no attribute {name!r}")
    near = nearest(name, [other for other in dir(owner) if not other.startswith("_")])
    hint = hints(*others).get(name, near if near.startswith("did you mean") else "")
    return lacking(f"{what} has no attribute {name!r}" + (f"; {hint}" if hint else ""))


def lacking(message: str) -> AttributeError:
    """An error to which Python adds no guess of its own."""
    return AttributeError(message, name=None, obj=None)


def answered(function: Callable[P, R], name: str = "") -> Callable[P, R]:
    """The function; where a call does not fit its parameters it raises a `CircuitError` that says what to write."""

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
    """A class whose users hear what to write instead of a method or an argument that is not there."""

    __slots__ = ()

    _CALLED: ClassVar[str]
    _OTHERS: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        """Every public method answers."""
        for name, method in list(vars(cls).items()):
            if isinstance(method, FunctionType) and not name.startswith("_") and not hasattr(method, "__wrapped__"):
                setattr(cls, name, answered(method))

    def _no_value(self) -> CircuitError:
        """Return the error for this object where a value of a row belongs."""
        hint = 'join its rows: .cross_join(stream.aggregate(m=dbsp.avg("x"))), or .join on a key; then its columns are values'
        return CircuitError(f"{self._CALLED} is not a value of a row", hint)

    if not TYPE_CHECKING:  # for the type checker an unknown method is an error

        def __getattr__(self, name: str) -> NoReturn:
            """Only to say what others' methods are called here."""
            raise no_attribute(self._CALLED, type(self), name, self._OTHERS)


class NotAValue(Answering):
    """What looks like a value of a row and is none: an aggregate, a window function. `PLACE` says where it belongs."""

    __slots__ = ()

    PLACE: ClassVar[str]

    def _no_value(self) -> CircuitError:
        """Return the error that says where it belongs."""
        return CircuitError(f"{self._CALLED} is not a value of a row", self.PLACE)

    def _refuse(self, *_: Any) -> NoReturn:
        with located(user_line()):
            raise CircuitError(f"{self._CALLED} is not a value to compute with", self.PLACE)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __floordiv__ = _refuse
    __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __and__ = __or__ = __invert__ = __neg__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __bool__ = _refuse


def _misfit(name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> CircuitError:
    """What does not fit, and what does."""
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
    """What to write for a keyword that is not there; empty if nobody knows."""
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
    """A parameter as a reader would write it."""
    match parameter.kind:
        case parameter.VAR_POSITIONAL:
            return f"*{parameter.name}"
        case parameter.VAR_KEYWORD:
            return "name=…"
        case parameter.KEYWORD_ONLY:
            return f"{parameter.name}=…"
        case _:
            return parameter.name if parameter.default is parameter.empty else f"{parameter.name}=…"
