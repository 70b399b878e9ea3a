"""Tables, pushes and records that the tests of the logs share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dbsp.algebra.table import Table
from dbsp.io.pushed import BadRow, Push
from dbsp.logs import Range, StepRecord
from dbsp.zset.batch import Batch, consolidate
from dbsp.zset.schema import INT64, STRING, Column, Schema

SCHEMA = Schema.of([Column("id", INT64, nullable=False), Column("name", STRING)])
TABLE = Table(name="t", schema=SCHEMA, primary_key=("id",))
OTHER = Table(name="other", schema=SCHEMA)


def make_push(ids: Sequence[int], bad: Sequence[int] = ()) -> Push:
    """A push of rows (id, "n<id>"), the numbers in `bad` being bad rows."""
    batch = Batch.from_rows(SCHEMA, [(number, f"n{number}") for number in ids])
    rows = tuple(BadRow(index=index, reason="broken", payload=f"p{index}") for index in bad)
    return Push(batch=batch, operations=np.array([number % 2 for number in ids], dtype=np.int8), bad=rows)


def make_record(step: int, *, epoch: int = 1, ranges: Sequence[tuple[str, int, int, int]] = ()) -> StepRecord:
    """A step record with these (table, partition, first, last)."""
    made = tuple(Range(table=t, partition=p, first=f, last=e) for t, p, f, e in ranges)
    return StepRecord(epoch=epoch, step=step, layout_version=0, ranges=made, clock_us=1_000 * step, engine="test")


def make_part(rows: Sequence[tuple[tuple[int, str], int]]) -> Batch:
    """A consolidated batch of weighted rows."""
    return consolidate(Batch.from_rows(SCHEMA, rows))
