"""How a run of input rows is kept as one log record: a checked header, the rows as an Arrow stream, the bad rows as JSON.

A record says how many offsets it takes; good and bad rows share the numbering (`dbsp.io.pushed`). Pushes are cut into records
of bounded size, so that a reader of a range never decodes much more than the range. The bytes are self-describing: a record
whose columns are not the table's is refused, not reinterpreted. Left out: where records are kept.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dbsp.errors import DataError
from dbsp.io.pushed import BadRow, Push, loose_batch
from dbsp.zset.batch import concat
from dbsp.zset.schema import Schema

CHUNK_BYTES_MAX = 8 << 20
MAGIC = b"DBSPIN01"
_HEADER = struct.Struct("<8sIIQ8x")
"""Magic, checksum of what follows the checksum, offsets taken, bytes of the Arrow stream."""
_CHECKED_FROM = 12
_OPERATION = "__op"


def split_push(push: Push, bytes_max: int = CHUNK_BYTES_MAX) -> Iterator[Push]:
    """The push in pieces of about `bytes_max` or less (a piece holds at least one row), in order."""
    size = push.batch.nbytes + sum(len(row.payload) for row in push.bad)
    pieces = -(-size // bytes_max)
    if pieces <= 1 or push.rows <= 1:
        yield push
        return
    step = max(1, push.rows // pieces)
    for first in range(0, push.rows, step):
        yield slice_push(push, first, min(push.rows, first + step))


def slice_push(push: Push, first: int, last: int) -> Push:
    """Rows `first <= i < last` of a push, renumbered from 0."""
    if first == 0 and last == push.rows:
        return push
    bad = tuple(
        BadRow(index=row.index - first, reason=row.reason, payload=row.payload)
        for row in push.bad
        if first <= row.index < last
    )
    before = sum(row.index < first for row in push.bad)
    low, high = first - before, last - before - len(bad)
    return Push(batch=push.batch.slice(low, high), operations=push.operations[low:high], bad=bad)


def join_pushes(pushes: list[Push], schema: Schema) -> Push:
    """Pushes of one table one after the other, as one."""
    if len(pushes) == 1:
        return pushes[0]
    bad: list[BadRow] = []
    base = 0
    for push in pushes:
        bad.extend(BadRow(index=base + row.index, reason=row.reason, payload=row.payload) for row in push.bad)
        base += push.rows
    batch = concat([push.batch for push in pushes], schema)
    return Push(batch=batch, operations=np.concatenate([push.operations for push in pushes]), bad=tuple(bad))


def encode_chunk(push: Push) -> bytes:
    """One record."""
    names = [*push.batch.schema.names, _OPERATION]
    rows = pa.RecordBatch.from_arrays([*push.batch.columns, pa.array(push.operations, type=pa.int8())], names=names)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    stream = sink.getvalue()
    bad = json.dumps([[row.index, row.reason, row.payload] for row in push.bad]).encode() if push.bad else b""
    rest = _HEADER.pack(MAGIC, 0, push.rows, stream.size)[_CHECKED_FROM:]
    checksum = zlib.crc32(bad, zlib.crc32(stream, zlib.crc32(rest)))
    return b"".join([MAGIC, struct.pack("<I", checksum), rest, stream, bad])


def chunk_rows(data: bytes | memoryview) -> int:
    """How many offsets a record takes, from its header alone."""
    return int(_HEADER.unpack_from(data)[2])


def decode_chunk(data: bytes, schema: Schema, where: str) -> Push:
    """The rows of a record, reading its bytes in place; `DataError` with `where` if it is damaged or another schema's."""
    if len(data) < _HEADER.size:
        raise DataError(f"an input record is cut short: {where} bytes={len(data)}")
    magic, checksum, rows, size = _HEADER.unpack_from(data)
    if magic != MAGIC or zlib.crc32(memoryview(data)[_CHECKED_FROM:]) != checksum:
        raise DataError(f"an input record is damaged: {where}")
    body = pa.py_buffer(data)
    with pa.ipc.open_stream(body.slice(_HEADER.size, size)) as reader:
        stored = reader.read_all()
    expected = [(column.name, column.type) for column in schema]
    if [(field.name, field.type) for field in stored.schema][:-1] != expected:
        raise DataError(
            f"an input record has another schema: {where} found={stored.schema.names} expected={list(schema.names)}"
        )
    columns = [_one_array(column) for column in stored.columns]
    operations = columns.pop().to_numpy(zero_copy_only=True)
    bad = json.loads(data[_HEADER.size + size :] or b"[]")
    push = Push(
        batch=loose_batch(schema, columns),
        operations=operations,
        bad=tuple(BadRow(index=index, reason=reason, payload=payload) for index, reason, payload in bad),
    )
    if push.rows != rows:
        raise DataError(f"an input record is damaged: {where} rows={push.rows} expected={rows}")
    return push


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])
