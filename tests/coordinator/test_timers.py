"""Steps that time asks for: a service takes one when a row leaves a filter over now(), or a window closes, without input."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest

import dbsp
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import load_config
from tests.coordinator.shop import settings_text

CIRCUIT = """
import dbsp

t = dbsp.table("t", {"x": dbsp.INT64, "at": dbsp.TIMESTAMP})
u = dbsp.table("u", {"at": dbsp.TIMESTAMP}, watermark={"at": dbsp.seconds(1)})
recent = t.filter(dbsp.col("at") > dbsp.now() - dbsp.milliseconds(400)).select("x")
closed = u.tumble("at", dbsp.seconds(10)).group_by("window_end").aggregate(emit="final", n=dbsp.count())
pipeline = dbsp.circuit("timers", {"recent": recent, "closed": closed})
"""
SETTINGS = settings_text()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], Service]]:
    (tmp_path / "circuit.py").write_text(CIRCUIT)
    (tmp_path / "pipeline.toml").write_text(SETTINGS)
    made: list[Service] = []

    def one() -> Service:
        for service in made:
            service.stop(quiet=True)
        made.append(Service(load_config(tmp_path / "pipeline.toml", environment={})))
        made[-1].start(timeout_s=60)
        return made[-1]

    yield one
    made[-1].stop(quiet=True)


def until(there: Callable[[], bool]) -> None:
    """Look until it is there, for a minute."""
    quiet = Event()
    for _ in range(1200):
        if there():
            return
        quiet.wait(0.05)
    raise AssertionError("waited a minute in vain")


def test_a_row_leaves_without_input(start: Callable[[], Service]) -> None:
    service = start()
    soon = dt.datetime.now(dt.UTC).replace(tzinfo=None) + dt.timedelta(seconds=2)
    service.wait_until_processed(service.push("t", pa.table({"x": [1], "at": pa.array([soon], dbsp.TIMESTAMP)})), 60)
    assert service.read_view("recent").table.num_rows == 1
    before = service.snapshot.step
    until(lambda: service.read_view("recent").table.num_rows == 0)
    assert before < service.snapshot.step <= before + 2


def test_a_window_closes_without_input_and_time_survives_a_restart(start: Callable[[], Service]) -> None:
    service = start()
    times = [dt.datetime(2024, 1, 1, 0, 0, second) for second in (1, 2, 11)]
    for at in times:
        service.wait_until_processed(service.push("u", pa.table({"at": pa.array([at], dbsp.TIMESTAMP)})), 60)
    until(lambda: service.read_view("closed").table.num_rows == 1)
    assert service.read_view("closed").table.column("n").to_pylist() == [2]
    service = start()
    late = pa.table({"at": pa.array([times[1]], dbsp.TIMESTAMP)})
    service.wait_until_processed(service.push("u", late), 60)
    assert service.read_view("closed").table.column("n").to_pylist() == [2]
    assert service.snapshot.dead == 1
