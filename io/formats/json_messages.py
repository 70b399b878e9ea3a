"""Messages of JSON rows: one row or several in each, as changes; or the newest value of a key, whose absence deletes its row."""

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
    """Rows as `coordinator push` takes them; with `extras` names that the table does not have are passed over."""

    reads_keys = False

    def __init__(self, table: Table, *, extras: bool = False) -> None:
        """For one table's topic."""
        self._table, self._extras = table, extras

    def decode(self, values: Values, keys: Values | None = None) -> Decoded:  # noqa: ARG002 - as other formats
        """Messages that are one line each are decoded together; any other message by itself."""
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
    """The same, where a message without a value deletes the row of its key."""

    reads_keys = True

    def __init__(self, table: Table, *, extras: bool = False) -> None:
        """For one table's topic; `ConfigError` for a table in which rows do not replace each other."""
        refuse_without_key(table, "upsert")
        super().__init__(table, extras=extras)

    def decode(self, values: Values, keys: Values | None = None) -> Decoded:
        """As `JsonRows`, with the keys of the messages; a row that is not of its message's key is bad.

        **Cost** up to twice that of messages without keys, where all keys are objects or whole numbers; else some ten times.
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
    """All messages as lines, if each is one (`_is_line`), without looking at one after the other."""
    if not values or None in values:
        return None
    joined = b"\n".join(cast(Sequence[bytes], values))
    ends = np.count_nonzero(np.frombuffer(joined, np.uint8) == _LINE_END)  # some times as fast as to count in bytes
    begin_alike = all(values) and set(map(_first_byte, values)) == {_BRACE}
    return joined if begin_alike and ends == len(values) - 1 else None


def _is_line(value: bytes | None) -> bool:
    return value is not None and value[:1] == b"{" and b"\n" not in value


def one_message(value: bytes | None, table: Table, decode: Callable[[bytes], Push]) -> Decoded:
    """A message by itself; one without rows in it is a bad row, so that nothing that arrived goes unmentioned."""
    push = decode(value or b"")
    if not push.rows:
        push = bad_row("a message without a value" if value is None else "a message without rows", value or b"", table)
    return push, np.array([push.rows], np.int64)
