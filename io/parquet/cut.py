"""A Parquet file in memory, made of some pages of some columns, for pyarrow to read.

Such a file has the unchanged bytes of the columns' dictionaries and of the wanted pages. Its footer is the old one
with only these columns, one row group, and new positions. Decoding the pages is left to pyarrow.

**Law** The rows of the cut are the rows of the row group, in their order, with their types.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dbsp.io.parquet.int96 import COARSE, FINE, with_parts
from dbsp.io.parquet.pages import Stretch
from dbsp.io.parquet.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    Struct,
    ThriftError,
    ThriftReader,
    structs,
    value,
    write_struct,
)

MAGIC = b"PAR1"
TAIL_BYTES = 8
"""Bytes of the footer's length and of the magic after it."""
FOOTER_BYTES_MAX = 1 << 16
"""Longer footers, of very many columns or row groups, take too long to parse in Python."""
_SCHEMA, _ROWS, _GROUPS, _PAIRS, _ORDERS = 2, 3, 4, 5, 7
_CHILDREN, _NAME = 5, 4
_GROUP_COLUMNS, _GROUP_BYTES, _GROUP_ROWS = 1, 2, 3
_CHUNK_PLACE, _CHUNK = 2, 3
_CODEC, _CHUNK_ROWS, _PLAIN_BYTES, _PACKED_BYTES, _DATA_PLACE, _DICTIONARY_PLACE = 4, 5, 6, 7, 9, 11


def read_footer(file: int, size: int) -> Struct | None:
    """Read the footer of an open file of `size` bytes; None if it is encrypted or too long.

    **Errors** `ThriftError` if the bytes are no footer.
    """
    tail = os.pread(file, TAIL_BYTES, size - TAIL_BYTES)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or length > min(FOOTER_BYTES_MAX, size - TAIL_BYTES):
        return None
    return ThriftReader(os.pread(file, length, size - TAIL_BYTES - length)).struct()


def chunk_of(footer: Struct, group: int, number: int) -> Struct:
    """Return the footer's entry of a column in a row group."""
    columns = structs(structs(footer, _GROUPS)[group], _GROUP_COLUMNS)
    chunk: Struct = value(columns[number], _CHUNK, STRUCT)
    return chunk


def bytes_of(chunk: Struct) -> tuple[int, int]:
    """Return the position of a column's pages in their file, its dictionary first, and their size in bytes."""
    data = value(chunk, _DATA_PLACE, I64)
    _, dictionary = chunk.get(_DICTIONARY_PLACE, (I64, 0))
    return min(data, dictionary or data), value(chunk, _PACKED_BYTES, I64)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroupPiece:
    """Some pages of a column: its number in the file, the span of its dictionary, and the pages with their rows."""

    number: int
    field: pa.Field
    dictionary: tuple[int, int] | None
    stretch: Stretch


@dataclass(frozen=True, slots=True)
class _Laid:
    """A piece with its bytes, and its position in the new file."""

    piece: RowGroupPiece
    dictionary: bytes
    data: bytes
    at: int

    @property
    def end(self) -> int:
        return self.at + len(self.dictionary) + len(self.data)


def rows_of(
    file: int,
    footer: Struct,
    group: int,
    pieces: Sequence[RowGroupPiece],
    numbers: Collection[str],
    int96: Sequence[str],
) -> pa.Table:
    """Read pieces that hold the same rows of a row group; columns named in `numbers` are dictionary encoded.

    Columns named in `int96` are timestamps, which are read without loss.

    **Errors** `pyarrow.ArrowException` for unreadable pages, `ThriftError` for an unknown footer.
    """
    laid, at = list[_Laid](), len(MAGIC)
    for piece in pieces:
        start, end = piece.dictionary or (0, 0)
        each = _Laid(piece, _bytes(file, start, end), _bytes(file, piece.stretch.at, piece.stretch.end), at)
        laid.append(each)
        at = each.end
    ending = write_struct(_footer(footer, group, laid))
    parts = [part for each in laid for part in (each.dictionary, each.data)]
    whole = b"".join((MAGIC, *parts, ending, len(ending).to_bytes(4, "little"), MAGIC))
    few = [piece.field.name for piece in pieces if piece.field.name in numbers]

    def read(columns: list[str] | None, options: Mapping[str, Any]) -> pa.Table:
        with pq.ParquetFile(pa.BufferReader(whole), **options) as cut:
            return cut.read(columns, use_threads=False)

    found = read(None, {**COARSE, "read_dictionary": few or None})
    return with_parts(found, int96, lambda columns: read(columns, FINE))


def _bytes(file: int, start: int, end: int) -> bytes:
    found = os.pread(file, end - start, start)
    if len(found) != end - start:
        raise ThriftError("the file is shorter than its footer says")
    return found


def _footer(footer: Struct, group: int, laid: Sequence[_Laid]) -> Struct:
    """Return the footer of a file with only these columns."""
    stretch = laid[0].piece.stretch
    rows, size = stretch.last - stretch.first, laid[-1].end - len(MAGIC)
    columns = [_column(chunk_of(footer, group, each.piece.number), each, rows) for each in laid]
    only: Struct = {
        _GROUP_COLUMNS: (LIST, (STRUCT, columns)), _GROUP_BYTES: (I64, size), _GROUP_ROWS: (I64, rows)
    }  # fmt: skip
    arrow = base64.b64encode(pa.schema([each.piece.field for each in laid]).serialize())
    return {place: held for place, held in footer.items() if place != _ORDERS} | {
        _SCHEMA: (LIST, (STRUCT, _schema(footer, [each.piece.field.name for each in laid]))),
        _ROWS: (I64, rows),
        _GROUPS: (LIST, (STRUCT, [only])),
        _PAIRS: (LIST, (STRUCT, [{1: (BINARY, b"ARROW:schema"), 2: (BINARY, arrow)}])),
    }


def _column(old: Struct, laid: _Laid, rows: int) -> Struct:
    """Return the new footer's entry of a column: the old one with its new position and number of rows."""
    chunk = {place: held for place, held in old.items() if place <= _CODEC} | {
        _CHUNK_ROWS: (I64, rows),
        _PLAIN_BYTES: old[_PLAIN_BYTES],
        _PACKED_BYTES: (I64, laid.end - laid.at),
        _DATA_PLACE: (I64, laid.at + len(laid.dictionary)),
    }
    if laid.dictionary:
        chunk[_DICTIONARY_PLACE] = I64, laid.at
    return {_CHUNK_PLACE: (I64, 0), _CHUNK: (STRUCT, chunk)}


def _schema(footer: Struct, names: Sequence[str]) -> list[Struct]:
    """Return the schema's root, and the top-level columns of these names, which must have no children."""
    root, *elements = structs(footer, _SCHEMA)
    found: dict[str, Struct] = {}
    inner = 0  # following elements that are within a column
    for element in elements:
        children = element.get(_CHILDREN, (I32, 0))[1]
        if not inner and not children:
            found[value(element, _NAME, BINARY).decode()] = element
        inner += children - (inner > 0)
    if missing := [name for name in names if name not in found]:
        raise ThriftError(f"the footer does not have these columns: columns={missing}")
    return [root | {_CHILDREN: (I32, len(names))}, *(found[name] for name in names)]
