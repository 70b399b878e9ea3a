"""Rows that end the Python workers of a step on Spark: deaths are counted, the step is tried apart, `skip` goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dbsp.coordinator.service import Service
from tests.coordinator.shop import settings, settings_text
from tests.coordinator.test_deadly_rows import CIRCUIT, ROWS, dead_letters, deaths, rows

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(900)]


def events(folder: Path, kind: str) -> list[dict[str, object]]:
    lines = map(json.loads, (folder / "data" / "coordinator.log").read_text().splitlines())
    return [line for line in lines if line["event"] == kind]


@pytest.mark.parametrize("from_outside", [False, True])
def test_a_step_that_loses_its_python_workers(tmp_path: Path, from_outside: bool) -> None:
    """Rows that end their process halt the pipeline after three deaths; kills from outside never do."""
    text = settings_text("[checkpoint]\ninterval_s = 1000\n").replace('runtime = "local"', 'runtime = "spark"')
    (tmp_path / "circuit.py").write_text(CIRCUIT)
    (tmp_path / "pipeline.toml").write_text(text)
    armed = tmp_path / "armed"
    with Service(settings(tmp_path)) as service:
        sound = service.push("orders", rows().slice(0, 1))
        service.wait_until_processed(sound, 300)
        armed.touch()
        waiting = service.push("orders", rows(7, 30).slice(1))
        if from_outside:
            assert service.live_status.wait_for(lambda now: now.rollbacks >= 2, 600)
            armed.unlink()
            service.wait_until_processed(waiting, 300)
            assert service.snapshot.halt is None
            assert deaths(service) is None, "a step that is done is past"
            assert events(tmp_path, "step-died")
            return
        assert service.live_status.wait_for(lambda now: now.halt is not None, 600)
        halt = service.snapshot.halt
        assert halt is not None
        assert halt.death == "SIGABRT"
        assert [event["deaths"] for event in events(tmp_path, "step-died")] == [1, 2, 3]
        assert [event["death"] for event in events(tmp_path, "step-tried")] == ["SIGABRT"]
        done = service.skip(timeout_s=600)
        assert [row.offset for row in done.dropped] == [7, 30]
        service.wait_until_processed(waiting, 300)
        found = {row["id"] for row in service.read_view("items", 120).table.to_pylist()}
        assert found == {*range(ROWS)} - {7, 30}
        assert [row["offset"] for row in dead_letters(tmp_path)] == [7, 30]
