"""The pages of a column in a row group: their positions and their rows.

Every page begins with a header that states its size and its number of values; in a column without lists, the values
are the rows. So a walk from header to header finds all pages without decoding them.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from dbsp.io.parquet.thrift import I32, STRUCT, Struct, ThriftError, ThriftReader, value

HEADER_BYTES = 1 << 8
"""Bytes read for a page's header. A longer header, with long statistics, is read again with more bytes."""
HEADER_BYTES_MAX = 1 << 20
_KIND, _PACKED_BYTES, _VALUES = 1, 3, 1
_DATA_OF = {0: 5, 3: 8}
"""The header's field with the number of values, by the kind of data page (versions 1 and 2)."""
_DICTIONARY_PAGE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A span of bytes of a file, and the rows of the pages in it."""

    at: int
    end: int
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPages:
    """The pages of one column.

    `dictionary` is the span of its dictionary page; `places` and `rows` are the starts of the pages and of their
    rows, then the ends.
    """

    dictionary: tuple[int, int] | None
    places: tuple[int, ...]
    rows: tuple[int, ...]

    def over(self, first: int, last: int) -> Stretch:
        """Return the pages that hold the rows `first <= i < last`, at least one.

        >>> pages = ColumnPages(dictionary=None, places=(4, 14, 24, 34), rows=(0, 100, 200, 250))
        >>> pages.over(120, 200)
        Stretch(at=14, end=24, first=100, last=200)
        """
        low, high = bisect_right(self.rows, first) - 1, bisect_left(self.rows, last)
        return Stretch(at=self.places[low], end=self.places[high], first=self.rows[low], last=self.rows[high])


def pages_of(file: int, at: int, size: int, rows: int) -> ColumnPages:
    """Find the pages of a column without lists that has `rows` rows, in `size` bytes at `at` of an open file.

    **Cost** one read per page, of its header. **Errors** `ThriftError` if the bytes are no pages, or pages of another
    number of rows.
    """
    end, found = at + size, 0
    dictionary: tuple[int, int] | None = None
    places, begins = list[int](), list[int]()
    while at < end and found < rows:
        header, behind = _header(file, at, end)
        behind += _size(header, _PACKED_BYTES)
        kind = value(header, _KIND, I32)
        if kind in _DATA_OF:
            places.append(at)
            begins.append(found)
            found += _size(value(header, _DATA_OF[kind], STRUCT), _VALUES)
        elif kind == _DICTIONARY_PAGE and not places:
            dictionary = at, behind
        else:
            raise ThriftError(f"a page of an unknown kind: kind={kind}")
        at = behind
    if found != rows or at > end:
        raise ThriftError(f"the pages do not have the rows of their row group: found={found} wanted={rows}")
    return ColumnPages(dictionary=dictionary, places=(*places, at), rows=(*begins, found))


def _size(fields: Struct, number: int) -> int:
    """Return a number of bytes or values; raise a `ThriftError` if it is negative."""
    found = value(fields, number, I32)
    if found < 0:
        raise ThriftError(f"a negative size: number={number} found={found}")
    return int(found)


def _header(file: int, at: int, end: int) -> tuple[Struct, int]:
    """Return the header of a page, and the position after it."""
    size = HEADER_BYTES
    while True:
        reader = ThriftReader(os.pread(file, min(size, end - at), at))
        try:
            return reader.struct(), at + reader.at
        except ThriftError:
            if size >= min(HEADER_BYTES_MAX, end - at):
                raise
            size <<= 4
