"""Decoding a topic's messages into rows, one or several per message, in the format that the table's settings name.

Each message is decoded independently of its neighbours. So a topic that is read again gives the same rows and the
same dead letters (invariant 10). A reader may cache what makes it faster, but nothing that changes the result of a
message.
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
    """A decoder of the messages of one table."""

    @property
    def reads_keys(self) -> bool:
        """Return whether the decoder needs the keys of the messages."""

    def decode(self, values: Values, keys: Values | None = None) -> Decoded:
        """Return all rows of the messages in order, and each message's number of rows; never raise for bad content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReading:
    """The settings of decoding beyond the format.

    With `extras`, JSON rows may have names that are no columns of the table: they are ignored. `encodings` gives what
    Debezium's messages without a schema leave out. `registry` serves the schemas of Avro.
    """

    extras: bool = False
    encodings: Encodings = field(default_factory=Encodings)
    registry: Registry | None = None


class _ArrowStreams:
    """A decoder of messages that each hold an Arrow IPC stream."""

    reads_keys = False

    def __init__(self, table: Table) -> None:
        self._table = table

    def decode(self, values: Values, keys: Values | None = None) -> Decoded:  # noqa: ARG002 - as other formats
        """Decode each message by itself."""
        pieces = [one_message(value, self._table, lambda data: decode_arrow(data, self._table)) for value in values]
        return joined(pieces, self._table)


_READERS: dict[str, Callable[[Table, MessageReading], MessageReader]] = {
    "json": lambda table, reading: JsonRows(table, extras=reading.extras),
    "upsert": lambda table, reading: JsonUpserts(table, extras=reading.extras),
    "arrow": lambda table, _: _ArrowStreams(table),
    "debezium": lambda table, reading: DebeziumJson(table, reading.encodings),
    "debezium-flat": lambda table, reading: DebeziumJson(table, reading.encodings, flat=True),
    "avro": lambda table, reading: AvroRows(table, _registry(reading)),
    "debezium-avro": lambda table, reading: AvroChanges(table, _registry(reading)),
}
FORMATS = tuple(_READERS)


def reader_of(format_: str, table: Table, reading: MessageReading) -> MessageReader:
    """Return the decoder of a table's messages in a format; raise a `ConfigError` for an unknown format."""
    if format_ not in _READERS:
        raise ConfigError(f"unknown input format: table={table.name} format={format_}", f"use one of {FORMATS}")
    return _READERS[format_](table, reading)


def _registry(reading: MessageReading) -> Registry:
    if reading.registry is None:
        raise ConfigError("Avro needs its schemas", 'set `registry = "http://host:8081"` in [input]')
    return reading.registry
