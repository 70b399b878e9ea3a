"""Encode batches as bytes: the format of stored chunks and of exchanges.

    header | buffer table | block checksums | header checksum | buffers, each 64-byte aligned

1. Equal rows in equal order give equal bytes: slices are compacted, padding is zero, values at nulls are zero.
2. Decoding copies only lists. Columns, weights and words are views of the bytes, and live as long as these. Bytes whose
   address is not a multiple of 8 are copied once.
3. The input is not trusted. Magic, format, schema id, header checksum and the sizes of all buffers are always checked. The
   checksums of the 64 KiB blocks of the body are checked unless `verify=False`.
4. The format is little-endian and has a number; the tests have golden bytes.

All numbers are little-endian. The header has 64 bytes:

| field | type |
| --- | --- |
| magic | 8s |
| format | u16 |
| flags: 1 key hash, 2 order code, 4 row hash | u16 |
| weights per row | u32 |
| rows | u64 |
| schema id | u64 |
| first key hash | u64 |
| last key hash | u64 |
| body bytes | u64 |
| buffers | u32 |
| blocks | u32 |

The buffer table has offset u64 and bytes u64 for each buffer, offsets counted from the first byte of the header. One
crc32 u32 per block follows, then the crc32 u32 of everything before it. The body starts at the next multiple of 64.

The buffers, in order:

- The words that are flagged.
- For each weight of a row, the narrowest integers that can hold this weight of all rows (empty: the weight is 1 in all rows).
- For each column, its validity (empty: no nulls) and values.

Values of strings and binary are codes of 1, 2 or 4 bytes (empty: none), offsets, and bytes. Offsets and bytes are those
of the rows, or with codes those of a dictionary. A dictionary of one value for several rows has no codes either
(`dbsp.zset.coded` has the rules). Lists are written as `dbsp.zset.nested` makes them: offsets, bytes. Structs have the
buffers of each field, null where the struct is null; strings in them have no codes.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from dbsp.errors import CapacityError, DataError
from dbsp.stored.format_numbers import check_format
from dbsp.zset.arrays import (
    as_bytes,
    bool_values,
    bytes_view,
    fields_of,
    is_bool,
    is_bytes,
    is_decimal,
    is_struct,
    is_text,
    pair_view,
    storage_type,
    valid_rows,
    value_view,
)
from dbsp.zset.batch import Batch
from dbsp.zset.buffers import width_of
from dbsp.zset.coded import coding_of, decoded, fits_codes, without_nulls
from dbsp.zset.narrow import NarrowWeights, Weights, narrowed, widened
from dbsp.zset.nested import nested_of
from dbsp.zset.schema import BOOL, Arrangement, Schema, is_list
from dbsp.zset.schema import is_struct as is_struct_type

MAGIC = b"DBSPBAT\x00"
FORMAT = 3
ALIGNMENT = 64
BLOCK_BYTES = 64 * 1024
ROWS_MAX = (1 << 31) - 1

_HEADER = struct.Struct("<8sHHIQQQQQII")
_ENTRY = struct.Struct("<QQ")
_U32 = struct.Struct("<I")
_ONE_VALUE = 8
"""Size in bytes of an offsets buffer with one string: two offsets of 4 bytes."""
_NO_CODES = np.empty(0, np.uint8)
_WORDS = ("key_hash", "order_code", "row_hash")

Bytes = bytes | bytearray | memoryview


@lru_cache(maxsize=1024)
def schema_id(schema: Schema, arrangement: Arrangement | None = None) -> int:
    """Return a 64-bit number of a schema and an arrangement; it is the same on every machine and in every version."""
    lines = [f"{c.name!r} {_spelled(c.type)} {'null' if c.nullable else 'not null'}" for c in schema]
    if arrangement is not None:
        lines.append(f"key {list(arrangement.key)!r} weights {arrangement.weights}")
        lines += [f"order {by.column!r} {by.descending} {by.nulls_first}" for by in arrangement.order]
    return int.from_bytes(hashlib.blake2b("\n".join(lines).encode(), digest_size=8).digest(), "little")


def _spelled(type_: pa.DataType) -> str:
    """Return Arrow's name of a type, with quoted field names, so that different types have different names."""
    if is_struct_type(type_):
        return f"struct<{', '.join(f'{field.name!r}: {_spelled(field.type)}' for field in type_)}>"
    if is_list(type_) and pa.types.is_nested(type_.value_type):
        return f"list<item: {_spelled(type_.value_type)}>"
    return str(type_)


def encode(batch: Batch, room: int = 0, *, codes: bool = True) -> bytearray:
    """Return the batch as bytes, after `room` bytes that the caller fills.

    Repeated texts are written as `codes`. For bytes that are not stored, `codes=False` saves the search for repetitions.

    **Law** `decode(encode(b), b.schema, b.arrangement)` holds the rows of `b` in the same order; encoding those again
    gives the same bytes.

    **Cost** One copy and one checksum of the data; for repeated texts a look-up of each.

    **Example**

    >>> from dbsp.zset.batch import Batch
    >>> from dbsp.zset.schema import STRING, Schema
    >>> batch = Batch.from_rows(Schema.of({"a": STRING}), [(("x",), 1), (("x",), -1)])
    >>> decode(encode(batch), batch.schema).to_rows()
    [(('x',), 1), (('x',), -1)]
    """
    if len(batch) > ROWS_MAX:
        raise CapacityError(f"batch too large to encode: rows={len(batch)} rows_max={ROWS_MAX}")
    buffers = _buffers(batch, codes)
    layout = _layout([buffer.nbytes for buffer in buffers])
    out = bytearray(room + layout.total)
    view = memoryview(out)[room:]
    for offset, buffer in zip(layout.offsets, buffers, strict=True):
        if buffer.nbytes:
            view[offset : offset + buffer.nbytes] = buffer.reshape(-1).view(np.uint8).data
    _write_head(view, batch, buffers, layout)
    return out


def _write_head(view: memoryview, batch: Batch, buffers: Sequence[NDArray[Any]], layout: _Layout) -> None:
    """Write header, buffer table and checksums."""
    words = [getattr(batch, name) for name in _WORDS]
    flags = sum(1 << bit for bit, word in enumerate(words) if word is not None)
    ranged = words[0] is not None and len(batch)
    first, last = (int(words[0][0]), int(words[0][-1])) if ranged else (0, 0)
    width, id_ = batch.width, schema_id(batch.schema, batch.arrangement)
    body = layout.total - layout.body
    counts = (len(buffers), layout.blocks)
    _HEADER.pack_into(view, 0, MAGIC, FORMAT, flags, width, len(batch), id_, first, last, body, *counts)
    at = _HEADER.size
    for offset, buffer in zip(layout.offsets, buffers, strict=True):
        _ENTRY.pack_into(view, at, offset, buffer.nbytes)
        at += _ENTRY.size
    for start, end in _blocks(layout.body, layout.total):
        _U32.pack_into(view, at, crc32(view[start:end]))
        at += _U32.size
    _U32.pack_into(view, at, crc32(view[:at]))


@dataclass(frozen=True, slots=True)
class _Layout:
    """The offsets of all buffers, the start of the body, the total size, and the number of checksummed blocks."""

    offsets: tuple[int, ...]
    body: int
    total: int
    blocks: int


def _layout(sizes: Sequence[int]) -> _Layout:
    """Return the layout of buffers of these sizes."""
    padded = [_aligned(size) for size in sizes]
    blocks = -(-sum(padded) // BLOCK_BYTES)
    body = _body_start(len(sizes), blocks)
    offsets = [body]
    for size in padded:
        offsets.append(offsets[-1] + size)
    return _Layout(tuple(offsets[:-1]), body, offsets[-1], blocks)


def _head_end(buffers: int, blocks: int) -> int:
    """Return the offset of the head's own checksum, which covers everything before it."""
    return _HEADER.size + buffers * _ENTRY.size + blocks * _U32.size


def _body_start(buffers: int, blocks: int) -> int:
    """Return the offset of the body."""
    return _aligned(_head_end(buffers, blocks) + _U32.size)


def _aligned(size: int) -> int:
    """Return the size rounded up to a multiple of the alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def _blocks(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Return the bounds of the checksummed blocks of the body."""
    return pairwise([*range(start, end, BLOCK_BYTES), end])


def _buffers(batch: Batch, codes: bool) -> list[NDArray[Any]]:
    """Return all buffers in their order, compact and canonical."""
    words = [word for name in _WORDS if (word := getattr(batch, name)) is not None]
    columns = [buffer for column in batch.held for buffer in _outer_buffers(column, codes)]
    return [np.ascontiguousarray(buffer) for buffer in (*words, *narrowed(batch.weights), *columns)]


def _outer_buffers(array: pa.Array, codes: bool) -> list[NDArray[Any]]:
    """Return the buffers of a column of the batch; texts have one more buffer, for codes."""
    if not is_text(array):
        return _column_buffers(array)
    valid = valid_rows(array)
    if not codes:
        return [_bitmap(valid), _NO_CODES, *_byte_buffers(array, valid)]
    array = array if valid is None else without_nulls(array)
    coding = coding_of(array)
    written = (_NO_CODES, array) if coding is None else (coding.codes, coding.values)
    return [_bitmap(valid), written[0], *_byte_buffers(written[1], None)]


def _bitmap(valid: NDArray[np.bool_] | None) -> NDArray[np.uint8]:
    """Return the bitmap of rows that are not null, empty if there are no nulls."""
    return np.empty(0, np.uint8) if valid is None else np.packbits(valid, bitorder="little")


def _column_buffers(array: pa.Array) -> list[NDArray[Any]]:
    """Return the buffers of a column, or of a field of a struct."""
    valid = valid_rows(array)
    bitmap = _bitmap(valid)
    if is_bytes(array):
        return [bitmap, *_byte_buffers(array, valid)]
    if is_struct(array):
        return [bitmap, *(buffer for field in fields_of(array) for buffer in _column_buffers(field))]
    if is_bool(array):
        values = bool_values(array)
        return [bitmap, np.packbits(values if valid is None else values & valid, bitorder="little")]
    if is_decimal(array):
        pairs = pair_view(array)
        return [bitmap, pairs if valid is None else np.where(valid[:, None], pairs, np.uint64(0))]
    plain = value_view(array)
    return [bitmap, plain if valid is None else np.where(valid, plain, plain.dtype.type(0))]


def _byte_buffers(array: pa.Array, valid: NDArray[np.bool_] | None) -> list[NDArray[Any]]:
    """Return the offsets, counted from 0, and the bytes of a string column; a null has no bytes."""
    offsets, data = bytes_view(array)
    if valid is not None and (np.diff(offsets)[~valid] != 0).any():
        offsets, data = bytes_view(without_nulls(as_bytes(array)))
    return [offsets - offsets[0], data[offsets[0] : offsets[-1]]]


def decode(buffer: Bytes, schema: Schema, arrangement: Arrangement | None = None, *, verify: bool = True) -> Batch:
    """Return the batch in these bytes, without copying them.

    **Limit** The batch reads from `buffer`: keep a memory map and its transaction open as long as the batch.

    **Errors** `DataError` where the bytes are not such a batch, or are damaged; `verify=False` skips the checksums of
    the body.
    """
    view = memoryview(buffer).cast("B") if not isinstance(buffer, memoryview) or buffer.format != "B" else buffer
    head = _read_head(view, schema_id(schema, arrangement))
    if verify:
        _verify_blocks(view, head)
    shared = pa.py_buffer(view)
    if shared.address % _ENTRY.size:
        shared = pa.py_buffer(bytes(view))
    parts = iter([shared.slice(offset, size) for offset, size in head.buffers])
    words = {
        name: _numbers(next(parts), np.uint64, head.rows) for bit, name in enumerate(_WORDS) if head.flags >> bit & 1
    }
    if head.rows and "key_hash" in words and (words["key_hash"][0], words["key_hash"][-1]) != head.range:
        raise DataError(f"damaged batch: key hashes outside the range of the header: rows={head.rows}")
    weights = _read_weights([next(parts) for _ in range(head.width)], head.rows)
    columns = tuple(_read_outer(column.name, column.type, head.rows, parts) for column in schema)
    return Batch(schema=schema, columns=columns, weights=weights, arrangement=arrangement, **words)


def verify(buffer: Bytes) -> None:
    """Check an encoded batch of any schema against all its checksums.

    **Errors** `DataError` where the bytes are not a batch, or are damaged.
    """
    view = _whole_header(buffer)
    _verify_blocks(view, _read_head(view, _HEADER.unpack_from(view)[5]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """The number of rows of an encoded batch and the range of their key hashes, read from its header."""

    rows: int
    first: int
    last: int


def outline(buffer: Bytes) -> Outline:
    """Return the number of rows and the range of key hashes from the header; nothing is checked.

    **Errors** `DataError` where the bytes are too few for a header.
    """
    view = _whole_header(buffer)
    _, _, _, _, rows, _, first, last, *_ = _HEADER.unpack_from(view)
    return Outline(rows=rows, first=first, last=last)


def check_encoding(buffer: Bytes, where: str) -> None:
    """Refuse an encoded batch of another format version; `where` names its place in the error.

    Bytes that are no batch at all pass, and fail when they are decoded.
    """
    view = memoryview(buffer)
    if len(view) >= _HEADER.size and bytes(view[:8]) == MAGIC:
        check_format("a batch", where, _HEADER.unpack_from(view)[1], FORMAT)


def buffer_table(buffer: Bytes) -> list[tuple[int, int]]:
    """Return the (offset, bytes) of each buffer of an encoded batch, from the header; nothing is checked.

    **Errors** `DataError` where the bytes are too few for the table.
    """
    view = _whole_header(buffer)
    *_, buffers, _blocks = _HEADER.unpack_from(view)
    table = view[_HEADER.size : _HEADER.size + buffers * _ENTRY.size]
    if len(table) < buffers * _ENTRY.size:
        raise DataError(f"not a batch: bytes={len(view)} buffers={buffers}")
    return list(_ENTRY.iter_unpack(table))


def head_checksum(buffer: Bytes) -> int:
    """Return a checksum over header, buffer table and block checksums, which distinguishes batches by their content.

    The head's own checksum is left out: a crc32 over bytes that end with their crc32 is the same number for all bytes.

    **Errors** `DataError` where the bytes are too few for a header.
    """
    view = _whole_header(buffer)
    *_, buffers, blocks = _HEADER.unpack_from(view)
    return crc32(view[: _head_end(buffers, blocks)])


def _whole_header(buffer: Bytes) -> memoryview:
    view = memoryview(buffer)
    if len(view) < _HEADER.size:
        raise DataError(f"not a batch: bytes={len(view)}")
    return view


@dataclass(frozen=True, slots=True)
class _Head:
    """The fields of a checked header, the buffer table and the block checksums."""

    flags: int
    width: int
    rows: int
    range: tuple[int, int]
    body: int
    buffers: tuple[tuple[int, int], ...]
    checksums: tuple[int, ...]


def _read_head(view: memoryview, expected_id: int) -> _Head:
    """Read and check everything before the body."""
    if len(view) < _HEADER.size or bytes(view[:8]) != MAGIC:
        raise DataError(f"not a batch: bytes={len(view)} start={bytes(view[:8]).hex()}")
    _, format_, flags, width, rows, id_, first, last, body_bytes, buffers, blocks = _HEADER.unpack_from(view)
    check_format("a batch", "", format_, FORMAT)
    body = _body_start(buffers, blocks)
    if len(view) < body + body_bytes:
        raise DataError(f"truncated batch: bytes={len(view)} expected={body + body_bytes}")
    at = _head_end(buffers, blocks)
    if crc32(view[:at]) != _U32.unpack_from(view, at)[0]:
        raise DataError(f"damaged batch header: rows={rows} bytes={len(view)}")
    if id_ != expected_id:
        raise DataError(f"batch of another schema: id={id_:016x} expected={expected_id:016x}")
    table = tuple(_ENTRY.iter_unpack(view[_HEADER.size : _HEADER.size + buffers * _ENTRY.size]))
    if any(offset % ALIGNMENT or offset < body or offset + size > body + body_bytes for offset, size in table):
        raise DataError(f"buffer outside its batch: rows={rows} bytes={len(view)}")
    sums = struct.unpack_from(f"<{blocks}I", view, _HEADER.size + buffers * _ENTRY.size)
    return _Head(flags, width, rows, (first, last), body, table, sums)


def _verify_blocks(view: memoryview, head: _Head) -> None:
    """Check the checksum of each block of the body."""
    end = max((offset + _aligned(size) for offset, size in head.buffers), default=head.body)
    for number, ((start, stop), expected) in enumerate(zip(_blocks(head.body, end), head.checksums, strict=False)):
        if crc32(view[start:stop]) != expected:
            raise DataError(f"damaged batch: block={number} offset={start} rows={head.rows}")


def _read_weights(buffers: Sequence[pa.Buffer], rows: int) -> Weights | NarrowWeights:
    """Return the weights, in the width in which they are stored."""
    for buffer in buffers:
        if width_of(buffer.size, rows) is None:
            raise DataError(f"buffer of the wrong size: bytes={buffer.size} weights={rows}")
    return widened([memoryview(buffer) for buffer in buffers], rows)


def _numbers(buffer: pa.Buffer, dtype: Any, count: int) -> NDArray[Any]:
    """Return a view of a buffer that holds exactly `count` numbers."""
    _expect(buffer, count * np.dtype(dtype).itemsize)
    return np.frombuffer(buffer, dtype, count)


def _expect(buffer: pa.Buffer, size: int) -> None:
    """Refuse a buffer of another size."""
    if buffer.size != size:
        raise DataError(f"buffer of the wrong size: bytes={buffer.size} expected={size}")


def _read_outer(name: str, type_: pa.DataType, rows: int, parts: Iterator[pa.Buffer]) -> pa.Array:
    """Return a column of the batch from the next buffers; texts have one more buffer, for codes."""
    if type_ not in (pa.string(), pa.binary()):
        return _read_column(name, type_, rows, parts)
    bitmap = _read_bitmap(next(parts), rows)
    codes, offsets, data = next(parts), next(parts), next(parts)
    if not codes.size and (rows <= 1 or offsets.size != _ONE_VALUE):
        _check_offsets(name, offsets, data, rows)
        return pa.Array.from_buffers(type_, rows, [bitmap, offsets, data])
    values = offsets.size // 4 - 1
    if not fits_codes(codes.size, rows, values):
        raise DataError(
            f"dictionary codes do not fit the rows: column={name} rows={rows} bytes={codes.size} values={values}"
        )
    _check_offsets(name, offsets, data, values)
    return decoded(codes, (offsets, data), rows, type_, bitmap)


def _read_bitmap(buffer: pa.Buffer, rows: int) -> pa.Buffer | None:
    """Return the bitmap of rows that are not null, or None if there are no nulls."""
    if not buffer.size:
        return None
    _expect(buffer, -(-rows // 8))
    return buffer


def _check_offsets(name: str, offsets: pa.Buffer, data: pa.Buffer, count: int) -> None:
    """Refuse offsets that do not describe `count` strings in these bytes."""
    bounds = _numbers(offsets, np.int32, count + 1)
    if bounds[0] != 0 or bounds[-1] != data.size:
        raise DataError(f"string offsets do not fit: column={name} last={bounds[-1]} bytes={data.size}")


def _read_column(name: str, type_: pa.DataType, rows: int, parts: Iterator[pa.Buffer]) -> pa.Array:
    """Return a column, or a field of a struct, from the next buffers."""
    bitmap = _read_bitmap(next(parts), rows)
    if is_struct_type(type_):
        fields = [_read_column(f"{name}.{field.name}", field.type, rows, parts) for field in type_]
        return pa.Array.from_buffers(type_, rows, [bitmap], children=fields)
    if type_ in (pa.string(), pa.binary()) or is_list(type_):
        offsets, data = next(parts), next(parts)
        _check_offsets(name, offsets, data, rows)
        stored = pa.binary() if is_list(type_) else type_
        array = pa.Array.from_buffers(stored, rows, [bitmap, offsets, data])
        return nested_of(array, type_) if is_list(type_) else array
    values = next(parts)
    _expect(values, _value_bytes(type_, rows))
    return pa.Array.from_buffers(type_, rows, [bitmap, values])


def _value_bytes(type_: pa.DataType, rows: int) -> int:
    """Return the bytes of the values of a fixed-width column."""
    if type_ == BOOL:
        return -(-rows // 8)
    storage = storage_type(type_)
    return rows * (16 if storage is None else storage.itemsize)
