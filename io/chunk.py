"""The log record of a run of input rows: a checksummed header, the rows as an Arrow stream, the bad rows as JSON.

A record states its number of offsets; good and bad rows share the numbering (`dbsp.io.pushed`). Pushes are cut into
records of bounded size, so that reading a range decodes little more than the range. Records are self-describing: one
with other columns than the table's is refused. Left out: where records are stored.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dbsp.algebra.table import Table
from dbsp.errors import DataError
from dbsp.io import forms
from dbsp.io.pushed import BadRow, Push
from dbsp.stored.format_numbers import check_name
from dbsp.stored.levels import HEADERS_SINCE, NEWEST
from dbsp.zset.arrays import join
from dbsp.zset.batch import concat
from dbsp.zset.loose import loose_batch
from dbsp.zset.schema import Schema

CHUNK_BYTES_MAX = 8 << 20
MAGIC = forms.INPUT_RECORD
_HEADER = struct.Struct("<8sIIQ8x")
"""Magic, checksum of everything after it, number of offsets, bytes of the Arrow stream."""
_CHECKED_FROM = 12
_OPERATION = "__op"


def split_push(push: Push, bytes_max: int = CHUNK_BYTES_MAX) -> Iterator[Push]:
    """Yield the push in order, in pieces of about `bytes_max` or less; a piece has at least one row."""
    size = push.batch.nbytes + sum(len(row.payload) + len(row.header) for row in push.bad)
    if size <= bytes_max or push.rows <= 1:
        yield push
        return
    middle = push.rows // 2
    yield from split_push(slice_push(push, 0, middle), bytes_max)
    yield from split_push(slice_push(push, middle, push.rows), bytes_max)


def slice_push(push: Push, first: int, last: int) -> Push:
    """Return the rows `first <= i < last` of a push, renumbered from 0."""
    if first == 0 and last == push.rows:
        return push
    before, bad = _cut_bad(push.bad, first, last)
    low, high = first - before, last - before - len(bad)
    return Push(batch=push.batch.slice(low, high), operations=push.operations[low:high], bad=bad)


def join_pushes(pushes: list[Push], schema: Schema) -> Push:
    """Concatenate pushes of one table."""
    if len(pushes) == 1:
        return pushes[0]
    bad: list[BadRow] = []
    base = 0
    for push in pushes:
        bad.extend(replace(row, index=base + row.index) for row in push.bad)
        base += push.rows
    batch = concat([push.batch for push in pushes], schema)
    return Push(batch=batch, operations=np.concatenate([push.operations for push in pushes]), bad=tuple(bad))


def encode_chunk(push: Push, level: int = NEWEST) -> bytes:
    """Encode a push as one record; bad rows keep their headers from the level on that has them."""
    names = [*push.batch.schema.names, _OPERATION]
    rows = pa.RecordBatch.from_arrays([*push.batch.columns, pa.array(push.operations, type=pa.int8())], names=names)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    stream = sink.getvalue()
    bad = json.dumps([_stored(row, level) for row in push.bad]).encode() if push.bad else b""
    rest = _HEADER.pack(MAGIC, 0, push.rows, stream.size)[_CHECKED_FROM:]
    checksum = zlib.crc32(bad, zlib.crc32(stream, zlib.crc32(rest)))
    return b"".join([MAGIC, struct.pack("<I", checksum), rest, stream, bad])


def _stored(row: BadRow, level: int) -> list[Any]:
    """Return a bad row as JSON values; a row without a header has three, as all rows of version 0.1.0 have."""
    has_header = row.header and level >= HEADERS_SINCE
    return [row.index, row.reason, row.payload, *([row.header] if has_header else [])]


def _read(index: int, reason: str, payload: str, header: str = "") -> BadRow:
    """Return a bad row of its stored values."""
    return BadRow(index=index, reason=reason, payload=payload, header=header)


def chunk_rows(data: bytes | memoryview) -> int:
    """Return a record's number of offsets, from its header alone."""
    return int(_HEADER.unpack_from(data)[2])


def check_magic(data: bytes, where: str) -> None:
    """Raise a `DataError` for a record of another format version; `check_chunk` finds all other damage."""
    magic = bytes(data[: len(MAGIC)])
    if magic[:6] == MAGIC[:6]:
        check_name("an input record", where, magic, MAGIC)


def check_chunk(data: bytes, where: str) -> int:
    """Return a record's number of offsets, whatever its schema; raise a `DataError` with `where` if it is damaged."""
    if len(data) < _HEADER.size:
        raise DataError(f"an input record is cut short: {where} bytes={len(data)}")
    magic, checksum, rows, _ = _HEADER.unpack_from(data)
    check_magic(data, where)
    if magic != MAGIC or zlib.crc32(memoryview(data)[_CHECKED_FROM:]) != checksum:
        raise DataError(f"an input record is damaged: {where}")
    return int(rows)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chunk:
    """A decoded record, or a piece of one, as arrays over its bytes; `rows` counts good and bad rows."""

    columns: list[pa.Array]
    operations: NDArray[np.int8]
    bad: tuple[BadRow, ...]
    rows: int

    def cut(self, first: int, last: int) -> Chunk:
        """Return the rows `first <= i < last`, renumbered from 0."""
        if first == 0 and last == self.rows:
            return self
        before, bad = _cut_bad(self.bad, first, last)
        low, size = first - before, last - first - len(bad)
        columns = [column.slice(low, size) for column in self.columns]
        return Chunk(columns=columns, operations=self.operations[low : low + size], bad=bad, rows=last - first)


def decode_chunk(data: bytes, table: Table, where: str) -> Chunk:
    """Decode a record without copying its bytes.

    Columns that were added to the table after the record was written have their default, else null.

    **Errors** `DataError` with `where` if it is damaged, or has another schema.
    """
    rows, schema = check_chunk(data, where), table.schema
    size = int(_HEADER.unpack_from(data)[3])
    with pa.ipc.open_stream(pa.py_buffer(data).slice(_HEADER.size, size)) as reader:
        stored = reader.read_next_batch()
    count = len(stored.schema) - 1
    added = schema.columns[count:]
    if (
        stored.schema.types[:-1] != [column.type for column in schema.columns[:count]]
        or tuple(stored.schema.names[:-1]) != schema.names[:count]
        or not all(table.may_lack(column) for column in added)
    ):
        raise DataError(
            f"an input record has another schema: {where} found={stored.schema.names} expected={list(schema.names)}"
        )
    *columns, operations = stored.columns
    columns += [table.absent(column, stored.num_rows) for column in added]
    bad = tuple(_read(*row) for row in json.loads(data[_HEADER.size + size :] or b"[]"))
    if stored.num_rows + len(bad) != rows:
        raise DataError(f"an input record is damaged: {where} rows={stored.num_rows + len(bad)} expected={rows}")
    return Chunk(columns=columns, operations=operations.to_numpy(zero_copy_only=True), bad=bad, rows=rows)


def join_chunks(chunks: list[Chunk], schema: Schema) -> Push:
    """Concatenate one or more chunks of a table into a push."""
    columns = [join([chunk.columns[number] for chunk in chunks]) for number in range(len(schema))]
    operations = np.concatenate([chunk.operations for chunk in chunks])
    bad: list[BadRow] = []
    base = 0
    for chunk in chunks:
        bad.extend(replace(row, index=base + row.index) for row in chunk.bad)
        base += chunk.rows
    return Push(batch=loose_batch(schema, columns), operations=operations, bad=tuple(bad))


def _cut_bad(bad: Sequence[BadRow], first: int, last: int) -> tuple[int, tuple[BadRow, ...]]:
    """Return the number of bad rows before `first`, and those in the range, renumbered from `first`."""
    within = tuple(replace(row, index=row.index - first) for row in bad if first <= row.index < last)
    return sum(row.index < first for row in bad), within
