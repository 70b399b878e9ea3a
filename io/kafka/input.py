"""Kafka topics as the input log: one topic per table, offsets are Kafka's.

Invariants: a range is half open in Kafka offsets, with gaps where markers and other transactions' aborted records stand; its
end never passes the last stable offset; reading it again gives the same changes and the same dead letters, because every
message is judged by itself (10); partitions that are added are read too; offsets that are gone are an error that names them;
compacted topics are refused.

A message holds one row or several, as JSON (`dbsp.io.formats`) or as one Arrow stream; all rows of a message have its offset.
Nothing is written to the topics, and `trim` leaves them alone: their retention is their owner's. Source: design section 7.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from dbsp.algebra.table import Table
from dbsp.errors import ConfigError
from dbsp.io.changes import changes_of
from dbsp.io.chunk import join_pushes
from dbsp.io.formats import decode_arrow, decode_json
from dbsp.io.formats.json_rows import decode_json_lines
from dbsp.io.kafka.client import KafkaSettings, Reader, refuse_compaction
from dbsp.io.pushed import BadRow, Push
from dbsp.logs import Changes, Range

BYTES_PER_ROW_UNKNOWN = 128.0
GROWTH_CHECK_S = 10.0
"""How long partitions that were added to a topic may wait to be met."""
FORMATS = ("json", "arrow")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSource:
    """Where a table's rows come from and how they are written."""

    table: Table
    topic: str
    format: str = "json"

    def __post_init__(self) -> None:
        """Refuse an unknown format."""
        if self.format not in FORMATS:
            raise ConfigError(
                f"unknown input format: table={self.table.name} format={self.format}", f"use one of {FORMATS}"
            )


class KafkaInputLog:
    """The input log of one pipeline on Kafka; see `dbsp.logs.InputLog`."""

    def __init__(
        self,
        settings: KafkaSettings,
        sources: Sequence[KafkaSource],
        *,
        check_topics: bool = True,
        growth_check_s: float = GROWTH_CHECK_S,
    ) -> None:
        """Connect when first asked; `check_topics` refuses compacted topics at once (workers leave it to the coordinator).

        `ends` asks from time to time whether a topic was given more partitions, at most every `growth_check_s`.
        """
        self._sources = {source.table.name: source for source in sources}
        self._reader = Reader(settings)
        self._partitions: dict[str, int] = {}
        self._growth_check_s, self._counted_at = growth_check_s, time.monotonic()
        self._read_bytes: dict[str, int] = {}
        self._read_rows: dict[str, int] = {}
        if check_topics:
            for source in sources:
                self._reader.partitions(source.topic)
                refuse_compaction(settings, source.topic)

    def partitions(self, table: str) -> int:
        """How many partitions the table's topic has, as of the last look."""
        if table not in self._partitions:
            self._partitions[table] = self._reader.partitions(self._source(table).topic)
        return self._partitions[table]

    def ends(self) -> Mapping[tuple[str, int], int]:
        """The last stable offset, per (table, partition)."""
        self._count_again()
        return self._bounds(1)

    def _count_again(self) -> None:
        """Meet partitions that were added; a broker that has not heard of them takes none away."""
        now = time.monotonic()
        if now - self._counted_at < self._growth_check_s:
            return
        self._counted_at = now
        for table, known in list(self._partitions.items()):
            self._partitions[table] = max(known, self._reader.partitions(self._source(table).topic))

    def floors(self) -> Mapping[tuple[str, int], int]:
        """The first offset that Kafka still keeps, per (table, partition)."""
        return self._bounds(0)

    def _bounds(self, side: int) -> dict[tuple[str, int], int]:
        return {
            (name, partition): self._reader.bounds(source.topic, partition)[side]
            for name, source in self._sources.items()
            for partition in range(self.partitions(name))
        }

    def read(self, range_: Range, step: int) -> Sequence[Changes]:
        """The changes of one range as one piece; `DataError` names the offsets if part of it is gone."""
        source = self._source(range_.table)
        messages = list(self._reader.read(source.topic, range_.partition, range_.first, range_.last, go_on=True))
        if not messages:
            return []
        decode = _decode_json_messages if source.format == "json" else _decode_arrow_messages
        push, offsets = decode(messages, source.table)
        size = sum(map(len, messages))
        self._read_bytes[range_.table] = self._read_bytes.get(range_.table, 0) + size
        self._read_rows[range_.table] = self._read_rows.get(range_.table, 0) + range_.last - range_.first
        return [changes_of(push, range_, step, offsets)]

    def bytes_per_row(self, table: str) -> float:
        """The mean size per offset of what this process has read."""
        rows = self._read_rows.get(table, 0)
        return self._read_bytes[table] / rows if rows else BYTES_PER_ROW_UNKNOWN

    def trim(self, positions: Mapping[tuple[str, int], int]) -> None:
        """Nothing: the topics belong to those who write them."""

    def close(self) -> None:
        """Leave the brokers."""
        self._reader.close()

    def _source(self, table: str) -> KafkaSource:
        if table not in self._sources:
            raise ConfigError(f"no such table: table={table} tables={sorted(self._sources)}")
        return self._sources[table]


_Offsets = np.ndarray[Any, np.dtype[np.int64]]
_Decoded = tuple[Push, _Offsets]


def _decode_json_messages(messages: Sequence[Any], table: Table) -> _Decoded:
    """Runs of messages that are one line each are decoded together; any other message by itself."""
    values = [message.value() for message in messages]
    pieces: list[Push] = []
    rows = np.ones(len(messages), dtype=np.int64)
    at = 0
    for lines, group in groupby(values, _is_line):
        run = list(group)
        if lines:
            pieces.append(decode_json_lines(b"\n".join(run), table))
        else:
            alone = [_one_message(value, table, decode_json) for value in run]
            rows[at : at + len(run)] = [push.rows for push in alone]
            pieces += alone
        at += len(run)
    return join_pushes(pieces, table.schema), np.repeat(_offsets(messages), rows)


def _decode_arrow_messages(messages: Sequence[Any], table: Table) -> _Decoded:
    pieces = [_one_message(message.value(), table, decode_arrow) for message in messages]
    return join_pushes(pieces, table.schema), np.repeat(_offsets(messages), [piece.rows for piece in pieces])


def _offsets(messages: Sequence[Any]) -> _Offsets:
    return np.array([message.offset() for message in messages], dtype=np.int64)


def _is_line(value: bytes | None) -> bool:
    return value is not None and value[:1] == b"{" and b"\n" not in value


def _one_message(value: bytes | None, table: Table, decode: Callable[[bytes, Table], Push]) -> Push:
    """A message by itself; one without rows in it is a bad row, so that nothing that arrived goes unmentioned."""
    push = decode(value or b"", table)
    if push.rows:
        return push
    reason = "a message without a value" if value is None else "a message without rows"
    bad = BadRow(index=0, reason=reason, payload="" if value is None else value.decode("utf-8", "backslashreplace"))
    return Push(batch=push.batch, operations=push.operations, bad=(bad,))
