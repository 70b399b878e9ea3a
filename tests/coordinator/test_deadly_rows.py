"""Rows that end the process that runs their step: counted, tried apart, halted before, found, skipped by a logged decision."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp.circuit.names import DEAD_LETTERS
from dbsp.coordinator.checks.trials import Place, killers
from dbsp.coordinator.running import attempts
from dbsp.coordinator.running.attempts import MARKER_FILE, FileMarker
from dbsp.coordinator.running.control import note_death
from dbsp.coordinator.running.ledger_file import LmdbControl
from dbsp.coordinator.service import Service
from dbsp.errors import UnavailableError
from dbsp.io.embedded_output import read_outputs
from tests.coordinator.shop import settings, settings_text
from tests.forked import Forked

CIRCUIT = """
import os
from pathlib import Path
import dbsp
from dbsp import count

orders = dbsp.table("orders", {"id": dbsp.INT64, "item": dbsp.STRING}, primary_key=["id"])

def marked(item):
    if item == "kill" and Path(__file__).with_name("armed").exists():
        os.abort()
    return item

items = orders.map(lambda row: {"id": row["id"], "item": marked(row["item"])}, {"id": dbsp.INT64, "item": dbsp.STRING})
pipeline = dbsp.circuit("shop", {"items": items, "per_item": items.group_by("item").aggregate(n=count())})
"""
ROWS = 40


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "circuit.py").write_text(CIRCUIT)
    (tmp_path / "armed").touch()
    (tmp_path / "pipeline.toml").write_text(settings_text("[checkpoint]\ninterval_s = 1000\n"))
    return tmp_path


def rows(*deadly: int) -> pa.Table:
    return pa.Table.from_pylist([{"id": at, "item": "kill" if at in deadly else f"i{at % 3}"} for at in range(ROWS)])


def pushed_by_another(folder: str, found: pa.Table) -> None:
    """A service that takes the rows, and dies of them or not."""
    service = Service(settings(Path(folder)))
    service.start(timeout_s=300)
    service.wait_until_processed(service.push("orders", found), 300)
    service.stop(now=True)


def started_by_another(folder: str) -> None:
    """A service that starts."""
    service = Service(settings(Path(folder)))
    service.start(timeout_s=300)
    service.stop(now=True)


def without_a_count(folder: str) -> None:
    """The planted bug: nobody knows that the step has ended processes before."""
    attempts.DEATHS_MAX = 1 << 60
    started_by_another(folder)


def ended(folder: Path, function: Any, *arguments: Any) -> int:
    return Forked(folder / "out", function, str(folder), *arguments).wait(600)


def deaths(service: Service) -> Any:
    ledger = service.built.parts.control.load()
    return None if ledger is None else ledger.deaths


def dead_letters(folder: Path) -> list[dict[str, Any]]:
    tables = [table for _, _, table in read_outputs(folder / "data", DEAD_LETTERS)]
    return sorted((row for table in tables for row in table.to_pylist()), key=lambda row: row["offset"])


def test_rows_that_kill_are_found_and_skipped(folder: Path) -> None:
    assert ended(folder, pushed_by_another, rows(7, 30)) == -signal.SIGABRT
    assert FileMarker(folder / "data").unfinished() == 0
    for _ in range(2):
        assert ended(folder, started_by_another) == -signal.SIGABRT
    assert ended(folder, without_a_count) == -signal.SIGABRT, "the planted bug"
    service = Service(settings(folder))
    try:
        service.start(timeout_s=300)
        found = service.status()
        assert (found["state"], found["halt"]["death"], found["halt"]["step"]) == ("Halted", "SIGABRT", 0)
        assert list(found["halt"]["ranges"]) == [{"table": "orders", "partition": 0, "first": 0, "last": ROWS}]
        with pytest.raises(UnavailableError, match=r"the next step ends its process: step=0 .*coordinator skip"):
            service.checkpoint()
        waiting = service.push("orders", pa.table({"id": [100], "item": ["i0"]}))
        done = service.skip(timeout_s=300)
        assert [(row.offset, json.loads(row.payload)["id"]) for row in done.dropped] == [(7, 7), (30, 30)]
        service.wait_until_processed(waiting, 300)
        assert service.skip(0, 300).before
        ids = {row["id"] for row in service.read_view("items").table.to_pylist()}
        assert ids == {*range(ROWS), 100} - {7, 30}
        assert [(row["offset"], row["weight"]) for row in dead_letters(folder)] == [(7, 1), (30, 1)]
        assert all("ended the process that ran its step: SIGABRT" in row["reason"] for row in dead_letters(folder))
        assert deaths(service) is None
    finally:
        service.stop(now=True, quiet=True)
    assert ended(folder, started_by_another) == 0, "a replay takes the decision, too"
    assert len(dead_letters(folder)) == 2


def test_kills_from_outside_never_halt_it(folder: Path) -> None:
    """Three deaths in the midst of a sound step: it is tried apart, lives, and goes on."""
    assert ended(folder, pushed_by_another, rows(7)) == -signal.SIGABRT
    (folder / "armed").unlink()  # as if it had been a kill from outside
    for _ in range(4):
        with closing(LmdbControl(folder / "data", create=False)) as control:
            control.change(None, lambda ledger: note_death(ledger, 0))
    service = Service(settings(folder))
    try:
        service.start(timeout_s=300)
        assert service.status()["state"] == "Running"
        assert deaths(service) is None
        assert "step-tried" in (folder / "data" / "coordinator.log").read_text()
    finally:
        service.stop(now=True, quiet=True)


def test_the_marker_outlives_the_process_alone(tmp_path: Path) -> None:
    marker = FileMarker(tmp_path)
    assert marker.unfinished() is None
    marker.begin(3, 17)
    assert FileMarker(tmp_path).unfinished() == 17
    marker.end()
    assert FileMarker(tmp_path).unfinished() is None
    (tmp_path / MARKER_FILE).write_bytes(b"torn")
    assert FileMarker(tmp_path).unfinished() is None


@given(st.sets(st.frozensets(st.integers(0, 40), min_size=1, max_size=2), max_size=5))
def test_what_is_left_lives(deadly: set[frozenset[int]]) -> None:
    """Rows that kill alone, and pairs that kill together."""
    places = [("t", 0, at) for at in range(41)]

    def dies(kept: Sequence[Place]) -> bool:
        left = {at for _, _, at in kept}
        return any(group <= left for group in deadly)

    found = killers(places, [], dies)
    assert not dies([place for place in places if place not in found])
    assert {at for _, _, at in found} <= {at for group in deadly for at in group}
    assert len(found) <= len(deadly)
