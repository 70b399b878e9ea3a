"""Convert users' rows into pushes, and find the input log that accepts pushes."""

from __future__ import annotations

from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa

from dbsp.algebra.table import NO_DELETE, Table
from dbsp.errors import ConfigError, DataError
from dbsp.io.connectors import InputKind
from dbsp.io.pushed import InputWriter, Push
from dbsp.logs import DELETE, INSERT
from dbsp.zset.batch import Batch

Rows: TypeAlias = Push | Batch | pa.Table | pa.RecordBatch


def as_push(table: Table, rows: Rows, *, delete: bool = False) -> Push:
    """Return the rows as one push of inserts or of deletes; return a push unchanged.

    **Errors** `DataError` for a delete from an append-only table.
    """
    if isinstance(rows, Push):
        return rows
    if delete and table.append_only:
        raise DataError(f"{NO_DELETE}: table={table.name}", "declare the table without append_only")
    batch = rows if isinstance(rows, Batch) else Batch.from_arrow(rows, table.schema)
    operations = np.full(len(batch), DELETE if delete else INSERT, dtype=np.int8)
    return Push(batch=batch, operations=operations)


def refuse_bad(table: Table, push: Push) -> None:
    """Refuse a transaction with an unreadable row, because a transaction is taken whole; `DataError` names the row."""
    if push.bad:
        bad = push.bad[0]
        raise DataError(
            f"a transaction with a row that cannot be read: table={table.name} row={bad.index} reason={bad.reason}",
            "correct the row and send all again: nothing was taken",
        )


def writer_of(inputs: Any, source: InputKind) -> InputWriter:
    """Return the input as a log that accepts pushes; `ConfigError` says where else rows can be sent."""
    if source.push_elsewhere is not None:
        raise ConfigError(f"rows cannot be pushed to this input: input.kind={source.kind}", source.push_elsewhere)
    return cast(InputWriter, inputs)
