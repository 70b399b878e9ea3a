"""The base class of input logs on this host: tables, spans of offsets in one LMDB file, and trimming."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dbsp.algebra.table import Table
from dbsp.errors import ConfigError
from dbsp.io.environment import MAP_BYTES_START, open_environment, release_environment
from dbsp.io.spans import OffsetSpan, Place, Spans
from dbsp.logs import Range
from dbsp.logs.sizes import Sizes
from dbsp.stored.levels import NEWEST

TOGETHER_BYTES = 1 << 16
"""Neighbouring records are measured together up to this many bytes, so that pushes of one row each take little memory."""


class LocalInputLog(ABC):
    """The part of `dbsp.logs.InputLog` that does not depend on where rows are.

    `_partitions` has each table's number of partitions.
    """

    _partitions: dict[str, int]

    def __init__(
        self,
        directory: Path | str,
        tables: Sequence[Table],
        *,
        form: str,
        names: tuple[str, ...],
        later: tuple[str, ...] = (),
        create: bool,
        map_bytes: int = MAP_BYTES_START,
        level: int = NEWEST,
    ) -> None:
        """Open `<directory>/input`; `create` makes an absent one, otherwise absence is a `DataError`."""
        self._tables = {table.name: table for table in tables}
        path = Path(directory) / "input"
        self._env = open_environment(path, form=form, names=names, later=later, create=create, map_bytes=map_bytes)
        self._spans, self._level = Spans(self._env, level), level
        self._measuring, self._sizes = threading.Lock(), dict[Place, Sizes]()

    def partitions(self, table: str) -> int:
        """Return the number of partitions of the table's input; new rows may go to fewer, if settings once had more."""
        return self._partitions[self._table(table).name]

    def ends(self) -> Mapping[Place, int]:
        """Return the offset after the last row, per (table, partition)."""
        return {place: span.end for place, span in self._all().items()}

    def floors(self) -> Mapping[Place, int]:
        """Return the first offset that may still be read, per (table, partition)."""
        return {place: span.floor for place, span in self._all().items()}

    def sizes(self, waiting: Sequence[Range]) -> Mapping[Place, Sizes]:
        """Return the sizes of these rows, from the sizes of the records that contain them.

        **State** The sizes of all rows that arrived since the first call for a partition, until they are trimmed;
        small records are measured together.
        **Cost** looks at the records that arrived since the last call, and reads none of them.
        """
        places = {(each.table, each.partition): each for each in waiting}
        with self._measuring:
            if fresh := {place: each for place, each in places.items() if not self._knows(place, each)}:
                with self._env.read(buffers=True) as txn:
                    self._sizes |= {place: self._measured(txn, each) for place, each in fresh.items()}
            return {place: self._sizes[place] for place in places}

    def _knows(self, place: Place, range_: Range) -> bool:
        """Return whether the sizes of a range are known."""
        known = self._sizes.get(place)
        return known is not None and known.first <= range_.first and range_.last <= known.last

    def _measured(self, txn: Any, range_: Range) -> Sizes:
        """Return the sizes of a partition from the range's start to the partition's end, continuing the known ones."""
        known = self._sizes.get((range_.table, range_.partition))
        known = known if known is not None and known.first <= range_.first else None
        end = self._spans.get(txn, range_.table, range_.partition).end
        found = list(self._kept(txn, replace(range_, first=known.last if known else range_.first, last=end)))
        ends = [*(first for first, _ in found[1:]), end]
        stretches = [(last - first, size) for (first, size), last in zip(found, ends, strict=False)]
        return (known or Sizes.of(found[0][0] if found else range_.first, ())).then(stretches, TOGETHER_BYTES)

    @abstractmethod
    def _kept(self, txn: Any, range_: Range) -> Iterator[tuple[int, int]]:
        """Yield the first offset and the bytes of each record in the range; values are views of the file."""
        ...

    def trim(self, positions: Mapping[Place, int]) -> None:
        """Delete the records of rows below these offsets; a record is deleted once its last row is below."""

        def action(txn: Any) -> None:
            for place, to in positions.items():
                span = self._spans.get(txn, *place).trimmed(to)
                self._spans.put(txn, *place, span)
                self._trim(txn, place, span.floor)
            self._trimmed(txn)

        self._env.write(action)
        with self._measuring:
            for place, known in self._sizes.items():
                if known.first < (to := min(positions.get(place, 0), known.last)):
                    self._sizes[place] = known.cut(to, known.last)

    def _trimmed(self, txn: Any) -> None:  # noqa: B027 - most logs store no other data
        """Delete other data that no row needs any more."""

    @abstractmethod
    def _trim(self, txn: Any, place: Place, floor: int) -> None:
        """Delete the records below an offset."""
        ...

    def close(self) -> None:
        """Release the file."""
        release_environment(self._env)

    def _all(self) -> dict[Place, OffsetSpan]:
        return self._spans.of(self._partitions)

    def _table(self, name: str) -> Table:
        if name not in self._tables:
            raise ConfigError(f"no such table: table={name} tables={sorted(self._tables)}")
        return self._tables[name]
