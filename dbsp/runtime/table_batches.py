"""Convert the changes that an input log returns into the batches that each table's `SourceOperator` takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from dbsp.algebra.table import Table
from dbsp.logs import DELETE, Changes
from dbsp.operators.source import OPERATION, POSITION
from dbsp.plan.plan import Plan
from dbsp.zset.batch import Batch, concat
from dbsp.zset.schema import Column, Schema

_PARTITION_SHIFT = 44


def table_batches(plan: Plan, changes: Sequence[Changes]) -> dict[str, Batch]:
    """Return the changes of each table in the form that its `SourceOperator` takes.

    A table without a key has weights; a table with a key has operations and positions.
    """
    found: dict[str, Batch] = {}
    for table in plan.tables:
        own = [change for change in changes if change.table == table.name]
        if not own:
            continue
        node = next(n for n in plan.nodes if getattr(n.operator, "table", None) == table.name)
        convert = _keyed if table.primary_key else _bare
        found[table.name] = concat([convert(table, change, node.schema) for change in own], node.schema)
    return found


def whole_table(plan: Plan, name: str, changes: Sequence[Changes]) -> Batch:
    """Read the rows of a table again, with the columns that were left unread."""
    mine = [change for change in changes if change.table == name]
    read = [replace(change, batch=change.whole(), whole=None) if change.whole else change for change in mine]
    return table_batches(plan, read)[name]


def _bare(table: Table, change: Changes, schema: Schema) -> Batch:
    """Convert a change: an insert has weight +1, a delete -1."""
    batch, rows = change.batch, len(change.batch)
    weights = np.ones((rows, 1), np.int64)
    weights[change.operations == DELETE] = -1
    return Batch(schema=schema, columns=tuple(_column(table, batch, c) for c in schema), weights=weights)


def _column(table: Table, batch: Batch, column: Column) -> pa.Array:
    """Return a column of the batch, or its default (else nulls) if the batch lacks the column.

    A batch lacks columns that were added to the table later, and columns that were not read because no node needs them.
    """
    return batch.held_column(column.name) if column.name in batch.schema else table.absent(column, len(batch))


def _keyed(table: Table, change: Changes, schema: Schema) -> Batch:
    """Convert a change of a table with a key.

    The operation and the row's position in the step are sent with the row to the owner of its key.
    """
    place = (np.int64(change.partition) << _PARTITION_SHIFT) + change.offsets.astype(np.int64)
    extra = {OPERATION: pa.array(change.operations.astype(np.int8)), POSITION: pa.array(place)}
    columns = tuple(extra[c.name] if c.name in extra else _column(table, change.batch, c) for c in schema)
    return Batch(schema=schema, columns=columns, weights=np.ones((len(change.batch), 1), dtype=np.int64))
