"""Cut a file of rows into parts, each the body of one push, in bounded memory; unpack packed files as a stream.

JSON lines are cut at line ends, CSV and TSV at the ends of records, with the header before each part. A JSON array is cut
between its elements, Parquet and Arrow between rows.

**Law** The parts, decoded one after the other, have the rows of the file decoded as one body, in its order. The same file and
the same size give the same parts, so a repeat under one producer pushes nothing twice. A change of the file leaves the parts
before it as they are.

The module loads no engine. So a regular expression finds the ends of CSV's records, by the rule of
`dbsp.io.formats.csv_scan`; a test compares the two.
"""

from __future__ import annotations

import codecs
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, BinaryIO, cast

from dbsp.coordinator.client.bodies import ARROW_FILE, PARQUET, as_stream, unreadable_file
from dbsp.coordinator.client.unpacking import ByteSource
from dbsp.coordinator.http.kinds import ARROW, CSV, TSV, kind_of
from dbsp.errors import DataError

PART_BYTES = 32 << 20
"""The approximate size of a part. The service accepts 256 MiB by default, but decodes each body as a whole."""
ROW_BYTES_MAX = 64 << 20
"""The longest row that a part may contain; the service refuses even shorter ones."""
BATCH_ROWS = 1 << 16
MARK = b"\xef\xbb\xbf"
DELIMITERS = {CSV: b",", TSV: b"\t"}
PACKED = frozenset({".gz", ".bz2", ".zst", ".lz4", ".xz"})
"""Endings of packed files' names, which follow the ending that names the kind."""


def text_kind(name: str) -> str | None:
    """Return the content type of a CSV or TSV file by its name, also if the file is compressed; None for other files.

    >>> text_kind("orders.csv.gz"), text_kind("orders.json")
    ('text/csv', None)
    """
    path = PurePath(name.lower())
    ending = PurePath(path.stem).suffix if path.suffix in PACKED else path.suffix
    return {".csv": CSV, ".tsv": TSV}.get(ending)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """The body of one push: its number from 0 on, and where it begins, such as "line 12"; `last` if the file ends with it."""

    number: int
    body: bytes
    content_type: str
    begins: str
    last: bool


@dataclass(frozen=True, slots=True)
class _Body:
    """A part whose successor is not known yet."""

    data: bytes
    content_type: str
    begins: str


def parts(file: BinaryIO, content_type: str | None = None, part_bytes: int = PART_BYTES) -> Iterator[FilePart]:
    r"""Yield the parts of a file, at least one; one part is read ahead.

    `content_type` is the type of texts whose content does not tell them apart: CSV and TSV.
    **Errors** `DataError` for a packed file, an Arrow file or a Parquet file that is damaged, and for a row without an end.

    **Example**

    >>> import io
    >>> [part.body for part in parts(io.BytesIO(b'a,b\n1,"x\ny"\n2,z\n'), "text/csv", 14)]
    [b'a,b\n1,"x\ny"\n', b'a,b\n2,z\n']
    """
    bodies = _bodies(file, content_type, part_bytes)
    held, number = next(bodies), 0
    for following in bodies:
        yield _part(held, number, last=False)
        held, number = following, number + 1
    yield _part(held, number, last=True)


def _part(body: _Body, number: int, *, last: bool) -> FilePart:
    return FilePart(number=number, body=body.data, content_type=body.content_type, begins=body.begins, last=last)


def _bodies(file: BinaryIO, content_type: str | None, part_bytes: int) -> Iterator[_Body]:
    """Yield the parts by the kind of the unpacked content."""
    source = ByteSource(file).unpacked()
    start = source.peek(len(ARROW_FILE))
    if content_type in DELIMITERS:
        return _records(source, str(content_type), part_bytes)
    if start.startswith((PARQUET, ARROW_FILE)) or kind_of(start) == ARROW:
        return _of_tables(_batches(source, start), part_bytes)
    return _json(source, content_type or kind_of(b""), part_bytes)


# --- texts ------------------------------------------------------------------------------------------------------------


class _Text:
    """The unread text of a stream: the bytes that are held, and the number of their first line."""

    def __init__(self, source: ByteSource) -> None:
        """Hold nothing yet."""
        self.source, self.held, self.line, self.ended = source, b"", 1, False

    def fill(self, size: int) -> None:
        """Hold at least `size` bytes, or all to the end."""
        pieces, have = [self.held], len(self.held)
        while have < size and not self.ended:
            piece = self.source.read(min(1 << 20, size - have))
            pieces.append(piece)
            have += len(piece)
            self.ended = not piece
        self.held = b"".join(pieces)

    def take(self, size: int) -> bytes:
        """Return the first `size` of the held bytes, and hold the rest."""
        found, self.held = self.held[:size], self.held[size:]
        self.line += found.count(b"\n")
        return found

    def take_rows(self, size: int, last_end: Callable[[bytes], int]) -> bytes:
        """Return whole rows of about `size` bytes; `last_end` returns the end of the last whole row of some bytes, or 0.

        **Errors** `DataError` if one row is longer than `ROW_BYTES_MAX`.
        """
        self.fill(size + 1)
        while not (self.ended and len(self.held) <= size):
            if end := last_end(self.held[:size]):
                return self.take(end)
            if size > ROW_BYTES_MAX:
                story = f"line={self.line} bytes_max={ROW_BYTES_MAX}"
                raise DataError(f"a row does not end: {story}", "look for a quote that is not closed")
            size *= 2
            self.fill(size + 1)
        return self.take(len(self.held))


def _records(source: ByteSource, kind: str, part_bytes: int) -> Iterator[_Body]:
    """Yield records of CSV or TSV, each time with the header before them."""
    text, last_end = _Text(source), _last_record_end(DELIMITERS[kind])
    text.fill(part_bytes + 1)
    if text.ended:
        yield _Body(text.take(len(text.held)), kind, "line 1")
        return
    header = text.take_rows(1, last_end)
    while not header.removeprefix(MARK).strip():  # empty lines before the header
        header = text.take_rows(1, last_end)
    text.fill(1)
    while text.held:
        begins = f"line {text.line}"
        yield _Body(header + text.take_rows(max(1, part_bytes - len(header)), last_end), kind, begins)
        text.fill(1)


def _last_record_end(delimiter: bytes) -> Callable[[bytes], int]:
    """Return a function that returns the end of the last whole record of some bytes, which begin with a record."""
    fresh = rb"(?<![^\r\n" + re.escape(delimiter) + rb"])"
    quoted = rb'"[^"]*+(?:""[^"]*+)*+'
    behind = rb"(?=[\r\n" + re.escape(delimiter) + rb"])"
    scan = re.compile(
        fresh + quoted + rb'"' + behind  # a value in quotes
        + rb"|" + fresh + quoted + rb'(?P<open>"?\Z)'  # one that may go on after these bytes
        + rb"|" + fresh + rb'"[^\r\n]*+'  # a wrong quote: the record ends with the line
        + rb"|(?P<end>\r\n|\n|\r(?=[^\n]))"
    )  # fmt: skip

    def last_end(data: bytes) -> int:
        if b'"' not in data and b"\r" not in data:
            return data.rfind(b"\n") + 1
        mark, end = len(MARK) if data.startswith(MARK) else 0, 0
        for found in scan.finditer(data[mark:]):
            if found.lastgroup == "open":
                break
            if found.lastgroup == "end":
                end = found.end() + mark
        return end

    return last_end


def _json(source: ByteSource, kind: str, part_bytes: int) -> Iterator[_Body]:
    """Yield JSON lines, or the elements of one array, each time as an array."""
    text = _Text(source)
    text.fill(part_bytes + 1)
    if text.ended:
        yield _Body(text.take(len(text.held)), kind, "line 1")
    elif text.held.removeprefix(MARK).lstrip()[:1] == b"[":
        yield from _elements(text, kind, part_bytes)
    else:
        while text.held:
            begins = f"line {text.line}"
            yield _Body(text.take_rows(part_bytes, lambda data: data.rfind(b"\n") + 1), kind, begins)
            text.fill(1)


def _elements(text: _Text, kind: str, part_bytes: int) -> Iterator[_Body]:
    """Yield the elements of a JSON array as arrays, each element as it is written."""
    found, size, first = list[str](), 0, 1
    for number, element in enumerate(_Array(text).elements(), 1):
        if found and size + len(element) > part_bytes:
            yield _Body(_array(found), kind, f"row {first}")
            found, size, first = [], 0, number
        found.append(element)
        size += len(element) + 1
    yield _Body(_array(found), kind, f"row {first}")


def _array(elements: Iterable[str]) -> bytes:
    return f"[{','.join(elements)}]".encode("utf-8", "surrogateescape")


class _Array:
    """A JSON array that is read element by element; only the rest of a piece of the text is held."""

    _SPACE = re.compile(r"[ \t\r\n]*")

    def __init__(self, text: _Text) -> None:
        """Hold nothing yet; bytes that are no UTF-8 pass as they are."""
        self._text, self._utf8 = text, codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._decoder = json.JSONDecoder(parse_int=str, parse_float=str)  # the values are not used
        self._held, self._at, self._count = "", 0, 0

    def elements(self) -> Iterator[str]:
        """Yield the text of each element. **Errors** `DataError` where the array is broken."""
        self._text.fill(len(MARK))
        if self._text.held.startswith(MARK):
            self._text.take(len(MARK))
        self._next_sign()
        self._at += 1
        if self._next_sign() != "]":
            yield self._element()
            while (sign := self._next_sign()) == ",":
                self._at += 1
                self._next_sign()
                yield self._element()
            if sign != "]":
                raise self._broken("there is no comma, and no end of the array, after it")
        self._at += 1
        if self._next_sign():
            raise self._broken("text follows the end of the array")

    def _element(self) -> str:
        """Return the text of the element that begins here."""
        piece = 1 << 20
        while (end := self._end()) is None or end == len(self._held):  # a number may go on
            if len(self._held) - self._at > ROW_BYTES_MAX or not self._read(piece):
                raise self._broken("the row after it is no JSON, or has no end")
            piece *= 2
        found, self._at = self._held[self._at : end], end
        self._count += 1
        return found

    def _end(self) -> int | None:
        try:
            return self._decoder.raw_decode(self._held, self._at)[1]
        except (ValueError, RecursionError):
            return None

    def _next_sign(self) -> str:
        """Go to the next character that is no space, and return it; empty at the end of the text."""
        while True:
            space = self._SPACE.match(self._held, self._at)
            self._at = self._at if space is None else space.end()
            if self._at < len(self._held):
                return self._held[self._at]
            if not self._read(1 << 20):
                return ""

    def _read(self, size: int) -> bool:
        """Hold more of the text; return False at its end."""
        self._text.fill(size)
        data = self._text.take(size)
        self._held, self._at = self._held[self._at :] + self._utf8.decode(data, final=not data), 0
        return bool(data)

    def _broken(self, why: str) -> DataError:
        return DataError(f"the JSON array is broken after row {self._count}: {why}", "correct it; or send JSON lines")


# --- tables -----------------------------------------------------------------------------------------------------------


def _batches(source: ByteSource, start: bytes) -> Iterator[Any]:
    """Yield the schema of an Arrow or Parquet file, then its record batches.

    **Errors** `DataError` for a file that is damaged.
    """
    import pyarrow as pa  # noqa: PLC0415 - programs that push texts do without it
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    kind = "Parquet" if start.startswith(PARQUET) else "Arrow IPC"
    try:
        if kind == "Arrow IPC" and not start.startswith(ARROW_FILE):
            with pa.ipc.open_stream(pa.PythonFile(source, mode="r")) as reader:
                yield reader.schema
                yield from reader
            return
        with tempfile.TemporaryFile() as whole:  # these kinds are read from their ends
            shutil.copyfileobj(cast("BinaryIO", source), whole)
            whole.seek(0)
            if kind == "Parquet":
                with pq.ParquetFile(whole) as file:
                    yield file.schema_arrow
                    yield from file.iter_batches(BATCH_ROWS)
                return
            with pa.ipc.open_file(whole) as opened:
                yield opened.schema
                yield from map(opened.get_batch, range(opened.num_record_batches))
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise unreadable_file(kind, error) from None


def _of_tables(batches: Iterator[Any], part_bytes: int) -> Iterator[_Body]:
    """Yield the rows of batches as Arrow streams of about `part_bytes`."""
    schema = next(batches)
    held, size, first, rows = list[Any](), 0, 1, 0
    for batch in batches:
        count = max(1, len(batch) * part_bytes // max(1, batch.nbytes))
        for begin in range(0, len(batch), count):
            piece = batch.slice(begin, count)
            if held and size + piece.nbytes > part_bytes:
                yield _Body(as_stream(schema, held), ARROW, f"row {first}")
                held, size, first = [], 0, first + rows
                rows = 0
            held.append(piece)
            size, rows = size + piece.nbytes, rows + len(piece)
    yield _Body(as_stream(schema, held), ARROW, f"row {first}")
