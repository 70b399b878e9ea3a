"""The reason for a name that a table or a struct does not have, with the name that is meant."""

from __future__ import annotations

from functools import lru_cache

from dbsp.settings import similar

NAME_CHARS_MAX = 100
"""A longer name is not compared: the search takes the square of its length."""


@lru_cache(maxsize=1024)
def unknown_name(what: str, name: str, known: tuple[str, ...]) -> str:
    """Return the reason for an unknown name.

    **Cost** for each new name a comparison with all known ones; the reasons of the last thousand names are kept.

    >>> unknown_name("column", "userId", ("id", "user_id")), unknown_name("column", "note", ("id", "amount"))
    ('unknown column: userId; did you mean `user_id`?', 'unknown column: note')
    """
    hint = similar(name, known) if len(name) <= NAME_CHARS_MAX else None
    return f"unknown {what}: {name}" + (f"; {hint}" if hint else "")
