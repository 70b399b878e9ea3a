"""Names of tables, views and circuits; they become names of logs, HTTP paths and SQL tables, so they are plain."""

from __future__ import annotations

import re

from dbsp.errors import CircuitError

NAME_LENGTH_MAX = 63
DEAD_LETTERS = "dead_letters"
"""The output that every pipeline has besides its views: rows that could not be read, with the reason."""
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_CIRCUIT = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")


def check_name(what: str, name: object) -> str:
    """Return the name if it is allowed; raise `CircuitError` otherwise."""
    pattern = _CIRCUIT if what == "circuit" else _PLAIN
    if not isinstance(name, str) or not pattern.match(name) or len(name) > NAME_LENGTH_MAX:
        hint = f"use letters, digits and _, a letter first, at most {NAME_LENGTH_MAX} characters"
        raise CircuitError(f"not a name for a {what}: name={name!r}", hint)
    return name
