"""Decoding of messages of JSON rows: as changes, one row or several each, or as the newest row of the message's key.

In the second form a message without a value deletes the row of its key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, cast

import numpy as np

from dbsp.algebra.table import Table
from dbsp.io.formats.json_rows import bad_row, decode_json, decode_json_lines
from dbsp.io.formats.message_keys import deletes_of, refuse_without_key, under_their_keys, values_or_keys
from dbsp.io.formats.runs import Decoded, by_kind
from dbsp.io.pushed import Push

_LINE_END, _BRACE = b"\n{"
_first_byte: Callable[[Any], int] = itemgetter(0)
Values = Sequence[bytes | None]


class JsonRows:
    """A decoder of rows in the form of `coordinator push`; with `extras`, names that are no columns are ignored."""

    reads_keys = False

    def __init__(self, table: Table, *, extras: bool = False) -> None:
        """Store the table of the topic."""
        self._table, self._extras = table, extras

    def decode(self, values: Values, keys: Values | None = None) -> Decoded:  # noqa: ARG002 - as other formats
        """Decode messages of one line each together, and every other message by itself."""
        lines = _joined(values)
        if lines is not None:
            return self._lines(lines, len(values))
        return by_kind([_is_line(value) for value in values], values, self._run, self._table)

    def _run(self, lines: bool, values: list[bytes | None]) -> list[Decoded]:
        if lines:
            return [self._lines(b"\n".join(filter(None, values)), len(values))]
        return [one_message(value, self._table, self._decode) for value in values]

    def _lines(self, lines: bytes, count: int) -> Decoded:
        return decode_json_lines(lines, self._table, extras=self._extras), np.ones(count, dtype=np.int64)

    def _decode(self, value: bytes) -> Push:
        return decode_json(value, self._table, extras=self._extras)


class JsonUpserts(JsonRows):
    """A decoder of the same rows, where a message without a value deletes the row of its key."""

    reads_keys = True

    def __init__(self, table: Table, *, extras: bool = False) -> None:
        """Store the table; raise a `ConfigError` unless its rows replace each other by key."""
        refuse_without_key(table, "upsert")
        super().__init__(table, extras=extras)

    def decode(self, values: Values, keys: Values | None = None) -> Decoded:
        """Decode messages with their keys; a row whose key differs from its message's key is bad.

        **Cost** up to twice that of messages without keys if all keys are objects or whole numbers, otherwise some
        ten times.
        """
        found = self._decoded(values, keys)
        return found if keys is None else under_their_keys(found, values, keys, self._table)

    def _decoded(self, values: Values, keys: Values | None) -> Decoded:
        if None not in values:
            return super().decode(values)
        messages = list(values) if keys is None else values_or_keys(values, keys)
        return by_kind([value is None for value in values], messages, self._values_or_keys, self._table)

    def _values_or_keys(self, gone: bool, messages: list[bytes | None]) -> list[Decoded]:
        return [deletes_of(messages, self._table) if gone else super().decode(messages)]


def _joined(values: Values) -> bytes | None:
    """Return all messages as lines if each is a line (`_is_line`), or None; the check uses no loop over messages."""
    if not values or None in values:
        return None
    joined = b"\n".join(cast(Sequence[bytes], values))
    ends = np.count_nonzero(np.frombuffer(joined, np.uint8) == _LINE_END)  # several times as fast as `bytes.count`
    begin_alike = all(values) and set(map(_first_byte, values)) == {_BRACE}
    return joined if begin_alike and ends == len(values) - 1 else None


def _is_line(value: bytes | None) -> bool:
    return value is not None and value[:1] == b"{" and b"\n" not in value


def one_message(value: bytes | None, table: Table, decode: Callable[[bytes], Push]) -> Decoded:
    """Decode one message by itself; without rows it is a bad row, so that every message is accounted for."""
    push = decode(value or b"")
    if not push.rows:
        push = bad_row("a message without a value" if value is None else "a message without rows", value or b"", table)
    return push, np.array([push.rows], np.int64)
