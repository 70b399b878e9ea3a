"""Prepared statements and portals of a session; a portal is a statement with values and its unsent rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from dbsp.coordinator.postgres.messages import TEXT_FORMAT, row_description
from dbsp.coordinator.postgres.refusals import PostgresRefusal
from dbsp.coordinator.postgres.sources import RowSource
from dbsp.coordinator.postgres.statements import Statement
from dbsp.coordinator.query.pg_types import modifier_of, type_of

PORTALS_MAX = 100
STATEMENTS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prepared statement; `types` are the numbers of its parameters' types, 0 where the client left one open."""

    statement: Statement | None
    types: tuple[int, ...]


@dataclass(slots=True)
class Portal:
    """A statement with its values; after it has run, `rows` are the unsent rows of its result.

    A portal that is `held` outlives its transaction.
    """

    statement: Statement | None
    values: tuple[tuple[str | None, str | None], ...] = ()
    formats: tuple[int, ...] = ()
    rows: RowSource | None = None
    held: bool = False

    def become(self, meant: Portal) -> None:
        """Take the statement and the values of another portal."""
        self.statement, self.values = meant.statement, meant.values

    def close(self) -> None:
        """Release the unsent rows."""
        if self.rows is not None:
            self.rows.close()
            self.rows = None

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
