"""Some pages of a column as a Parquet file of their own, in memory, which pyarrow reads.

Such a file holds the bytes of the column's dictionary and of the wanted pages as they are, and a footer that is the old one
but for one column, one row group, and where things lie. What a page means is left to pyarrow.

**Law** the rows of the cut are those of the row group, in their order, with their types.
"""

from __future__ import annotations

import base64
import os

import pyarrow as pa
import pyarrow.parquet as pq

from dbsp.io.parquet.pages import Pages, Stretch
from dbsp.io.parquet.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    Reader,
    Struct,
    ThriftError,
    structs,
    value,
    write_struct,
)

MAGIC = b"PAR1"
TAIL_BYTES = 8
"""The footer's length and the magic behind it."""
FOOTER_BYTES_MAX = 1 << 16
"""Longer ones, of very many columns or row groups, take too long to read here."""
_SCHEMA, _ROWS, _GROUPS, _PAIRS, _ORDERS = 2, 3, 4, 5, 7
_CHILDREN, _NAME = 5, 4
_GROUP_COLUMNS, _GROUP_BYTES, _GROUP_ROWS = 1, 2, 3
_CHUNK_PLACE, _CHUNK = 2, 3
_CODEC, _CHUNK_ROWS, _PLAIN_BYTES, _PACKED_BYTES, _DATA_PLACE, _DICTIONARY_PLACE = 4, 5, 6, 7, 9, 11


def read_footer(file: int, size: int) -> Struct | None:
    """The footer of an open file of `size` bytes; None for one that is encrypted or too long.

    **Errors** `ThriftError` for bytes that are none.
    """
    tail = os.pread(file, TAIL_BYTES, size - TAIL_BYTES)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or length > min(FOOTER_BYTES_MAX, size - TAIL_BYTES):
        return None
    return Reader(os.pread(file, length, size - TAIL_BYTES - length)).struct()


def chunk_of(footer: Struct, group: int, number: int) -> Struct:
    """What the footer says of a column in a row group."""
    columns = structs(structs(footer, _GROUPS)[group], _GROUP_COLUMNS)
    chunk: Struct = value(columns[number], _CHUNK, STRUCT)
    return chunk


def bytes_of(chunk: Struct) -> tuple[int, int]:
    """Where a column's pages begin in their file, its dictionary first, and how many bytes they are."""
    data = value(chunk, _DATA_PLACE, I64)
    _, dictionary = chunk.get(_DICTIONARY_PLACE, (I64, 0))
    return min(data, dictionary or data), value(chunk, _PACKED_BYTES, I64)


def column_of(
    file: int,
    footer: Struct,
    group: int,
    number: int,
    pages: Pages,
    stretch: Stretch,
    field: pa.Field,
    *,
    numbers: bool,
) -> pa.ChunkedArray:
    """The column's rows in these pages; with `numbers` as numbers of a dictionary.

    **Errors** `pyarrow.ArrowException` for pages that cannot be read, `ThriftError` for a footer that is not understood.
    """
    start, end = pages.dictionary or (0, 0)
    dictionary = os.pread(file, end - start, start)
    data = os.pread(file, stretch.end - stretch.at, stretch.at)
    if len(dictionary) != end - start or len(data) != stretch.end - stretch.at:
        raise ThriftError("a file that is shorter than its footer says")
    ending = write_struct(
        _footer(footer, group, number, len(dictionary), len(data), stretch.last - stretch.first, field)
    )
    whole = b"".join((MAGIC, dictionary, data, ending, len(ending).to_bytes(4, "little"), MAGIC))
    with pq.ParquetFile(pa.BufferReader(whole), read_dictionary=[field.name] if numbers else None) as cut:
        return cut.read(use_threads=False).column(0)


def _footer(footer: Struct, group: int, number: int, dictionary: int, data: int, rows: int, field: pa.Field) -> Struct:
    """The footer of a file that has this column alone, with so many bytes of pages that hold so many rows."""
    old = chunk_of(footer, group, number)
    chunk = {place: value for place, value in old.items() if place <= _CODEC} | {
        _CHUNK_ROWS: (I64, rows),
        _PLAIN_BYTES: old[_PLAIN_BYTES],
        _PACKED_BYTES: (I64, dictionary + data),
        _DATA_PLACE: (I64, len(MAGIC) + dictionary),
    }
    if dictionary:
        chunk[_DICTIONARY_PLACE] = I64, len(MAGIC)
    column: Struct = {_CHUNK_PLACE: (I64, 0), _CHUNK: (STRUCT, chunk)}
    only: Struct = {
        _GROUP_COLUMNS: (LIST, (STRUCT, [column])), _GROUP_BYTES: (I64, dictionary + data), _GROUP_ROWS: (I64, rows)
    }  # fmt: skip
    arrow = base64.b64encode(pa.schema([field]).serialize())
    return {place: value for place, value in footer.items() if place != _ORDERS} | {
        _SCHEMA: (LIST, (STRUCT, _schema(footer, field.name))),
        _ROWS: (I64, rows),
        _GROUPS: (LIST, (STRUCT, [only])),
        _PAIRS: (LIST, (STRUCT, [{1: (BINARY, b"ARROW:schema"), 2: (BINARY, arrow)}])),
    }


def _schema(footer: Struct, name: str) -> list[Struct]:
    """The root, and the column of this name beside its other children; it has none of its own."""
    root, *elements = structs(footer, _SCHEMA)
    inner = 0  # elements to come that lie within a column
    for element in elements:
        children = element.get(_CHILDREN, (I32, 0))[1]
        if not inner and not children and value(element, _NAME, BINARY) == name.encode():
            return [root | {_CHILDREN: (I32, 1)}, element]
        inner += children - (inner > 0)
    raise ThriftError(f"a column that the footer has not: column={name}")
