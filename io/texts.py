"""Scan text files, compressed or not: find where rows begin, and decode any stretch of rows as a push.

A JSON file has one row in each line (`dbsp.io.formats.json_rows`). CSV and TSV have one record for each row, and a
header (`dbsp.io.formats.csv_rows`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from dbsp.algebra.table import Table
from dbsp.errors import DataError
from dbsp.expr.cast import castable, convert
from dbsp.io.formats.arrow_rows import OPERATION, converted, fitted
from dbsp.io.formats.csv_rows import (
    decode_records,
    header_line,
    header_of,
    record_starts,
    text_of,
)
from dbsp.io.formats.json_rows import decode_json_lines
from dbsp.io.formats.lines import Bytes, Positions, behind_mark, starts_behind
from dbsp.io.formats.near_names import NAME_CHARS_MAX
from dbsp.io.pushed import BadRow, Push, PushBounds
from dbsp.logs.sizes import Sizes
from dbsp.settings import similar
from dbsp.zset.batch import Batch
from dbsp.zset.schema import BINARY, DURATION, STRING, Column
from dbsp.zset.span_texts import spans_of_texts

LINES = frozenset({".json", ".jsonl", ".ndjson"})
DELIMITERS = {".csv": ",", ".tsv": "\t"}
PACKED = frozenset({".bz2", ".gz", ".lz4", ".zst"})
STRETCH_BYTES = 1 << 20
"""Lines are measured together in stretches of about this many bytes."""
UNPACKED_BYTES_MAX = 1 << 30
"""Limit of a compressed file's content.

The content is kept in memory while rows are read, and a few kilobytes may expand to any size.
"""
UNPACKED_PIECE_BYTES = 1 << 24
_BLANKS = np.frombuffer(b" \t\n\r\x0b\x0c", dtype=np.uint8)


class TooLargeError(Exception):
    """A compressed file that exceeds its bound when it is decompressed."""


class UnfinishedError(Exception):
    """A file that is not whole: it is still being written, or its name has the wrong ending."""


def unfinished(error: Exception) -> UnfinishedError:
    """Return the error for a file that pyarrow cannot use; raise an error of the disk, which has a number, as it is."""
    if isinstance(error, OSError) and error.errno is not None:
        raise error
    return UnfinishedError(" ".join(str(error).split()))


def kind_of(path: Path) -> str:
    """Return the ending that names a file's kind; for packed text, the ending before the packing."""
    inner = Path(path.stem).suffix
    return inner if path.suffix in PACKED and (inner in LINES or inner in DELIMITERS) else path.suffix


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A scanned file of text lines.

    `starts` are the byte offsets of its rows, and its end. `header` has the names of a header line; None without one.
    `unpacked` has the content of a compressed file; None for a plain one.
    """

    starts: Positions
    header: tuple[str, ...] | None
    delimiter: str
    unpacked: bytes | None

    @property
    def count(self) -> int:
        """Return the number of rows."""
        return len(self.starts) - 1

    def sizes(self) -> Sizes:
        """Return the sizes of the rows, from 0 on, measured over some lines together."""
        marks = np.arange(self.starts[0], self.starts[-1], STRETCH_BYTES)
        rows = np.unique(np.append(np.searchsorted(self.starts, marks), self.count))
        return Sizes.of(0, zip(np.diff(rows).tolist(), np.diff(self.starts[rows]).tolist(), strict=True))

    def misfit(self, table: Table) -> str:
        """Return why no row of the file can be used; empty if rows can be used."""
        if self.header is None:
            return ""
        if not self.header:
            return "no header: the first record must name the columns"
        if reason := _misnamed(self.header, table):
            return reason
        for column in table.schema:
            if column.name in self.header and not _has_text_form(column.type):
                return f"column {column.name}: {column.type} has no text form, send it as JSON or Parquet"
        return ""

    def rows(self, path: Path, table: Table, first: int, last: int) -> Push:
        """Return the rows `first <= i < last`, good and bad."""
        begin, end = int(self.starts[first]), int(self.starts[last])
        if self.unpacked is not None:
            data = self.unpacked[begin:end]
        else:
            with path.open("rb") as file:
                file.seek(begin)
                data = file.read(end - begin)
        if self.header is None:
            return decode_json_lines(data, table)
        return self._records(data, self.starts[first : last + 1] - begin, table)

    def _records(self, data: bytes, starts: Positions, table: Table) -> Push:
        """Return whole records as a push; a bad one is shown as received."""
        header = self.header or ()
        wanted = [name for name in (*table.schema.names, OPERATION) if name in header]
        found = decode_records(data, starts, header, wanted, self.delimiter)
        columns = [_text_column(found.values.column(name), name, table) for name in wanted]
        push = fitted(pa.table(columns, names=wanted), table, _of_text)
        numbers = found.numbers[[row.index for row in push.bad]].tolist()
        unfit = (
            replace(row, index=number, payload=text_of(data[starts[number] : starts[number + 1]]))
            for row, number in zip(push.bad, numbers, strict=True)
        )
        bad: list[BadRow] = sorted((*found.bad, *unfit), key=lambda row: row.index)
        if not bad:
            return push
        line = header_line(header, self.delimiter)
        return replace(push, bad=tuple(replace(row, header=line) for row in bad))


def _has_text_form(type_: pa.DataType) -> bool:
    return type_ in (BINARY, DURATION) or castable(STRING, type_)


def _misnamed(names: Sequence[str], table: Table) -> str:
    """Return why columns of these names are not those of a table; empty if they are.

    Columns that may be null or have a default can be absent, as in JSON: they may be newer than the file. They cannot
    be absent if the file has unknown names, which may be misspelt.
    """
    others = [name for name in names if name not in table.schema and name != OPERATION]
    is_strict = bool(others) or not any(name in table.schema for name in names)
    for column in table.schema:
        if names.count(column.name) > 1:
            return f"column {column.name}: repeated"
        if column.name not in names and (is_strict or not table.may_lack(column)):
            return f"column {column.name}: missing" + _others_told(others, table)
    return ""


def _others_told(others: Sequence[str], table: Table) -> str:
    """Return the names of a header that the table does not have, with the one that is meant or the sign between them."""
    if not others:
        return ""
    sign = next((sign for sign in (";", "|", "\t") if sign in others[0]), None)
    hint = (
        f"values are separated by `,`, not by `{sign}`"
        if sign
        else similar(others[0][:NAME_CHARS_MAX], table.schema.names)
    )
    return f"; not in the table: {', '.join(others)}" + (f"; {hint}" if hint else "")


def read_text(path: Path, bytes_max: int | None = None) -> Text:
    """Scan a file; `TooLargeError` as soon as a packed one exceeds `bytes_max`.

    **Cost** all of its bytes, some of them several times; the unpacked bytes of a packed file stay in memory.
    **Errors** `UnfinishedError` if a packed file has no end yet; `OSError` of the disk.
    """
    kind, unpacked = kind_of(path), _unpacked(path, bytes_max)
    data = np.fromfile(path, np.uint8) if unpacked is None else np.frombuffer(unpacked, np.uint8)
    if kind in LINES:
        return Text(starts=_line_starts(data), header=None, delimiter="", unpacked=unpacked)
    return _records_of(data, DELIMITERS[kind], unpacked)


def _records_of(data: Bytes, delimiter: str, unpacked: bytes | None) -> Text:
    """Scan records with a header."""
    starts = record_starts(data, delimiter)
    header = header_of(data[starts[0] : starts[1]].tobytes(), delimiter) if len(starts) > 1 else []
    return Text(starts=starts[1:], header=tuple(header), delimiter=delimiter, unpacked=unpacked)


def decode_csv(data: bytes, table: Table, bounds: PushBounds, delimiter: str = ",") -> Push:
    """Decode a pushed text of records with a header, good rows and bad ones.

    **Errors** `DataError` for a header that does not fit the table; `CapacityError` if the text would exceed the bounds.
    """
    text = _records_of(np.frombuffer(data, np.uint8), delimiter, data)
    if not text.header:
        return Push(batch=Batch.empty(table.schema), operations=np.zeros(0, np.int8))
    if reason := text.misfit(table):
        raise DataError(
            f"the text does not fit the table: table={table.name} {reason}",
            "let its first line name the table's columns",
        )
    bounds.refuse_size(text.count, len(data))
    return text.rows(Path(), table, 0, text.count)


def decode_record(record: str, header: str, table: Table) -> Push:
    """Decode a record of CSV or TSV with its header line, as it was pushed; the header tells the two apart.

    **Errors** `DataError` if the header does not fit the table any more.
    """
    delimiter = delimiter_of(header)
    return decode_csv(f"{header}\n{record}".encode(), table, PushBounds(), delimiter)


def delimiter_of(header: str) -> str:
    """Return the delimiter of a header line; a comma where it has none."""
    return "\t" if "\t" in header else ","


def _unpacked(path: Path, bytes_max: int | None) -> bytes | None:
    """Return the unpacked bytes of a packed file; None for another."""
    if path.suffix not in PACKED:
        return None
    pieces, size = [], 0
    for piece in _pieces(path):
        size += len(piece)
        if bytes_max is not None and size > bytes_max:
            raise TooLargeError(f"it is larger than a compressed file may be: bytes_max={bytes_max} unpacked")
        pieces.append(piece)
    return b"".join(pieces)


def _pieces(path: Path) -> Iterator[bytes]:
    """Yield the unpacked bytes of a packed file, piece by piece."""
    with pa.OSFile(str(path)) as file:
        if not file.size():  # pyarrow would read an empty packed text
            raise UnfinishedError("it has no bytes")
        try:
            with pa.CompressedInputStream(file, pa.Codec.detect(str(path)).name) as stream:
                while piece := stream.read(UNPACKED_PIECE_BYTES):
                    yield bytes(piece)
        except OSError as error:
            raise unfinished(error) from None


def _text_column(values: pa.ChunkedArray, name: str, table: Table) -> pa.ChunkedArray:
    """Return a column of bytes; an empty value is the empty text in a column without nulls, and an operation is a number."""
    if name == OPERATION:
        pieces = [piece for chunk in values.chunks for piece, _ in converted(chunk, pa.int8(), _of_text)]
        return pa.chunked_array(pieces, pa.int8())
    column: Column = table.schema[name]
    return values.fill_null(b"") if column.type == STRING and not column.nullable else values


def _of_text(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Convert bytes as a strict cast converts text."""
    try:
        if wanted == DURATION:
            return spans_of_texts(values)
        return convert(values.cast(STRING), wanted)
    except (ArithmeticError, UnicodeError) as error:
        raise pa.ArrowInvalid(str(error)) from None


def _line_starts(data: Bytes) -> Positions:
    """Return the offsets of the lines that are not blank, after a byte order mark, and the end of the file."""
    begins = starts_behind(behind_mark(data), np.flatnonzero(data == ord("\n")), len(data))
    if len(begins):
        begins = begins[np.logical_or.reduceat(~np.isin(data, _BLANKS), begins)]
    return np.append(begins, len(data))
