"""The reference page of SQL functions: the signatures against which calls are checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dbsp.sql import signatures
from dbsp.sql.signatures import Signature

TABLES: tuple[tuple[str, tuple[Mapping[Any, Signature], ...]], ...] = (
    ("Functions of a row", (signatures.SIGNATURES, signatures.NAMED)),
    ("Aggregates", (signatures.AGGREGATES,)),
    ("Window functions", (signatures.WINDOWS,)),
)


def page() -> str:
    """Return a table of signatures for each kind of function."""
    parts = [
        "Calls are checked against these signatures. `?` marks an optional argument, `constant` one that has to be a constant."
        " A result `same` has the type of the first argument. [SQL](../sql.md) describes the dialect.\n"
    ]
    for title, tables in TABLES:
        rows = sorted({row for table in tables for row in _rows(table.values())})
        parts.append(f"## {title}\n\n| function | result |\n| --- | --- |\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _rows(found: Iterable[Signature]) -> list[str]:
    return [f"| `{each!s}` | {each.result} |" for each in found]
