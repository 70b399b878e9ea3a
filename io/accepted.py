"""Accept an output of a replayed step that differs from the written one; a later step writes the difference.

Rows that were written never change, because consumers have read them. So the difference is owed, and the next step
that is written includes it. For each step the log keeps the adjustment: the difference between its accepted content
and its rows.

**Law** content(step) = rows(step) + adjustment(step), per view. All rows plus all that is owed equal all contents.

Adjustments and owed rows are stored with the rows of the views, under names that no view can have. So a trim drops
them with their steps.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from dbsp.io.output_part import encode_part, to_table
from dbsp.zset.batch import Batch, consolidate
from dbsp.zset.schema import schema_of

_ADJUSTMENT, OWED = b"\2adjustment ", b"\2owed "
_PLACE = struct.Struct(">QI")
_NO_STEP = (1 << 64) - 1

Pack = Callable[[bytes], bytes]
Unpack = Callable[[bytes], pa.Table]


class Accepted:
    """Adjustments and owed rows in the file of an output log; `pack` and `unpack` are the log's own record format."""

    def __init__(self, txn: Any, db: Any, pack: Pack, unpack: Unpack) -> None:
        """Bind to one transaction."""
        self._txn, self._db, self._pack, self._unpack = txn, db, pack, unpack

    def differing(self, step: int, parts: Mapping[str, Batch]) -> dict[str, Batch]:
        """Return, per view, the difference between these parts and the step's content; equal views are left out."""
        found = {}
        for view in sorted({*parts, *self._views()}):
            tables = [to_table(parts[view])] if view in parts else []
            tables += [_negated(table) for table in self._content(view, step)]
            change = _summed(tables)
            if change is not None:
                found[view] = change
        return found

    def accept(self, step: int, parts: Mapping[str, Batch]) -> None:
        """Replace the step's content by these parts, and add the difference to the rows that a later step emits."""
        for view, change in self.differing(step, parts).items():
            self._add(_ADJUSTMENT + view.encode(), step, change)
            self._add(OWED + view.encode(), _NO_STEP, change)

    def pay(self, step: int) -> None:
        """Write the owed rows with this step, whose own rows are written already."""
        cursor = self._txn.cursor(db=self._db)
        if not cursor.set_range(OWED) or not bytes(cursor.key()).startswith(OWED):
            return
        for view in [name.removeprefix(OWED) for name in self._names() if name.startswith(OWED)]:
            owed = _summed(list(self._tables(OWED + view, _NO_STEP)))
            self._delete(OWED + view, _NO_STEP)
            if owed is not None:
                self._add(view, step, owed)
                self._add(_ADJUSTMENT + view, step, _batch(_negated(to_table(owed))))

    def _content(self, view: str, step: int) -> Iterator[pa.Table]:
        name = view.encode()
        yield from self._tables(name, step)
        yield from self._tables(_ADJUSTMENT + name, step)

    def _views(self) -> list[str]:
        return [name.decode() for name in self._names() if not name.startswith(b"\2")]

    def _names(self) -> list[bytes]:
        cursor, found = self._txn.cursor(db=self._db), list[bytes]()
        there = cursor.first()
        while there:
            found.append(cursor.key()[: cursor.key().index(b"\0")])
            there = cursor.set_range(found[-1] + b"\1")
        return found

    def _tables(self, name: bytes, step: int) -> Iterator[pa.Table]:
        for key in self._keys(name, step):
            yield self._unpack(self._txn.get(key, db=self._db))

    def _keys(self, name: bytes, step: int) -> list[bytes]:
        prefix, found = name + b"\0" + _PLACE.pack(step, 0)[:8], list[bytes]()
        cursor = self._txn.cursor(db=self._db)
        there = cursor.set_range(prefix)
        while there and bytes(cursor.key()).startswith(prefix):
            found.append(bytes(cursor.key()))
            there = cursor.next()
        return found

    def _add(self, name: bytes, step: int, rows: Batch) -> None:
        first = len(self._keys(name, step))
        for number, data in enumerate(encode_part(rows), first):
            self._txn.put(name + b"\0" + _PLACE.pack(step, number), self._pack(data), db=self._db)

    def _delete(self, name: bytes, step: int) -> None:
        for key in self._keys(name, step):
            self._txn.delete(key, db=self._db)


def _weight_of(table: pa.Table) -> str:
    return "__weight" if "__weight" in table.column_names else "weight"


def _negated(table: pa.Table) -> pa.Table:
    name = _weight_of(table)
    at = table.column_names.index(name)
    return table.set_column(at, table.schema.field(name), pa.array(-table.column(name).to_numpy()))


def _batch(table: pa.Table) -> Batch:
    name = _weight_of(table)
    weights = table.column(name).to_numpy().reshape(-1, 1).astype(np.int64)
    rows = table.drop_columns([name])
    return Batch.from_arrow(rows, schema_of(rows.schema), weights)


def _summed(tables: list[pa.Table]) -> Batch | None:
    """Return the sum of the rows of all tables; None if nothing is left."""
    if not tables:
        return None
    whole = pa.concat_tables([table.cast(tables[0].schema) for table in tables]).combine_chunks()
    made = consolidate(_batch(whole))
    return made if len(made) else None
