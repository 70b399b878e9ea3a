"""Messages of a topic as rows: one row or several in each, in the format that the table's settings name.

Every message is judged by itself, whatever stands beside it, so that a topic that is read again gives the same rows and the same
dead letters (invariant 10). A reader of a format remembers what helps it to read faster, never what decides about a message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dbsp.algebra.table import Table
from dbsp.errors import ConfigError
from dbsp.io.formats import decode_arrow
from dbsp.io.formats.avro.registry import Registry
from dbsp.io.formats.avro.rows import AvroChanges, AvroRows
from dbsp.io.formats.debezium import DebeziumJson, Encodings
from dbsp.io.formats.json_messages import JsonRows, JsonUpserts, one_message
from dbsp.io.formats.runs import Decoded, joined

Values = Sequence[bytes | None]


class MessageReader(Protocol):
    """What reads the messages of one table."""

    @property
    def reads_keys(self) -> bool:
        """Whether it wants the keys of the messages."""

    def decode(self, values: Values, keys: Values | None = None) -> Decoded:
        """All rows of the messages, in order, and how many each message has; never raises for what one holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How messages are read beyond their format: `extras`, names that the table does not have, are passed over in JSON rows;
    `encodings` is what Debezium's messages without a schema do not say; Avro's schemas are in the `registry`.
    """

    extras: bool = False
    encodings: Encodings = field(default_factory=Encodings)
    registry: Registry | None = None


class _ArrowStreams:
    """An Arrow IPC stream in each message."""

    reads_keys = False

    def __init__(self, table: Table) -> None:
        self._table = table

    def decode(self, values: Values, keys: Values | None = None) -> Decoded:  # noqa: ARG002 - as other formats
        """Message by message."""
        pieces = [one_message(value, self._table, lambda data: decode_arrow(data, self._table)) for value in values]
        return joined(pieces, self._table)


_READERS: dict[str, Callable[[Table, Reading], MessageReader]] = {
    "json": lambda table, reading: JsonRows(table, extras=reading.extras),
    "upsert": lambda table, reading: JsonUpserts(table, extras=reading.extras),
    "arrow": lambda table, _: _ArrowStreams(table),
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
