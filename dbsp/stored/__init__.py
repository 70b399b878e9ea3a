"""Stored names: the names of classes and fields in all data on disk.

Fingerprints, signatures, ledgers, version records and backups name classes and fields. Those names are part of a
format. So each class declares them as constants, and renaming a class or a field in Python changes no stored data. The
names are those of version 0.1.0; `tests/coordinator/kept` holds data of every kind to prove it.

A class without stored names cannot be stored: trying is an `InternalError`, never a silent use of its Python name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import Any, TypeVar

from dbsp.errors import InternalError

T = TypeVar("T")
_NAMES = "__stored_names__"


@dataclass(frozen=True, slots=True)
class _Names:
    """The stored name of a class, and for each stored field its Python name and its stored name.

    `later` maps the Python names of fields that are left out while they have their default to that default.
    """

    name: str
    fields: tuple[tuple[str, str], ...]
    later: Mapping[str, object]


def stored(name: str, names: str = "") -> Callable[[type[T]], type[T]]:
    """Declare the stored name of a dataclass and, separated by spaces, those of its fields in the order of the class.

    Stored fields are those that take part in equality; of a logical node neither its inputs nor its schema, which the
    fingerprint writes by itself. A field that was added to a stored class later has a `?` behind its name. It is left out
    while it has its default, so that older data keeps its meaning and its fingerprint.

    **Errors** `InternalError` when the class is defined: for another number of names than fields, or for a `?` behind a
    field without a default.

    **Example**

    >>> @stored("Point", "x y")
    ... @dataclass(frozen=True)
    ... class Place:
    ...     across: int
    ...     down: int
    >>> to_stored(Place(1, 2)), from_stored(Place, {"x": 1, "y": 2})
    ({'x': 1, 'y': 2}, Place(across=1, down=2))
    """

    def declare(cls: type[T]) -> type[T]:
        apart = {*getattr(cls, "INPUTS", ()), "schema"} if hasattr(cls, "INPUTS") else set()
        found = [field for field in _stored_fields(cls) if field.name not in apart]
        own, given = [field.name for field in found], names.split()
        if len(own) != len(given):
            raise InternalError(
                f"stored names do not match the fields: class={cls.__name__} fields={own} names={given}"
            )
        later = {field.name: field.default for field, each in zip(found, given, strict=True) if each.endswith("?")}
        if MISSING in later.values():
            raise InternalError(f"a field that may be left out has no default: class={cls.__name__} fields={[*later]}")
        stored_as = (each.removesuffix("?") for each in given)
        setattr(cls, _NAMES, _Names(name, tuple(zip(own, stored_as, strict=True)), later))
        return cls

    return declare


def _stored_fields(cls: type) -> Iterator[Field[Any]]:
    return (field for field in fields(cls) if field.compare)


def stored_name(cls: type) -> str:
    """Return the name under which a class is stored."""
    return _names(cls).name


def stored_fields(value: object) -> Iterator[tuple[str, Any]]:
    """Yield the stored name and the value of each stored field that is not left out."""
    names = _names(type(value))
    for python, name in names.fields:
        part = getattr(value, python)
        if python not in names.later or part != names.later[python]:
            yield name, part


def to_stored(value: Any) -> dict[str, Any]:
    """Return a value's fields under their stored names, nested values included; plain parts stay as they are."""
    return {name: _plain(part) for name, part in stored_fields(value)}


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return to_stored(value)
    if isinstance(value, tuple | list):
        return type(value)(map(_plain, value))
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return value


def from_stored(cls: type[T], found: Mapping[str, Any]) -> T:
    """Return the value whose fields are given by their stored names; a field that is absent has its default.

    **Errors** `TypeError` for a name that is not stored, or a field without a default that is absent.
    """
    others = found.keys() - {name for _, name in _names(cls).fields}
    if others:
        raise TypeError(f"no such stored field: class={_names(cls).name} fields={sorted(others)}")
    return cls(**{python: found[name] for python, name in _names(cls).fields if name in found})


def _names(cls: type) -> _Names:
    found: _Names | None = cls.__dict__.get(_NAMES)
    if found is None:
        raise InternalError(f"a class without stored names would be stored: class={cls.__module__}.{cls.__qualname__}")
    return found
