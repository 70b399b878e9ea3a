"""The number of rows of an Arrow stream and its unpacked bytes, computed before any of it is unpacked.

Every message of a stream states its number of rows, and every packed buffer begins with its unpacked size. Both
precede the data. So a few kilobytes that would become gigabytes are refused before memory is allocated.

pyarrow does not expose these figures. So this module reads the messages as Arrow's format defines them, with each
access within the message's bytes.

Source: Arrow's columnar format, "IPC Streaming Format", with the FlatBuffers schemas Message.fbs and Schema.fbs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from dbsp.zset.schema import Schema

_HEADER_TYPE, _HEADER = 1, 2
_LENGTH, _BUFFERS, _COMPRESSION = 0, 2, 3
_DATA_OF_DICTIONARY = 1
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
_BUFFER = struct.Struct("<qq")
_NOT_PACKED = -1
_REFERENCE_BYTES = 4


@dataclass(frozen=True, slots=True)
class StreamSize:
    """The rows of a message, and its bytes when unpacked."""

    rows: int
    bytes: int


def stream_sizes(data: pa.Buffer) -> Iterator[StreamSize]:
    """Yield the size of each message in order; the rows of dictionaries count as none.

    **Errors** `pa.ArrowException` or `ValueError` if the bytes are no Arrow stream.
    """
    for message in pa.ipc.MessageReader.open_stream(data):
        if message.type in ("record batch", "dictionary"):
            try:
                yield _message_size(message.metadata.to_pybytes(), message.body)
            except struct.error as error:
                raise ValueError(f"the header of an Arrow message is truncated: {error}") from None


def _message_size(header: bytes, body: pa.Buffer | None) -> StreamSize:
    message = _Table(header, struct.unpack_from("<I", header, 0)[0])
    kind = message.number(_HEADER_TYPE, "<B")
    batch = message.table(_HEADER)
    if kind == _DICTIONARY_BATCH:
        batch = batch and batch.table(_DATA_OF_DICTIONARY)
    if batch is None:
        raise ValueError("a message without its content")
    rows = batch.number(_LENGTH, "<q")
    if rows < 0:
        raise ValueError(f"a batch of {rows} rows")
    packed = batch.table(_COMPRESSION) is not None
    size = sum(_buffer_size(begin, length, body, packed) for begin, length in batch.buffers(_BUFFERS))
    return StreamSize(rows if kind == _RECORD_BATCH else 0, size)


def _buffer_size(begin: int, length: int, body: pa.Buffer | None, packed: bool) -> int:
    """Return the unpacked bytes of a buffer; an empty buffer is never packed."""
    if not length:
        return 0
    if body is None or length < 0 or begin < 0 or begin + length > body.size:
        raise ValueError("a buffer outside its message")
    if not packed:
        return length
    size: int = struct.unpack_from("<q", body, begin)[0] if length >= _BUFFER.size // 2 else 0
    if size < _NOT_PACKED:
        raise ValueError(f"a buffer of {size} bytes")
    return length if size == _NOT_PACKED else size


class _Table:
    """A FlatBuffers table: its own index gives the place of each field by number."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at
        self._index = at - self._read("<i", at)
        self._index_bytes = self._read("<H", self._index)

    def _read(self, kind: str, at: int) -> int:
        if at < 0:
            raise ValueError("a header that points in front of itself")
        found: int = struct.unpack_from(kind, self._data, at)[0]
        return found

    def _place(self, field: int) -> int | None:
        entry = 4 + 2 * field
        offset = self._read("<H", self._index + entry) if entry < self._index_bytes else 0
        return self._at + offset if offset else None

    def number(self, field: int, kind: str) -> int:
        """Return a number; 0 if the field is absent."""
        place = self._place(field)
        return 0 if place is None else self._read(kind, place)

    def table(self, field: int) -> _Table | None:
        """Return a nested table; None if the field is absent."""
        place = self._place(field)
        return None if place is None else _Table(self._data, place + self._read("<I", place))

    def buffers(self, field: int) -> Iterator[tuple[int, int]]:
        """Yield the pairs (begin, length) of a list of buffers."""
        place = self._place(field)
        if place is None:
            return
        first = place + self._read("<I", place)
        for number in range(self._read("<I", first)):
            begin, length = _BUFFER.unpack_from(self._data, first + 4 + number * _BUFFER.size)
            yield begin, length


def row_bytes(schema: Schema) -> int:
    """Return the least bytes of a table's row in memory, as if its texts and lists were empty or null."""
    return sum(_type_bytes(column.type) for column in schema)


def _type_bytes(type_: pa.DataType) -> int:
    if pa.types.is_struct(type_):
        return sum(_type_bytes(field.type) for field in type_)
    try:
        return max(1, int(type_.bit_width) // 8)
    except ValueError:  # texts, bytes and lists have an offset for each row
        return _REFERENCE_BYTES


def decoded_bytes(array: pa.Array | pa.ChunkedArray) -> int:
    """Return the bytes of an array without dictionary encoding; never an underestimate."""
    if isinstance(array, pa.ChunkedArray):
        return sum(decoded_bytes(chunk) for chunk in array.chunks)
    kind = array.type
    if pa.types.is_dictionary(kind):
        values = array.dictionary
        if pa.types.is_string(values.type) or pa.types.is_binary(values.type) or pa.types.is_large_string(values.type):
            return int(pc.sum(pc.take(pc.binary_length(values), array.indices)).as_py() or 0) + 4 * len(array)
        largest = values.nbytes if pa.types.is_nested(values.type) else values.nbytes // max(1, len(values)) + 1
        return len(array) * int(largest)
    if pa.types.is_struct(kind):
        return sum(decoded_bytes(array.field(number)) for number in range(kind.num_fields))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return decoded_bytes(array.values) + 4 * len(array)
    return int(array.nbytes)
