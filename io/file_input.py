"""Files as the input log: each file in `<folder>/<table>` is read once, in the order in which the log found them.

A file is found when its name is new. Then its rows get offsets, which are noted in one LMDB file in the pipeline's
data folder. Worker processes read there where rows are. The files stay in place and belong to their owner.

Invariants:
1. A file is on disk when its rows get offsets, and what is noted of it never changes. So a range is the same at every
   read (invariants 7, 10).
2. A file that was changed or is gone is an error that names it, and never gives other rows.
3. A file that cannot be used is one bad row, and a dead letter.
4. Names that begin with `.` or `_`, and folders, are ignored.

A file must be whole when it gets its name: write it under another name, then rename it. A Parquet or packed file may
be without its end, or damaged. Then the log waits as long as the file may still be written: until `PATIENCE_S` after
its last change. The time of that change is the file's own, or the one at which this process saw it. After that, the
file cannot be used.

**State** Per file its name, rows, size and a checksum, for ever. If it were dropped, a folder that seems empty for a
while would make old files new ones. The places of its rows are kept until no version needs them. Source:
docs/concepts/logs.md.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from dbsp.algebra.table import Table
from dbsp.disk import shown, sync_path
from dbsp.errors import ConfigError, DataError, UnavailableError
from dbsp.io import forms
from dbsp.io.changes import changes_of
from dbsp.io.chunk import join_pushes
from dbsp.io.imported_file import (
    ImportedFile,
    ImportedFileReader,
    examine_file,
    packed,
    some_columns,
    unpacked,
    unusable,
)
from dbsp.io.local_input import LocalInputLog
from dbsp.io.spans import Place, check_range, record_key, records, table_prefix
from dbsp.io.texts import UnfinishedError
from dbsp.io.waits import Waits
from dbsp.logs import Changes, Range, Waiting
from dbsp.logs.sizes import Sizes
from dbsp.stored.levels import NEWEST
from dbsp.zset.batch import Batch

FORM = forms.FILE_INPUT
PARTS, SIZES = forms.FILE_INPUT_PARTS, "sizes"
LOOK_EVERY_S = 0.5
FILES_PER_LOOK = 1_000
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePiece:
    """The rows `row <= i < row + rows` of a file, which have the offsets from `first` on."""

    name: str
    first: int
    row: int
    rows: int


class FileInputLog(LocalInputLog):
    """The input log of one pipeline over a folder of files; see `dbsp.logs.InputLog`."""

    def __init__(
        self,
        directory: Path | str,
        tables: Sequence[Table],
        *,
        folder: Path | str,
        partitions: int = 1,
        create: bool = False,
        look_every_s: float = LOOK_EVERY_S,
        patience_s: float = PATIENCE_S,
        level: int = NEWEST,
    ) -> None:
        """Open the notes in `directory`; `create` makes them if absent, and the tables' folders too.

        A file's rows are split among `partitions`, each a stretch. Those of a table with a primary key stay in one
        partition, because the order of their changes counts.
        """
        self._folder, self._given = Path(folder), partitions
        self._look_every_s, self._patience_s = look_every_s, patience_s
        self._readers = {table.name: ImportedFileReader(table) for table in tables}
        self._waits = Waits()
        self._unfinished: dict[Path, tuple[tuple[int, int], float]] = {}
        self._looking, self._looked_at = threading.Lock(), -look_every_s
        if create:
            make_folders(self._folder, tables)
        super().__init__(directory, tables, form=FORM, names=PARTS, later=(SIZES,), create=create, level=level)
        with self._env.read() as txn:
            self._known = {name: set(self._names(txn, name)) for name in self._tables}
        places = self._spans.places()
        self._partitions = {
            name: max([self._shares(name), *(partition + 1 for table, partition in places if table == name)])
            for name in self._tables
        }

    def _shares(self, table: str) -> int:
        return 1 if self._tables[table].primary_key else self._given

    def ends(self) -> Mapping[tuple[str, int], int]:
        """Return the offset after the last row, per (table, partition), after a look for new files.

        Looks are at least `look_every_s` apart. The result leaves out a table that waits, because its folder or a file
        in it cannot be read now.
        """
        with self._looking:
            if time.monotonic() - self._looked_at >= self._look_every_s:
                self._look()
                self._looked_at = time.monotonic()
        return {place: end for place, end in super().ends().items() if not self._waits.waits(place[0])}

    def waits(self) -> Sequence[Waiting]:
        """Return the tables that wait; see `dbsp.logs.TellsWaits`."""
        return self._waits.all()

    def hold(self, table: str, reason: str) -> None:
        """Let a table wait until the next look."""
        self._waits.note(table, f"folder={self._folder / table}", reason)

    def settled_s(self) -> Mapping[Place, float | None]:
        """Return when the folders were last read; None for a table with a file that is still being written."""
        unfinished = {path.parent.name for path in list(self._unfinished)}
        return {
            (table, partition): None if table in unfinished else self._looked_at
            for table, count in self._partitions.items()
            for partition in range(count)
        }

    # --- finding files ------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Note the new files of all tables: up to `FILES_PER_LOOK` of each, by name."""
        imported = {}
        for name, table in self._tables.items():
            try:
                fresh = sorted(set(self._listed(name)) - self._known[name])[:FILES_PER_LOOK]
                imported[name] = [(each, found) for each in fresh if (found := self._examined(table, each)) is not None]
            except UnavailableError as error:
                self.hold(name, str(error))
            else:
                self._waits.clear(name)
        if any(imported.values()):
            self._env.add(SIZES)
            self._env.write(partial(self._note_all, imported=imported))
        for name, files in imported.items():
            self._known[name].update(each for each, _ in files)
            for each, _ in files:
                self._unfinished.pop(self._folder / name / each, None)

    def _listed(self, table: str) -> Iterator[str]:
        try:
            with os.scandir(self._folder / table) as entries:
                for entry in entries:
                    if entry.name[0] not in "._" and entry.is_file():
                        yield entry.name
        except OSError as error:
            folder = self._folder / table
            hint = "make the folder, or correct its permissions"
            raise UnavailableError(
                f"a folder of input files cannot be read: folder={folder} error={error.strerror}", hint
            ) from None

    def _examined(self, table: Table, name: str) -> ImportedFile | None:
        """Return what to note of a file; None if it is still being written, or is gone again."""
        path = self._folder / table.name / name
        try:
            sync_path(path)
            try:
                return examine_file(path, table)
            except UnfinishedError as error:
                if self._may_be_written(path):
                    return None
                return unusable(path, f"not a whole file of its ending: {error}")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UnavailableError(
                f"a file of the input cannot be read: file={shown(path)} error={error.strerror}",
                "repair it, or remove it",
            ) from None

    def _may_be_written(self, path: Path) -> bool:
        """Return whether a file was changed within `patience_s`.

        Both its own time and the time at which this process saw the change must be recent, since a file's clock may be
        wrong.
        """
        found, now = path.stat(), time.monotonic()
        seen = (found.st_size, found.st_mtime_ns)
        before, since = self._unfinished.get(path, (seen, now))
        if before != seen:
            since = now
        self._unfinished[path] = seen, since
        return time.time() - found.st_mtime < self._patience_s and now - since < self._patience_s

    def _note_all(self, txn: Any, imported: Mapping[str, Sequence[tuple[str, ImportedFile]]]) -> None:
        for table, files in imported.items():
            self._note(txn, table, files)

    def _note(self, txn: Any, table: str, files: Sequence[tuple[str, ImportedFile]]) -> None:
        """Give the rows of new files their offsets; skip a file that another process has noted meanwhile."""
        count = self._shares(table)
        for name, imported in files:
            if not txn.put(file_key(table, name), packed(imported), db=self._env.db("files"), overwrite=False):
                continue
            cuts = [imported.rows * slot // count for slot in range(count + 1)]
            for partition, (row, end) in enumerate(pairwise(cuts)):
                span, part = self._spans.get(txn, table, partition), imported.sizes.cut(row, end)
                if rows := end - row:
                    key = record_key(table, partition, span.end)
                    piece = json.dumps({"name": name, "row": row, "rows": rows}).encode()
                    txn.put(key, piece, db=self._env.db("pieces"))
                    txn.put(key, json.dumps(part.stretches()).encode(), db=self._env.db(SIZES))
                self._spans.put(txn, table, partition, span.longer(rows, part.between(row, end)))

    # --- reading ------------------------------------------------------------------------------------------------

    def read(self, range_: Range, step: int) -> Sequence[Changes]:
        """Return the changes of one range in one piece, with its bad rows as dead letters of `step`.

        **Cost** reads the row groups, or the lines, that the range touches.
        **Errors** `DataError` names the offsets if part of the range is trimmed or missing, or the file that was
        changed.
        """
        return self._read(range_, step, None)

    def read_columns(self, range_: Range, step: int, columns: frozenset[str]) -> Sequence[Changes]:
        """Return the changes as `read` does, reduced to these columns; the errors are the same.

        See `dbsp.logs.ReadsColumns`.
        """
        whole = partial(self._whole, range_, step)
        return [replace(change, whole=whole) for change in self._read(range_, step, columns)]

    def _whole(self, range_: Range, step: int) -> Batch:
        """Return the rows of one range with all columns."""
        (change,) = self.read(range_, step)
        return change.batch

    def _read(self, range_: Range, step: int, columns: frozenset[str] | None) -> Sequence[Changes]:
        """Read a range as `read` does; with `columns`, only these."""
        table = self._table(range_.table)
        with self._env.read() as txn:
            check_range(range_, self._spans.get(txn, range_.table, range_.partition))
            pieces = list(self._pieces(txn, range_))
            noted = {piece.name: self._noted(txn, range_.table, piece.name) for piece in pieces}
            stored = sum(self._bytes_within(txn, range_, piece) for piece in pieces)
        pushes, wanted = [], range_.first
        for piece in pieces:
            low, high = wanted - piece.first, min(piece.rows, range_.last - piece.first)
            if low < 0 or low >= high:
                break
            path, reader = self._folder / table.name / piece.name, self._readers[table.name]
            pushes.append(reader.read(path, noted[piece.name], piece.row + low, piece.row + high, columns))
            wanted = piece.first + high
        if wanted != range_.last:
            place = f"table={range_.table} partition={range_.partition}"
            raise DataError(f"input rows are missing: {place} first={wanted} last={range_.last}")
        schema = table.schema if columns is None else some_columns(table, columns).schema
        if not pushes:
            return []
        arrived_s = _arrived_s(self._folder / table.name / pieces[0].name)
        return [changes_of(join_pushes(pushes, schema), range_, step, stored_bytes=stored, arrived_s=arrived_s)]

    def _bytes_within(self, txn: Any, range_: Range, piece: FilePiece) -> int:
        """Return the bytes of those rows of a piece that are in the range."""
        key = record_key(range_.table, range_.partition, piece.first)
        sizes = Sizes.of(piece.first, self._stretches(txn, key, range_.table, piece))
        return sizes.between(range_.first, range_.last)

    def _pieces(self, txn: Any, range_: Range) -> Iterator[FilePiece]:
        """Yield the pieces that contain the range, from the one with its first row on."""
        for first, value in records(txn, self._env.db("pieces"), range_):
            yield piece_of(first, value)

    def _kept(self, txn: Any, range_: Range) -> Iterator[tuple[int, int]]:
        """Yield the first offset and the bytes of each row group, or of some lines together.

        Files found before these sizes were noted count as a whole.
        """
        for piece in self._pieces(txn, range_):
            at = piece.first
            for rows, size in self._stretches(txn, record_key(range_.table, range_.partition, at), range_.table, piece):
                yield at, size
                at += rows

    def _stretches(self, txn: Any, key: bytes, table: str, piece: FilePiece) -> Sequence[tuple[int, int]]:
        """Return the rows and bytes that are noted for a piece."""
        found = txn.get(key, db=self._env.db(SIZES)) if self._env.has(SIZES) else None
        if found is not None:
            return [(rows, size) for rows, size in json.loads(bytes(found))]
        noted = self._noted(txn, table, piece.name)
        return [(piece.rows, 0 if noted.misfit else noted.size * piece.rows // noted.rows)]

    def _trim(self, txn: Any, place: Place, floor: int) -> None:
        """Delete the notes of pieces below the first readable offset; the files stay, and their names stay known."""
        table, partition = place
        below = Range(table=table, partition=partition, first=0, last=floor)
        for piece in list(self._pieces(txn, below)):
            if piece.first + piece.rows <= floor:
                key = record_key(table, partition, piece.first)
                txn.delete(key, db=self._env.db("pieces"))
                if self._env.has(SIZES):
                    txn.delete(key, db=self._env.db(SIZES))

    # --- what is noted ------------------------------------------------------------------------------------------

    def _names(self, txn: Any, table: str) -> Iterator[str]:
        prefix = table_prefix(table)
        cursor = txn.cursor(db=self._env.db("files"))
        found = cursor.set_range(prefix)
        while found and cursor.key().startswith(prefix):
            yield os.fsdecode(cursor.key()[len(prefix) :])
            found = cursor.next()

    def _noted(self, txn: Any, table: str, name: str) -> ImportedFile:
        found = txn.get(file_key(table, name), db=self._env.db("files"))
        if found is None:
            raise DataError(f"a file of the input is not noted: table={table} file={shown(name)}")
        return unpacked(bytes(found))


def _arrived_s(path: Path) -> float | None:
    """Return when a file got its name, in seconds since 1970; None if it is gone again.

    This is the time of the last change of its inode, which a rename sets. So a file counts from its rename into the
    folder, not from when it was written elsewhere.
    """
    try:
        return path.stat().st_ctime
    except OSError:
        return None


def make_folders(folder: Path, tables: Sequence[Table]) -> None:
    """Create the missing folders of the tables' files; `ConfigError` if that fails."""
    for table in tables:
        if not table.name or "/" in table.name or table.name.startswith("."):
            raise ConfigError(f"a table of this name cannot be a folder: table={table.name!r}", "rename the table")
        try:
            (folder / table.name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"the folder of a table's files cannot be made: folder={folder / table.name} error={error.strerror}",
                "name another `directory` in [input], or make it",
            ) from None


def piece_of(first: int, value: bytes) -> FilePiece:
    """Return the piece that begins at an offset."""
    return FilePiece(first=first, **json.loads(bytes(value)))


def file_key(table: str, name: str) -> bytes:
    """Return the key under which a file is noted."""
    return table_prefix(table) + os.fsencode(name)


def file_of(key: bytes) -> tuple[str, str]:
    """Return the table and the name of a file from its key."""
    table, _, name = key.partition(b"\0")
    return table.decode(), os.fsdecode(name)
