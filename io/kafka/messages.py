"""Messages of a topic as rows: one row or several in each, in the format that the table's settings name.

Every message is judged by itself, whatever stands beside it, so that a topic that is read again gives the same rows and the same
dead letters (invariant 10). A reader of a format remembers what helps it to read faster, never what decides about a message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from dbsp.algebra.table import Table
from dbsp.errors import ConfigError
from dbsp.io.chunk import join_pushes
from dbsp.io.formats import decode_arrow, decode_json
from dbsp.io.formats.avro.registry import Registry
from dbsp.io.formats.avro.rows import AvroChanges, AvroRows
from dbsp.io.formats.debezium import DebeziumJson, Encodings
from dbsp.io.formats.json_rows import decode_json_lines
from dbsp.io.pushed import BadRow, Push

_LINE_END, _BRACE = b"\n{"
_first_byte: Callable[[Any], int] = itemgetter(0)
Counts = npt.NDArray[np.int64]
Values = Sequence[bytes | None]


class MessageReader(Protocol):
    """What reads the messages of one table."""

    def decode(self, values: Values) -> tuple[Push, Counts]:
        """All rows of the messages, in order, and how many each message has; never raises for what one holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How messages are read beyond their format: `extras`, names that the table does not have, are passed over in JSON rows;
    `encodings` is what Debezium's messages without a schema do not say; Avro's schemas are in the `registry`.
    """

    extras: bool = False
    encodings: Encodings = field(default_factory=Encodings)
    registry: Registry | None = None


class _JsonRows:
    """Rows as `coordinator push` takes them."""

    def __init__(self, table: Table, reading: Reading) -> None:
        self._table, self._extras = table, reading.extras

    def decode(self, values: Values) -> tuple[Push, Counts]:
        """Runs of messages that are one line each are decoded together; any other message by itself."""
        lines = _joined(values)
        if lines is not None:
            return decode_json_lines(lines, self._table, extras=self._extras), np.ones(len(values), dtype=np.int64)
        pieces: list[Push] = []
        rows = np.ones(len(values), dtype=np.int64)
        at = 0
        for alike, group in groupby(values, _is_line):
            run = list(group)
            if alike:
                pieces.append(decode_json_lines(b"\n".join(filter(None, run)), self._table, extras=self._extras))
            else:
                alone = [_one_message(value, self._decode) for value in run]
                rows[at : at + len(run)] = [push.rows for push in alone]
                pieces += alone
            at += len(run)
        return join_pushes(pieces, self._table.schema), rows

    def _decode(self, value: bytes) -> Push:
        return decode_json(value, self._table, extras=self._extras)


class _ArrowStreams:
    """An Arrow IPC stream in each message."""

    def __init__(self, table: Table, _reading: Reading) -> None:
        self._table = table

    def decode(self, values: Values) -> tuple[Push, Counts]:
        """Message by message."""
        pieces = [_one_message(value, lambda data: decode_arrow(data, self._table)) for value in values]
        return join_pushes(pieces, self._table.schema), np.array([piece.rows for piece in pieces], np.int64)


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


def _one_message(value: bytes | None, decode: Callable[[bytes], Push]) -> Push:
    """A message by itself; one without rows in it is a bad row, so that nothing that arrived goes unmentioned."""
    push = decode(value or b"")
    if push.rows:
        return push
    reason = "a message without a value" if value is None else "a message without rows"
    bad = BadRow(index=0, reason=reason, payload="" if value is None else value.decode("utf-8", "backslashreplace"))
    return Push(batch=push.batch, operations=push.operations, bad=(bad,))


_READERS: dict[str, Callable[[Table, Reading], MessageReader]] = {
    "json": _JsonRows,
    "arrow": _ArrowStreams,
    "debezium": lambda table, reading: DebeziumJson(table, reading.encodings),
    "debezium-flat": lambda table, reading: DebeziumJson(table, reading.encodings, flat=True),
    "avro": lambda table, reading: AvroRows(table, _registry(reading)),
    "debezium-avro": lambda table, reading: AvroChanges(table, _registry(reading)),
}
FORMATS = tuple(_READERS)


def reader_of(format_: str, table: Table, reading: Reading) -> MessageReader:
    """What reads a table's messages in a format; `ConfigError` for one that is not known."""
    if format_ not in _READERS:
        raise ConfigError(f"unknown input format: table={table.name} format={format_}", f"use one of {FORMATS}")
    return _READERS[format_](table, reading)


def _registry(reading: Reading) -> Registry:
    if reading.registry is None:
        raise ConfigError("Avro needs its schemas", 'set `registry = "http://host:8081"` in [input]')
    return reading.registry
