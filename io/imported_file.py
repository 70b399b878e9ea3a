"""Read imported files: the row count, whether the columns fit the table, and any stretch of rows as a push.

Invariant: a stretch of rows is the same at every read and however it is cut (invariant 10). To this end, a file is compared
with its first notes, and every row is decoded by itself. A read loads only what the stretch needs: the row groups it touches,
or its lines. The newest of them are cached, because steps take stretches one after the other.

- Parquet: the table's columns by name; others are ignored. A column of another type follows the rules of
  `dbsp.zset.given`, and a row with a value that does not fit is bad. An int8 column `__op` says 0 for insert, 1 for
  delete.
- JSON: one row a line, as `dbsp.io.formats.json_rows` reads them.
- CSV and TSV: as `dbsp.io.formats.csv_rows` reads them. The header names the table's columns, and a strict cast makes
  their values of text.

Files of lines may be compressed.
"""

from __future__ import annotations

import json
import os
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dbsp.algebra.table import Table
from dbsp.disk import shown
from dbsp.errors import DataError
from dbsp.io import texts
from dbsp.io.chunk import join_pushes
from dbsp.io.formats.arrow_rows import OPERATION, fitted
from dbsp.io.parquet.int96 import int96_columns
from dbsp.io.parquet.row_group import RowGroup, open_parquet
from dbsp.io.pushed import BadRow, Push
from dbsp.io.texts import DELIMITERS, LINES, Text, TooLargeError, UnfinishedError, kind_of, read_text, unfinished
from dbsp.logs.sizes import Sizes
from dbsp.zset.batch import Batch
from dbsp.zset.given import takes

PARQUET = ".parquet"
END_BYTES = 1 << 16
"""Bytes at a file's end that identify its content: Parquet's footer is there, with the positions of all pages."""
BUFFER_BYTES = 1 << 16
"""Bytes of a column that are read when a file is only opened; without a limit the whole column would be read."""
KEPT = 2
"""The number of row groups or scanned texts that a reader caches."""
SIZE_MAX = 1 << 40
"""The upper limit of a row group's size: a damaged footer may state any size."""
ONE_BAD_ROW = Sizes.of(0, [(1, 0)])


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedFile:
    """The notes of an imported file: its rows, its bytes, and a checksum of its end.

    A file with a `misfit` counts as one bad row. `sizes` are those of its unpacked rows, from 0 on, set only if the
    file was just examined. The log notes them with the places of the rows.
    """

    rows: int
    size: int
    end: int
    misfit: str = ""
    sizes: Sizes = field(default=ONE_BAD_ROW, compare=False)


def packed(imported: ImportedFile) -> bytes:
    """Return the notes as bytes."""
    noted = {"rows": imported.rows, "size": imported.size, "end": imported.end, "misfit": imported.misfit}
    return json.dumps(noted).encode()


def unpacked(data: bytes) -> ImportedFile:
    """Return the notes that these bytes contain."""
    return ImportedFile(**json.loads(data))


def examine_file(path: Path, table: Table) -> ImportedFile:
    """Return the notes of a new file; its ending says its kind.

    **Cost** its footer for Parquet; all of its bytes for the others, to count rows.
    **Errors** `UnfinishedError`; `OSError` of the disk.
    """
    size, end = _identity(path)
    kind = kind_of(path)
    if kind in LINES or kind in DELIMITERS:
        try:
            text = read_text(path, texts.UNPACKED_BYTES_MAX)
        except TooLargeError as error:
            return ImportedFile(rows=1, size=size, end=end, misfit=f"{error}; split it, or put it there unpacked")
        misfit = text.misfit(table)
        if misfit:
            return ImportedFile(rows=1, size=size, end=end, misfit=misfit)
        return ImportedFile(rows=text.count, size=size, end=end, sizes=text.sizes())
    if kind != PARQUET:
        known = ", ".join(sorted((PARQUET, *LINES, *DELIMITERS)))
        return ImportedFile(rows=1, size=size, end=end, misfit=f"files of this ending are not read: known={known}")
    try:
        with open_parquet(path, buffer_size=BUFFER_BYTES, pre_buffer=False) as file:
            misfit = _misfit(file.schema_arrow, table)
            if misfit:
                return ImportedFile(rows=1, size=size, end=end, misfit=misfit)
            rows = _row_count(file)
            _open_columns(file, table)
            return ImportedFile(rows=rows, size=size, end=end, sizes=_sizes(file, table))
    except (OSError, pa.ArrowException, UnicodeError, KeyError) as error:  # a footer may hold any bytes
        raise unfinished(error) from None


def _open_columns(file: pq.ParquetFile, table: Table) -> None:
    """Begin to read the table's columns of all row groups, up to their first page, to detect a damaged footer.

    **Errors** `OSError`, `pyarrow.ArrowException`.
    """
    columns = _leaves(file, table)
    for group in range(file.num_row_groups):
        next(file.reader.iter_batches(0, row_groups=[group], column_indices=columns, use_threads=False), None)


def _leaves(file: pq.ParquetFile, table: Table) -> list[int]:
    """Return the numbers of the stored columns that make up the table's columns and the operation."""
    wanted = {*table.schema.names, OPERATION}
    return [number for number, path in enumerate(file.reader.column_paths) if path[0] in wanted]


def _sizes(file: pq.ParquetFile, table: Table) -> Sizes:
    """Return the sizes of each row group's rows in the table's columns, as the footer says, before packing.

    Numbers count at least their size in memory, however often one repeats.
    """
    columns, numbers = _leaves(file, table), sum(_width(column.type) for column in table.schema)
    stretches = []
    for group in map(file.metadata.row_group, range(file.num_row_groups)):
        stored = sum(max(0, group.column(number).total_uncompressed_size) for number in columns)
        stretches.append((group.num_rows, min(max(stored, numbers * group.num_rows), SIZE_MAX)))
    return Sizes.of(0, [(rows, size) for rows, size in stretches if rows])


def _width(type_: pa.DataType) -> int:
    """Return the bytes of a value in memory; 0 for a type without a fixed width."""
    try:
        return int(type_.bit_width) // 8
    except ValueError:
        return 0


def _row_count(file: pq.ParquetFile) -> int:
    """Return the number of rows in the footer; `UnfinishedError` if it is not the sum of the row groups."""
    rows: int = file.metadata.num_rows
    groups = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
    if min(groups, default=0) < 0 or sum(groups) != rows:
        raise UnfinishedError(f"its footer is damaged: rows={rows} rows_of_groups={sum(groups)}")
    return rows


def unusable(path: Path, misfit: str) -> ImportedFile:
    """Return the notes of a file that cannot be used: one bad row instead."""
    size, end = _identity(path)
    return ImportedFile(rows=1, size=size, end=end, misfit=misfit)


def is_as_noted(path: Path, imported: ImportedFile) -> bool:
    """Return whether the file exists and equals the noted one."""
    try:
        return _identity(path) == (imported.size, imported.end)
    except FileNotFoundError:
        return False


class ImportedFileReader:
    """A reader of stretches of rows from the files of one table."""

    def __init__(self, table: Table) -> None:
        """Create the reader; it opens no file."""
        self._table = table
        self._kept: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._lock = threading.Lock()

    def read(
        self, path: Path, imported: ImportedFile, first: int, last: int, columns: frozenset[str] | None = None
    ) -> Push:
        """Return the rows `first <= i < last` of a file, good and bad; the good ones reduced to `columns`, if given.

        **Cost** Of Parquet, only these columns are read, and those that can make a row a bad one.

        **Errors** `DataError` names a file that is gone, or differs from the noted one.
        """
        try:
            if _identity(path) != (imported.size, imported.end):
                raise DataError(
                    f"a file of the input was changed after its rows were counted: file={shown(path)}",
                    "put the file back as it was; new rows belong in a new file",
                )
            if imported.misfit:
                bad = BadRow(index=0, reason=imported.misfit, payload=shown(path.name))
                empty = Batch.empty(some_columns(self._table, columns).schema)
                return Push(batch=empty, operations=np.empty(0, dtype=np.int8), bad=(bad,))
            if kind_of(path) != PARQUET:
                text: Text = self._keep((path, imported.end), partial(read_text, path))
                push = text.rows(path, self._table, first, last)
            else:
                push = self._rows(path, imported, first, last, columns)
                if columns is not None and push.bad:
                    push = self._rows(path, imported, first, last, None)  # bad rows are shown with all columns
            if columns is not None:
                push = replace(push, batch=push.batch.project(some_columns(self._table, columns).schema.names))
        except FileNotFoundError:
            hint = "put the file back: its rows are needed until a checkpoint that holds them is published"
            raise DataError(f"a file of the input is gone: file={shown(path)}", hint) from None
        except (OSError, pa.ArrowException, UnfinishedError) as error:
            raise DataError(f"a file of the input cannot be read: file={shown(path)} error={error}") from None
        if push.rows != last - first:
            raise DataError(
                f"a file of the input has other rows than were counted: file={shown(path)} first={first} last={last}"
            )
        return push

    def _rows(self, path: Path, imported: ImportedFile, first: int, last: int, columns: frozenset[str] | None) -> Push:
        pieces = []
        with open_parquet(path) as file:
            begin, table = 0, self._judged(file, columns)
            wanted = tuple(name for name in file.schema_arrow.names if name in table.schema or name == OPERATION)
            for number in range(file.num_row_groups):
                end = begin + file.metadata.row_group(number).num_rows
                low, high = max(first, begin), min(last, end)
                if low < high:
                    read = partial(RowGroup, path, file, number, wanted)
                    group: RowGroup = self._keep((path, imported.end, number, wanted), read)
                    pieces.append(fitted(group.read(low - begin, high - begin), table))
                begin = end
        return join_pushes(pieces, table.schema)

    def _judged(self, file: pq.ParquetFile, columns: frozenset[str] | None) -> Table:
        """Return the table with the columns to read: the given ones, and those in which a value can make its row bad."""
        if columns is None:
            return self._table
        found = file.schema_arrow
        there = [column for column in self._table.schema if column.name in found.names]
        unsure = {c.name for c in there if not c.nullable or found.field(c.name).type != c.type}
        some = columns | unsure | (int96_columns(file) & set(self._table.schema.names))
        any_one = {there[0].name}  # it gives the number of rows
        return some_columns(self._table, some if some & set(found.names) else some | any_one)

    def _keep(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        with self._lock:
            if key not in self._kept:
                self._kept[key] = make()
                if len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
            return self._kept[key]


def some_columns(table: Table, columns: frozenset[str] | None) -> Table:
    """Return the table reduced to these columns, in its order.

    Return it with all columns for None, or if the table replaces rows by key.
    """
    if columns is None or table.replaces:
        return table
    return replace(table, schema=table.schema.select(name for name in table.schema.names if name in columns))


def _misfit(found: pa.Schema, table: Table) -> str:
    """Return why no row of a file with these columns can be used; empty if it can."""
    names = found.names
    lacks_any = not any(column.name in names for column in table.schema)
    for column in table.schema:
        if column.name not in names and table.default(column.name) is not None and not lacks_any:
            continue
        if names.count(column.name) != 1:
            return f"column {column.name}: {'repeated' if column.name in names else 'missing'}"
        type_ = found.field(column.name).type
        if not takes(column.type, type_):
            return f"column {column.name}: expected {column.type}, found {type_}"
    if OPERATION in names and found.field(OPERATION).type != pa.int8():
        return f"column {OPERATION}: expected int8, found {found.field(OPERATION).type}"
    return ""


def _identity(path: Path) -> tuple[int, int]:
    """Return the size of a file and the checksum of its end."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - END_BYTES))
        return size, zlib.crc32(file.read())
