"""The contents of this host's input logs per table and partition: the readable offsets, and records by their first one.

Both logs of a host use the same keys in their LMDB file. The key `table NUL partition` has a span. The key `table NUL
partition offset` has a record of the rows from that offset on.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dbsp.errors import DataError
from dbsp.io.environment import LogEnvironment
from dbsp.logs import Range
from dbsp.stored.checksums import sealed, unsealed
from dbsp.stored.levels import NEWEST

OFFSET = struct.Struct(">Q")
_PARTITION = struct.Struct(">H")
_SPAN = struct.Struct("<QQQQ")
Place = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSpan:
    """The contents of one partition: readable offsets `floor <= o < end`; rows and bytes ever appended."""

    end: int = 0
    floor: int = 0
    rows: int = 0
    size: int = 0

    def longer(self, rows: int, size: int) -> OffsetSpan:
        """Return the span with so many rows and bytes more."""
        return replace(self, end=self.end + rows, rows=self.rows + rows, size=self.size + size)

    def trimmed(self, to: int) -> OffsetSpan:
        """Return the span without the rows below an offset."""
        return replace(self, floor=max(self.floor, min(to, self.end)))


class Spans:
    """The spans in the part `spans` of a log's file."""

    def __init__(self, env: LogEnvironment, level: int = NEWEST) -> None:
        """Use this file, and write the formats of this level."""
        self._env, self._level = env, level

    def get(self, txn: Any, table: str, partition: int) -> OffsetSpan:
        """Return the span of a partition; an empty one if it never had a row."""
        key = place_key(table, partition)
        found = txn.get(key, db=self._env.db("spans"))
        return OffsetSpan() if found is None else span_of(key, found, self._env.where)

    def put(self, txn: Any, table: str, partition: int, span: OffsetSpan) -> None:
        """Write a partition's span."""
        key = place_key(table, partition)
        data = _SPAN.pack(span.end, span.floor, span.rows, span.size)
        txn.put(key, sealed(key, data, self._level), db=self._env.db("spans"))

    def of(self, partitions: Mapping[str, int]) -> dict[Place, OffsetSpan]:
        """Return the spans of tables with so many partitions each."""
        places = [(table, partition) for table, count in partitions.items() for partition in range(count)]
        with self._env.read() as txn:
            return {place: self.get(txn, *place) for place in places}

    def places(self) -> list[Place]:
        """Return all partitions that have a span."""
        with self._env.read() as txn:
            return [place_of(key) for key, _ in txn.cursor(db=self._env.db("spans"))]


def check_range(range_: Range, span: OffsetSpan) -> None:
    """Refuse a range with rows that are trimmed, or not there yet."""
    where = f"table={range_.table} partition={range_.partition} first={range_.first} last={range_.last}"
    if range_.first < span.floor:
        raise DataError(f"input rows are trimmed: {where} first_kept={span.floor}")
    if range_.last > span.end:
        raise DataError(f"input rows are missing at the log's end: {where} end={span.end}")


def records(txn: Any, db: Any, range_: Range) -> Iterator[tuple[int, bytes]]:
    """Yield the records that contain a range, from the one with its first row on, each with its first offset."""
    place = place_key(range_.table, range_.partition)
    cursor = txn.cursor(db=db)
    wanted = place + OFFSET.pack(range_.first)
    found = cursor.set_range(wanted)
    if not found or bytes(cursor.key()) != wanted:
        before = cursor.prev() if found else cursor.last()
        found = (before and bytes(cursor.key()).startswith(place)) or cursor.set_range(wanted)
    while found and (key := bytes(cursor.key())).startswith(place):
        offset = int(OFFSET.unpack(key[len(place) :])[0])
        if offset >= range_.last:
            return
        yield offset, cursor.value()
        found = cursor.next()


def table_prefix(table: str) -> bytes:
    """Return the prefix of a table's keys."""
    return table.encode() + b"\0"


def place_key(table: str, partition: int) -> bytes:
    """Return the key of a partition's span."""
    return table_prefix(table) + _PARTITION.pack(partition)


def record_key(table: str, partition: int, offset: int) -> bytes:
    """Return the key of the record that begins at an offset."""
    return place_key(table, partition) + OFFSET.pack(offset)


def place_of(key: bytes) -> Place:
    """Return the table and the partition of a span's key."""
    table, _, partition = key.partition(b"\0")
    return table.decode(), int(_PARTITION.unpack(partition)[0])


def offset_of(key: bytes) -> tuple[str, int, int]:
    """Return the table, the partition and the first offset of a record's key."""
    return *place_of(key[: -OFFSET.size]), int(OFFSET.unpack(key[-OFFSET.size :])[0])


def span_of(key: bytes, data: bytes, where: str) -> OffsetSpan:
    """Return a stored span; `DataError` with `where` if it is damaged."""
    end, floor, rows, size = _SPAN.unpack(unsealed(key, data, _SPAN.size, f"{where} part=spans"))
    return OffsetSpan(end=end, floor=floor, rows=rows, size=size)
