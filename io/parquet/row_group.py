"""A row group of a Parquet file; each worker reads the rows of its share of a step from it.

pyarrow reads a row group from its beginning, so every worker would decode all of it for a part. If the pages of the
wanted rows are few enough, only these pages are read. Otherwise the whole group is read once and kept.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dbsp.io.parquet.cut import RowGroupPiece, bytes_of, chunk_of, read_footer, rows_of
from dbsp.io.parquet.few_texts import few_texts
from dbsp.io.parquet.int96 import COARSE, FINE, int96_columns, with_parts
from dbsp.io.parquet.pages import ColumnPages, pages_of
from dbsp.io.parquet.thrift import Struct, ThriftError

ROWS_SAVED_MIN = 1 << 16
"""If pages would save fewer rows than this, the whole group is decoded: finding the pages takes longer."""
SURPLUS_MAX = 1.5
"""Pages are read alone if they hold at most this many times the wanted rows."""


@contextmanager
def open_parquet(path: Path, **options: Any) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file with its INT96 timestamps as microseconds.

    pyarrow takes a name that is no UTF-8 only as bytes.

    **Errors** `OSError`, `pyarrow.ArrowException` of the file.
    """
    with pa.OSFile(os.fsencode(path)) as opened, pq.ParquetFile(opened, **{**COARSE, **options}) as file:
        yield file


class RowGroup:
    """Some columns of a row group; threads may share it.

    **State** the positions of its pages, or all its rows, once they were read.
    """

    def __init__(self, path: Path, file: pq.ParquetFile, number: int, columns: Sequence[str]) -> None:
        """Store the metadata of an open file; no rows are read yet."""
        self._path, self._metadata, self._number, self._columns = path, file.metadata, number, tuple(columns)
        self.rows: int = file.metadata.row_group(number).num_rows
        self._numbers = frozenset(few_texts(file, number, columns))
        int96 = int96_columns(file)
        self._int96 = tuple(name for name in columns if name in int96)
        self._places = _flat(file, columns)
        self._lock = threading.Lock()
        self._pages: tuple[Struct, tuple[ColumnPages, ...]] | None = None
        self._looked = self._places is None
        self._whole: pa.Table | None = None

    def read(self, first: int, last: int) -> pa.Table:
        """Return the rows `first <= i < last`, at least one; texts with few distinct values are dictionary encoded.

        **Errors** `OSError`, `pyarrow.ArrowException` of the file.
        """
        with self._lock:
            found = self._cut(first, last) if self._whole is None else None
            if found is None:
                found = self._all().slice(first, last - first)
        return found

    def _all(self) -> pa.Table:
        """Return all rows of the group; the first call reads them."""
        if self._whole is None:
            numbers = sorted(self._numbers) or None
            with open_parquet(self._path, metadata=self._metadata, read_dictionary=numbers) as file:
                found = file.read_row_group(self._number, columns=list(self._columns), use_threads=False)
            self._whole = with_parts(found, self._int96, self._in_nanoseconds)
        return self._whole

    def _in_nanoseconds(self, columns: list[str]) -> pa.Table:
        with open_parquet(self._path, metadata=self._metadata, **FINE) as file:
            return file.read_row_group(self._number, columns=columns, use_threads=False)

    def _cut(self, first: int, last: int) -> pa.Table | None:
        """Read these rows from their pages alone; return None if it saves nothing, or the pages are unknown.

        A footer or a page that this reader does not understand is left to pyarrow, whose error names the fault.
        """
        if self.rows - (last - first) < ROWS_SAVED_MIN:
            return None
        with suppress(ThriftError), self._path.open("rb", buffering=0) as opened:
            known = self._known(opened.fileno())
            if known is not None:
                return self._out_of(opened.fileno(), *known, first, last)
        return None

    def _known(self, file: int) -> tuple[Struct, tuple[ColumnPages, ...]] | None:
        """Return the footer and the pages of each column; None if they cannot be determined."""
        if not self._looked and self._places is not None:
            self._looked = True
            footer = read_footer(file, os.fstat(file).st_size)
            if footer is not None:
                chunks = [bytes_of(chunk_of(footer, self._number, place)) for place in self._places]
                self._pages = footer, tuple(pages_of(file, at, size, self.rows) for at, size in chunks)
        return self._pages

    def _out_of(
        self, file: int, footer: Struct, pages: tuple[ColumnPages, ...], first: int, last: int
    ) -> pa.Table | None:
        """Read the rows from these pages; return None if the pages hold too many other rows.

        Columns whose pages hold the same rows are read together.
        """
        stretches = [each.over(first, last) for each in pages]
        held = sum(stretch.last - stretch.first for stretch in stretches)
        if held > SURPLUS_MAX * (last - first) * len(pages):
            return None
        fields = self._metadata.schema.to_arrow_schema()
        alike: dict[tuple[int, int], list[RowGroupPiece]] = {}
        for name, place, each, stretch in zip(self._columns, self._places or (), pages, stretches, strict=True):
            piece = RowGroupPiece(number=place, field=fields.field(name), dictionary=each.dictionary, stretch=stretch)
            alike.setdefault((stretch.first, stretch.last), []).append(piece)
        columns: dict[str, pa.ChunkedArray] = {}
        for (begin, _), pieces in alike.items():
            rows = rows_of(file, footer, self._number, pieces, self._numbers, self._int96).slice(
                first - begin, last - first
            )
            columns |= zip(rows.column_names, rows.columns, strict=True)
        return pa.table({name: columns[name] for name in self._columns})


def _flat(file: pq.ParquetFile, columns: Sequence[str]) -> tuple[int, ...] | None:
    """Return the numbers of these columns in the file if all are without lists and structs; otherwise None."""
    found = {}
    for number in range(file.metadata.num_columns):
        column = file.schema.column(number)
        if column.path == column.name and column.max_repetition_level == 0:
            found[column.path] = number
    names = file.schema_arrow.names
    plain = all(name in found and names.count(name) == 1 for name in columns)
    return tuple(found[name] for name in columns) if plain and columns else None
