"""What the input logs on this host share: tables, spans of offsets in one LMDB file, trimming."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dbsp.algebra.table import Table
from dbsp.errors import ConfigError
from dbsp.io.environment import MAP_BYTES_START, open_environment, release_environment
from dbsp.io.spans import Place, Span, Spans, bytes_per_row


class LocalInputLog(ABC):
    """What of `dbsp.logs.InputLog` does not depend on where rows are; `_partitions` says how many partitions a table has."""

    _partitions: Mapping[str, int]

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
    ) -> None:
        """Open `<directory>/input`; `create` makes an absent one, otherwise absence is a `DataError`."""
        self._tables = {table.name: table for table in tables}
        path = Path(directory) / "input"
        self._env = open_environment(path, form=form, names=names, later=later, create=create, map_bytes=map_bytes)
        self._spans = Spans(self._env)

    def partitions(self, table: str) -> int:
        """How many partitions the table's input has; new rows may come to fewer, if settings had more once."""
        return self._partitions[self._table(table).name]

    def ends(self) -> Mapping[Place, int]:
        """The offset after the last row, per (table, partition)."""
        return {place: span.end for place, span in self._all().items()}

    def floors(self) -> Mapping[Place, int]:
        """The first offset that may still be read, per (table, partition)."""
        return {place: span.floor for place, span in self._all().items()}

    def bytes_per_row(self, table: str) -> float:
        """The mean size of all rows that ever came to the table."""
        return bytes_per_row([span for (name, _), span in self._all().items() if name == table])

    def trim(self, positions: Mapping[Place, int]) -> None:
        """Drop what is known of rows below these offsets; a record goes when its last row is below."""

        def action(txn: Any) -> None:
            for place, to in positions.items():
                span = self._spans.get(txn, *place).trimmed(to)
                self._spans.put(txn, *place, span)
                self._trim(txn, place, span.floor)
            self._trimmed(txn)

        self._env.write(action)

    def _trimmed(self, txn: Any) -> None:  # noqa: B027 - most logs keep nothing more
        """Drop what else no row needs any more."""

    @abstractmethod
    def _trim(self, txn: Any, place: Place, floor: int) -> None:
        """Drop the records below an offset."""
        ...

    def close(self) -> None:
        """Release the file."""
        release_environment(self._env)

    def _all(self) -> dict[Place, Span]:
        return self._spans.of(self._partitions)

    def _table(self, name: str) -> Table:
        if name not in self._tables:
            raise ConfigError(f"no such table: table={name} tables={sorted(self._tables)}")
        return self._tables[name]
