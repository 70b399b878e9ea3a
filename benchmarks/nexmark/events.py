"""Events that others made: `person.parquet`, `auction.parquet` and `bid.parquet` in a folder, or folders of such names.

Columns go by the names here or by those of the public definition (`dateTime`, `itemName`, `date_time`, …), in any order; there
may be more of them. Events are played in the order of their times: in a table's own order where times are equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.nexmark.generator import Tables
from benchmarks.nexmark.tables import COLUMNS

OTHER_NAMES = {
    "emailaddress": "email",
    "creditcard": "card",
    "itemname": "item",
    "initialbid": "initial",
    "datetime": "ts",
}


class EventsError(Exception):
    """The files are not Nexmark's tables."""


def read(folder: Path, events: int | None = None) -> Tables:
    """The first events of a folder, all of them if no number is given."""
    whole = {name: _in_time(_table(folder, name)) for name in COLUMNS}
    return next(split(whole, events or sum(table.num_rows for table in whole.values())))


def split(tables: Tables, step: int) -> Iterator[Tables]:
    """So many events at a time, of all tables together, by their times."""
    stamps = [table["ts"].cast(pa.int64()).to_numpy() for table in tables.values()]
    table_of = np.repeat(np.arange(len(stamps)), [len(each) for each in stamps])
    played = table_of[np.argsort(np.concatenate(stamps), kind="stable")]
    at = dict.fromkeys(tables, 0)
    for first in range(0, len(played), step):
        rows = np.bincount(played[first : first + step], minlength=len(stamps)).tolist()
        yield {name: tables[name].slice(at[name], count) for name, count in zip(tables, rows, strict=True)}
        at = {name: at[name] + count for name, count in zip(tables, rows, strict=True)}


def _table(folder: Path, name: str) -> pa.Table:
    place = folder / f"{name}.parquet"
    place = place if place.exists() else folder / name
    if not place.exists():
        raise EventsError(f"a table is missing: wanted={folder / name}.parquet")
    found = pq.read_table(place)
    names = {_known(column): column for column in found.column_names}
    missing = [column for column in COLUMNS[name] if column not in names]
    if missing:
        raise EventsError(f"columns are missing: file={place} missing={missing} found={found.column_names}")
    types = pa.schema(list(COLUMNS[name].items()))
    try:
        return found.select([names[column] for column in types.names]).rename_columns(types.names).cast(types)
    except pa.ArrowInvalid as error:
        raise EventsError(f"a column has values of another type: file={place} types={found.schema.types}") from error


def _known(column: str) -> str:
    plain = column.replace("_", "").lower()
    return OTHER_NAMES.get(plain, plain)


def _in_time(table: pa.Table) -> pa.Table:
    stamps = table["ts"].cast(pa.int64()).to_numpy()
    if (np.diff(stamps) >= 0).all():
        return table
    return table.take(pa.array(np.argsort(stamps, kind="stable")))
