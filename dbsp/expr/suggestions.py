"""Suggestions instead of another product's names: the tables of `suggestions.ini`, read when a user's mistake needs one."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from configparser import ConfigParser
from pathlib import Path


def hints(*sections: str) -> Mapping[str, str]:
    """Return the hint for each name in the sections; a later section replaces the hints of an earlier one."""
    found: dict[str, str] = {}
    for section in sections:
        for names, hint in _tables()[section].items():
            found.update(dict.fromkeys(names.split(", "), hint))
    return found


def same_words() -> list[list[str]]:
    """Return sets of words with one meaning: where one word of a set is a parameter's name, users try the others."""
    return [line.split(", ") for line in _tables()["same"]["words"].splitlines() if line]


@functools.cache
def _tables() -> ConfigParser:
    """Return the tables of the file, read once."""
    tables = ConfigParser(delimiters=("=",), interpolation=None)
    tables.optionxform = str  # type: ignore[assignment,method-assign] # names keep their case
    tables.read_string(Path(__file__).with_suffix(".ini").read_text(encoding="utf-8"))
    return tables
