"""Limit the dead letters in a worker's report of a step, which may have very many."""

from __future__ import annotations

from collections.abc import Sequence

from dbsp.logs import DeadLetter

LETTERS_MAX, LETTER_CHARS_MAX = 100_000, 64 << 20
"""The maximum number of dead letters, and of their characters, that a worker sends with the report of one step."""


def sendable(letters: Sequence[DeadLetter]) -> tuple[DeadLetter, ...]:
    """Return the dead letters that fit into a report: all, or the first ones in an order that no replay changes."""
    if len(letters) <= LETTERS_MAX and sum(map(_chars, letters)) <= LETTER_CHARS_MAX:
        return tuple(letters)
    ordered = sorted(letters, key=lambda each: (each.origin, each.partition, each.offset, each.reason, each.payload))
    found, chars = list[DeadLetter](), 0
    for each in ordered[:LETTERS_MAX]:
        chars += _chars(each)
        if chars > LETTER_CHARS_MAX:
            break
        found.append(each)
    return tuple(found)


def _chars(letter: DeadLetter) -> int:
    return len(letter.payload) + len(letter.header)
