"""A read in the process of a step waits for the step between two pieces, and not for long."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

import dbsp
from dbsp.runtime import steps_first
from dbsp.runtime.leases import Leased

LONG_S, A_MOMENT_S = 60.0, 0.05
items = dbsp.table("items", {"id": dbsp.INT64}, primary_key="id")


class Reader:
    """A thread that reads a view to its end."""

    def __init__(self) -> None:
        self.leased: Leased | None = None
        self.rows = 0
        self.thread = threading.Thread(target=self._read, daemon=True)

    def _read(self) -> None:
        assert self.leased is not None
        self.rows = sum(len(piece) for piece in self.leased.read("items"))


def read_in_a_step(waits_s: float) -> tuple[bool, int]:
    """Whether a read that began in a step still waited in it, and the rows that it has returned in the end."""
    reader, waited = Reader(), []

    def same(rows: pa.RecordBatch) -> pa.RecordBatch:
        if reader.leased is not None and not waited:
            reader.thread.start()
            reader.thread.join(waits_s)
            waited.append(reader.thread.is_alive())
        return rows

    kept = items.map_batches(same, schema={"id": dbsp.INT64})
    with dbsp.open(dbsp.circuit("shop", {"items": items, "kept": kept})) as run:
        run.push("items", [{"id": 1}, {"id": 2}])
        run.step()
        reader.leased = run._runtime.lease_views(("items",), run.step_number, run.layout)
        run.push("items", [{"id": 3}])
        run.step()
        reader.thread.join(LONG_S)
        reader.leased.end()
    return waited[0], reader.rows


def test_a_read_gives_way_to_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps_first, "GIVE_WAY_S", LONG_S)
    assert read_in_a_step(A_MOMENT_S) == (True, 2)


def test_a_read_does_not_wait_for_the_end_of_a_long_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps_first, "GIVE_WAY_S", A_MOMENT_S)
    assert read_in_a_step(LONG_S) == (False, 2)


def test_a_step_that_fails_keeps_no_read_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps_first, "GIVE_WAY_S", LONG_S)
    first = steps_first.StepsFirst()
    with pytest.raises(ZeroDivisionError), first.step():
        1 / 0  # noqa: B018 - the step's error
    waiting = threading.Thread(target=first.give_way, daemon=True)
    waiting.start()
    waiting.join(LONG_S / 2)
    assert not waiting.is_alive()
