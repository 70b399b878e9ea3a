"""Texts and names as SQL writes them."""

from __future__ import annotations


def literal(text: str) -> str:
    """Return a text as a constant.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """Return a name that keeps its letters and signs.

    >>> print(identifier('a"b'))
    "a""b"
    """
    return '"' + name.replace('"', '""') + '"'
