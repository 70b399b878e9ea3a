"""JSON text into Python values for rows: numbers keep their text, and repeated names are found."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from typing import Any


class Integer(str):
    """A JSON number without point or exponent, as written."""

    __slots__ = ()


class Real(str):
    """Any other JSON number, as written."""

    __slots__ = ()


class RowError(Exception):
    """The reason why a row is bad."""


def decoder(extras: bool) -> json.JSONDecoder:
    """Return a decoder; with `extras`, repeated names are left to the caller (`Repeating`), else they are refused."""
    hook = _object_with_extras if extras else _object
    return json.JSONDecoder(parse_int=Integer, parse_float=Real, parse_constant=Real, object_pairs_hook=hook)


@contextmanager
def row_errors() -> Iterator[None]:
    """Turn the errors of JSON's reader into reasons of a bad row."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise RowError(f"not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise RowError("nested too deeply") from None
    except ValueError as error:
        raise RowError(f"not JSON: {error}") from None


class Repeating(dict[str, Any]):
    """An object in which a name is repeated."""

    repeated: Sequence[str] = ()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = _object_with_extras(pairs)
    refuse_repeated(found, found)
    return found


def _object_with_extras(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object; its repeated names are refused later, and only if they matter."""
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    repeating, names = Repeating(found), [name for name, _ in pairs]
    repeating.repeated = [name for name in names if names.count(name) > 1]
    return repeating


def refuse_repeated(value: dict[str, Any], known: Container[str]) -> None:
    """Raise `RowError` for a repeated name that is among the known ones."""
    for name in value.repeated if isinstance(value, Repeating) else ():
        if name in known:
            raise RowError(f"repeated name: {name}")
