"""Results that a session holds: a portal's rows, and a bound on the bytes of all sessions together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from dbsp.coordinator.postgres.messages import TEXT_FORMAT, row_description
from dbsp.coordinator.postgres.refusals import PostgresRefusal
from dbsp.coordinator.postgres.statements import Statement
from dbsp.coordinator.query.pg_types import modifier_of, type_of

PORTALS_MAX = 100
STATEMENTS_MAX = 1000


class HeldBytes:
    """The bytes of results that are held, bounded over all sessions: readers may be slow, and cursors stay open."""

    def __init__(self, bytes_max: int) -> None:
        """Hold nothing."""
        self._most, self._now = bytes_max, 0

    def take(self, size: int) -> None:
        """Count a result. **Errors** `PostgresRefusal` where too much is held."""
        if self._now + size > self._most:
            raise PostgresRefusal(
                "53200", f"too many results are held at once: bytes={self._now + size} bytes_max={self._most}",
                "close cursors, read results faster, or raise `result_mb_max` in [query]",
            )  # fmt: skip
        self._now += size

    def give(self, size: int) -> None:
        """Let go of a result."""
        self._now -= size


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prepared statement; `types` are the numbers of its parameters' types, 0 where the client left one open."""

    statement: Statement | None
    types: tuple[int, ...]


@dataclass(slots=True)
class Portal:
    """A statement with its values; `table` are its rows once it has run, of which `sent` are out."""

    statement: Statement | None
    values: tuple[tuple[str | None, str | None], ...] = ()
    formats: tuple[int, ...] = ()
    table: pa.Table | None = None
    sent: int = 0
    held: bool = False
    tag: str | None = None
    columns: Sequence[str] = field(default=())

    def formats_of(self, columns: int) -> list[int]:
        """Return the format of each column."""
        if len(self.formats) == columns:
            return list(self.formats)
        if len(self.formats) > 1:
            raise PostgresRefusal("08P01", f"formats for other columns: formats={len(self.formats)} columns={columns}")
        return [self.formats[0] if self.formats else TEXT_FORMAT] * columns


def described(schema: pa.Schema, formats: Sequence[int]) -> bytes:
    """Return the description of a result's columns."""
    return row_description(
        [
            (each.name, type_of(each.type), modifier_of(each.type), form)
            for each, form in zip(schema, formats, strict=True)
        ]
    )
