"""Names of tables, views and circuits; they become names of logs, HTTP paths and SQL tables, so they are plain."""

from __future__ import annotations

import re

from dbsp.errors import CircuitError

NAME_LENGTH_MAX = 63
DEAD_LETTERS = "dead_letters"
"""The output that every pipeline has besides its views: rows that could not be read, with the reason."""
_FORMER = " before"
"""The suffix of the part with rows under former columns. It has a blank, so the part's name is never that of a view."""
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_CIRCUIT = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")


def check_name(what: str, name: object) -> str:
    """Return the name if it is allowed; raise `CircuitError` otherwise."""
    pattern = _CIRCUIT if what == "circuit" else _PLAIN
    if not isinstance(name, str) or not pattern.match(name) or len(name) > NAME_LENGTH_MAX:
        hint = f"use letters, digits and _, a letter first, at most {NAME_LENGTH_MAX} characters"
        raise CircuitError(f"not a name for a {what}: name={name!r}", hint)
    return name


def former(view: str) -> str:
    """Return the name of the part of a step's outputs with rows of an edited view under the columns that it had before.

    >>> view_of(former("totals"))
    'totals'
    """
    return view + _FORMER


def view_of(part: str) -> str:
    """Return the view to which a part of a step's outputs belongs."""
    return part.removesuffix(_FORMER)


def is_former(part: str) -> bool:
    """Return whether the rows of a part have the columns that the view had before it was edited."""
    return part.endswith(_FORMER)
