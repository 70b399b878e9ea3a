"""The history of a service, and the last lines of its log: generated steps and lines against what they must add up to."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp.coordinator.running import history as histories
from dbsp.coordinator.running import log_tail
from dbsp.coordinator.running.history import EVENTS_MAX, POINT_S, POINTS_MAX, History
from dbsp.coordinator.running.log_tail import last_events
from dbsp.coordinator.running.notices import AlarmRaised, CheckpointPublished, CommandFailed, StateChanged, WarmupRound
from dbsp.runtime.runtime import StepReport, WorkerReport
from tests.io.log_samples import make_record

NAMES = ("rows_in", "rows_out", "dead_letters")


class FakeClock:
    now_s = 1000.0

    def wall_us(self) -> int:
        return int((self.now_s + 5e8) * 1e6)

    def monotonic_s(self) -> float:
        return self.now_s

    def wait(self, wake: threading.Event, timeout_s: float) -> None:
        raise AssertionError


def report(step: int, seconds: float, rows: int) -> StepReport:
    worker = WorkerReport(worker=0, rows_in=rows, rows_out=2 * rows, dead=3 * rows, seconds=seconds, state_bytes=7)
    return StepReport(step=step, seconds=seconds, workers=(worker, replace(worker, worker=1)))


def begun() -> tuple[FakeClock, History]:
    clock = FakeClock()
    history = History(clock)
    history.noted(StateChanged(state="Running", step=0))
    return clock, history


@given(
    steps=st.lists(
        st.tuples(st.floats(0, 40), st.floats(0, 1), st.integers(0, 1000), st.booleans()), min_size=1, max_size=30
    )
)
def test_the_rows_of_steps_are_all_in_the_points_that_they_ran_in(steps: list[tuple[float, float, int, bool]]) -> None:
    """A step of 40 s gives rows to nine points; a step that runs again counts once."""
    clock, history = begun()
    total = 0
    for number, (waits_s, share, rows, again) in enumerate(steps):
        clock.now_s += waits_s
        for _ in range(1 + again):
            history.stepped(make_record(number), report(number, waits_s * share, rows), replay=False, lag_rows=number)
        total += 2 * rows
    points = history.as_json()["points"]
    for factor, name in enumerate(NAMES, 1):
        assert sum(points[name]) == pytest.approx(factor * total, abs=0.01 * len(points[name]))
        assert all(count >= 0 for count in points[name])
    assert points["number"] == list(range(points["number"][0], points["number"][-1] + 1)), "no point is missing"
    assert sum(points["steps"]) == len(steps)
    assert points["lag_rows"][-1] == len(steps) - 1


def test_a_long_step_shows_in_every_point_and_levels_stay() -> None:
    clock, history = begun()
    clock.now_s += 50
    history.stepped(make_record(0), report(0, 40.0, 400), replay=False, lag_rows=9)
    clock.now_s += 10
    points = history.as_json()["points"]
    assert points["rows_in"] == [0, 0, *([100] * 8), 0, 0, 0]
    assert points["lag_rows"] == [None] * 10 + [9, 9, 9]
    assert points["state"] == ["Running"] * 13
    assert points["step_seconds_max"] == [None] * 10 + [40.0, None, None]


def test_steps_of_a_replay_count_for_levels_alone() -> None:
    _, history = begun()
    history.stepped(make_record(0), report(0, 1.0, 5), replay=True, lag_rows=3)
    points = history.as_json()["points"]
    assert (points["rows_in"], points["steps"], points["lag_rows"]) == ([0], [0], [3])


def test_the_history_is_bounded_and_goes_on_after_a_pause_of_days() -> None:
    clock, history = begun()
    history.arrived(0.5)
    first = history.as_json()["points"]
    assert (first["latency_seconds"], first["latency_seconds_max"]) == ([0.5], [0.5])
    clock.now_s += 3 * 86_400
    for number in range(2 * EVENTS_MAX):
        history.noted(CommandFailed(command="RunStep", code="data", error=str(number)))
    found = history.as_json()
    assert len(found["points"]["number"]) == POINTS_MAX
    assert found["points"]["number"][-1] == found["next"] == int(clock.now_s // POINT_S)
    assert found["points"]["errors"][-1] == 2 * EVENTS_MAX
    assert [event["error"] for event in found["events"][:2]] == [str(2 * EVENTS_MAX - 1), str(2 * EVENTS_MAX - 2)]
    assert len(found["events"]) == EVENTS_MAX


def test_a_client_that_goes_on_gets_the_unfinished_point_again() -> None:
    clock, history = begun()
    history.stepped(make_record(0), report(0, 0.0, 5), replay=False, lag_rows=0)
    before = history.as_json()
    history.stepped(make_record(1), report(1, 0.0, 5), replay=False, lag_rows=0)
    clock.now_s += POINT_S
    points = history.as_json(before["next"])["points"]
    assert points["number"] == [before["next"], before["next"] + 1]
    assert points["rows_in"] == [20, 0]
    assert points["unix_s"][0] == pytest.approx(before["points"]["unix_s"][-1], abs=0.2)


def test_events_are_told_from_checkpoints_and_from_what_nobody_needs() -> None:
    _, history = begun()
    published = CheckpointPublished(
        version=2, step=7, seconds=0.5, pause_seconds=0.1, bytes_written=10, state_bytes=20
    )  # fmt: skip
    history.noted(published)
    history.noted(WarmupRound(round=1, lag_bytes=1, seconds=1.0))
    history.noted(AlarmRaised(kind="step-slow", about="", text="slow"))
    found = history.as_json()
    assert [(event["event"], event["kind"]) for event in found["events"]] == [("alarm", "step-slow")]
    assert [(each["event"], each["step"], each["version"]) for each in found["checkpoints"]] == [("checkpoint", 7, 2)]
    assert {each["at"][:10] for each in (*found["events"], *found["checkpoints"])} == {"1985-11-05"}


def test_planted_a_history_that_counts_where_a_step_ends_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The old console's fault: while a long step runs, and in all points that it ran in, the rate is 0."""
    monkeypatch.setattr(histories.History, "_shares", lambda self, *_: [(self._points[-1], 1.0)])
    with pytest.raises(AssertionError):
        test_a_long_step_shows_in_every_point_and_levels_stay()


# --- the last lines of the log ----------------------------------------------------------------------------------------

LINES = st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r"), max_size=30), max_size=30)


@given(files=st.lists(LINES, min_size=1, max_size=3), count=st.integers(1, 40), block=st.integers(1, 70))
def test_the_last_events_are_those_of_the_files_read_whole(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[str]], count: int, block: int
) -> None:
    folder = tmp_path_factory.mktemp("log")
    path = folder / "coordinator.log"
    for number, lines in enumerate(files):
        name = path if number == 0 else path.with_name(f"{path.name}.{number}")
        name.write_text("".join(f"{json.dumps({'at': 't', 'event': line})}\n" for line in lines))
    wanted = [line for lines in files for line in reversed(lines)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_tail, "BLOCK_BYTES", block)
        found = last_events(path, 3, count)
    assert [event["event"] for event in found] == wanted[:count]


def test_lines_are_chosen_by_their_text_and_broken_ones_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "coordinator.log"
    path.write_text('{"event": "failed", "error": "No Room"}\n{"event": "state"}\nhalf a li\n[1]\n')
    assert last_events(path, 2, 9, "no room") == [{"event": "failed", "error": "No Room"}]
    assert [event.get("text") for event in last_events(path, 2, 2)] == ["[1]", "half a li"]
    assert last_events(tmp_path / "none.log", 2, 9) == []


def test_no_search_reads_more_than_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_tail, "READ_BYTES_MAX", 40)
    path = tmp_path / "coordinator.log"
    path.write_text("".join(f'{{"event": "{number:02}"}}\n' for number in range(10)))
    path.with_name("coordinator.log.1").write_text('{"event": "old"}\n')
    assert [event["event"] for event in last_events(path, 2, 99)] == ["09", "08"], "whole lines within 40 bytes"
