"""Chunks whose texts are codes: small as bytes, but as many rows, so merging treats them as what they are plain."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from databases import first_id

from dbsp.storage import WorkerDatabase
from dbsp.store import TraceSpec
from dbsp.trace import merging
from dbsp.trace.manifest import PendingMerge, StoredBatch
from dbsp.zset.batch import Batch, arrange
from dbsp.zset.coded import is_coded
from dbsp.zset.schema import INT64, STRING, Arrangement, OrderBy, Schema

SCHEMA = Schema.of({"group": STRING, "time": INT64, "url": STRING})
TRACE = TraceSpec(id=0, arrangement=Arrangement(schema=SCHEMA, key=("group",), order=(OrderBy("time"),)))
ROWS, STEPS, CHUNK_BYTES = 4000, 16, 1 << 18


def rows_of(step: int) -> Batch:
    """The next rows of the one group there is, of 50 urls."""
    time = np.arange(ROWS) + step * ROWS
    urls = [f"https://example.com/a/long/path/of/a/url/item.htm?query={number % 50}" for number in range(ROWS)]
    return arrange(Batch.of(SCHEMA, [pa.array(["x"] * ROWS), time, pa.array(urls)]), TRACE.arrangement)


def test_chunks_that_no_other_run_overlaps_are_handed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that follow each other merge unread, however short their chunks are as bytes."""
    handed: list[bool] = []
    pass_on = merging._pass_on

    def counted(*given: object) -> PendingMerge | StoredBatch | None:
        found = pass_on(*given)  # type: ignore[arg-type]
        handed.append(found is not None)
        return found

    monkeypatch.setattr(merging, "_pass_on", counted)
    database = WorkerDatabase.create(tmp_path / "w", first_id(), chunk_bytes_max=CHUNK_BYTES)
    database.open(0, 1)
    for step in range(STEPS):
        with database.begin(1, step, 0, (TRACE,)) as transaction:
            transaction.append(TRACE, rows_of(step))
            transaction.finish()
    with database.read_trace(TRACE) as spine:
        parts = list(spine.parts())
        assert sum(map(len, parts)) == ROWS * STEPS
        assert all(is_coded(part.held_column("url")) for part in parts if len(part) > ROWS // 2)
        assert max(part.nbytes for part in parts) <= 2 * CHUNK_BYTES
    database.close()
    assert sum(handed) > len(handed) // 2
