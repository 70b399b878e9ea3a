"""The service's log: bounded files, and a line for every step only where that is asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dbsp.coordinator.running.clock import SystemClock
from dbsp.coordinator.running.events_log import EventsLog
from dbsp.coordinator.running.notices import RolledBack
from dbsp.coordinator.settings.config import LogSection
from dbsp.errors import ConfigError
from dbsp.runtime.runtime import StepReport
from tests.io.log_samples import make_record


def numbers(file: Path) -> list[int]:
    return [json.loads(line)["failures"] for line in file.read_text().splitlines()]


def test_files_are_bounded_in_size_and_number_and_the_newest_lines_are_kept(tmp_path: Path) -> None:
    log = EventsLog(tmp_path / "log", SystemClock(), LogSection(file_bytes_max=1000, files_kept=2))
    for number in range(100):
        log.noted(RolledBack(failures=number))
    log.close()
    files = [tmp_path / name for name in ("log.2", "log.1", "log")]
    assert sorted(tmp_path.iterdir()) == sorted(files)
    assert all(file.stat().st_size <= 1000 for file in files)
    kept = [number for file in files for number in numbers(file)]
    assert kept == list(range(100 - len(kept), 100))
    assert len(kept) > 20


def test_a_log_goes_on_in_the_file_of_the_start_before(tmp_path: Path) -> None:
    for number in range(2):
        log = EventsLog(tmp_path / "log", SystemClock())
        log.noted(RolledBack(failures=number))
        log.close()
    assert numbers(tmp_path / "log") == [0, 1]


@pytest.mark.parametrize("steps", [False, True])
def test_steps_have_lines_where_that_is_asked_for(steps: bool, tmp_path: Path) -> None:
    log = EventsLog(tmp_path / "log", SystemClock(), LogSection(steps=steps))
    log.stepped(make_record(0), StepReport(step=0, seconds=1.0, workers=()), replay=False, lag_rows=0)
    log.close()
    assert ('"step"' in (tmp_path / "log").read_text()) == steps


def test_bounds_that_are_none_are_refused() -> None:
    for wrong in ({"file_bytes_max": -1}, {"files_kept": 0}):
        with pytest.raises(ConfigError, match="too small: log"):
            LogSection(**wrong)  # type: ignore[arg-type]
