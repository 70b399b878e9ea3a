"""What was deleted leaves the state, also where nothing more comes for its trace."""

from __future__ import annotations

import pyarrow as pa
import pytest

import dbsp
from dbsp.trace.memory import MemoryDatabase

ROWS, PIECES, CHUNK_BYTES = 40_000, 4, 200_000
LEFT = dbsp.table("left", {"k": dbsp.INT64})
RIGHT = dbsp.table("right", {"k": dbsp.INT64, "x": dbsp.INT64})


def state_rows(run: dbsp.Run) -> int:
    return sum(total.state_rows for total in run.totals.by_node.values())


def test_merges_under_way_end_in_steps_without_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryDatabase.__init__, "__defaults__", (0, CHUNK_BYTES))
    rows = pa.table({"k": range(ROWS), "x": range(ROWS)})
    with dbsp.open(dbsp.circuit("c", {"v": LEFT.join(RIGHT, on="k")}, materialize=False)) as run:
        run.push("right", rows)
        run.step()
        run.step()
        assert state_rows(run) == ROWS
        for piece in range(PIECES):
            run.delete("right", rows.slice(piece * ROWS // PIECES, ROWS // PIECES))
            run.step()
        run.step()
        assert state_rows(run) > 0, "the deletions were merged at once: take more rows"
        for _ in range(2 * ROWS // 1000):
            run.step()
        assert state_rows(run) == 0
