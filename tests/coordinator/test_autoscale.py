"""The autoscale policy: its bounds, its cool-down, no swinging; and the service that acts on it."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp.coordinator.build import build
from dbsp.coordinator.config import load_config
from dbsp.coordinator.decisions.autoscale import AutoscaleSection, Sample, Watching, decide, may_do_with, seen
from dbsp.coordinator.running.clock import SystemClock
from dbsp.coordinator.service import Service
from dbsp.errors import ConfigError

SECTION = AutoscaleSection(
    enabled=True, workers_min=1, workers_max=8, step_latency_ms_max=100, backlog_rows_max=1000, window_s=10, cooldown_s=60
)  # fmt: skip
CIRCUIT = """
import dbsp
t = dbsp.table("t", {"x": dbsp.INT64})
pipeline = dbsp.circuit("c", {"v": t.group_by().aggregate(n=dbsp.count())})
"""
SETTINGS = """
[pipeline]
circuit = "circuit.py:pipeline"
runtime = "local"
workers = 1
[http]
enabled = false
[step]
max_step_delay_ms = 0
"""
loads = st.lists(st.tuples(st.floats(0.0, 5000.0), st.integers(0, 5000)), min_size=1, max_size=200)
sections = st.builds(
    lambda low, more, window, cooldown: replace(
        SECTION, workers_min=low, workers_max=low + more, window_s=window, cooldown_s=cooldown
    ),
    st.integers(1, 4),
    st.integers(0, 12),
    st.floats(1, 30),
    st.floats(1, 100),
)


def run(section: AutoscaleSection, workers: int, load: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """A second a step; latency falls with the workers. (when, count) of every decision."""
    watching, changes = Watching(since_s=0.0), []
    for second, (work, waiting) in enumerate(load):
        now = float(second)
        sample = Sample(at_s=now, latency_ms=work / workers, backlog_rows=waiting // workers)
        watching = seen(watching, sample, section)
        wanted, watching = decide(watching, workers, now, section)
        if wanted is not None:
            assert wanted != workers
            workers = wanted
            changes.append((now, workers))
    return changes


@given(sections, st.integers(1, 20), loads)
def test_counts_stay_within_the_bounds_and_changes_apart(
    section: AutoscaleSection, workers: int, load: list[tuple[float, int]]
) -> None:
    changes = run(section, workers, load)
    assert all(section.workers_min <= count <= section.workers_max for _, count in changes)
    for (before, _), (after, _) in pairwise(changes):
        assert after - before >= section.cooldown_s


@given(sections, st.integers(1, 20), st.floats(0, 20_000), st.integers(0, 20_000))
def test_a_constant_load_never_makes_it_swing(
    section: AutoscaleSection, workers: int, work: float, waiting: int
) -> None:
    counts = [workers, *(count for _, count in run(section, workers, [(work, waiting)] * 3000))]
    inside = [count for count in counts if section.workers_min <= count <= section.workers_max]
    steps = [after - before for before, after in pairwise(inside)]
    assert all(step > 0 for step in steps) or all(step < 0 for step in steps), counts


@given(loads)
def test_off_is_off(load: list[tuple[float, int]]) -> None:
    assert run(replace(SECTION, enabled=False), 3, load) == []


def test_it_grows_when_steps_are_slow_or_rows_wait() -> None:
    assert run(SECTION, 1, [(150.0, 0)] * 12) == [(10.0, 2)]
    assert run(SECTION, 1, [(1.0, 1500)] * 12) == [(10.0, 2)]
    assert run(SECTION, 1, [(150.0, 0), (1.0, 0), (1.0, 0)] * 20) == [], "one slow step of three is no reason"


def test_it_shrinks_one_by_one_when_there_is_little_to_do() -> None:
    assert run(SECTION, 3, [(10.0, 0)] * 100) == [(10.0, 2), (70.0, 1)]


def test_idle_is_little_to_do() -> None:
    assert decide(Watching(since_s=0.0), 3, 100.0, SECTION)[0] == 2


def test_what_waits_now_speaks_against_fewer_workers() -> None:
    """Behind a pause no sample tells of it."""
    assert may_do_with(2, 3, 333, SECTION)
    assert not may_do_with(2, 3, 334, SECTION), "a half of the bound, were it shared by two instead of three"
    assert may_do_with(8, 9, 20_000, SECTION), "more than there may be"


@pytest.mark.parametrize(
    "wrong",
    [{"workers_min": 0}, {"workers_min": 5, "workers_max": 4}, {"window_s": 0.0}, {"step_latency_ms_max": -1.0}],
)
def test_bounds_between_which_nothing_fits_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        AutoscaleSection(**wrong)  # type: ignore[arg-type]


def test_the_service_goes_on_with_more_workers_when_steps_are_slow(tmp_path: Path) -> None:
    """Any step is slower than the bound, so the policy asks for more until there are `workers_max`."""
    (tmp_path / "circuit.py").write_text(CIRCUIT)
    bounds = "enabled = true\nworkers_max = 3\nstep_latency_ms_max = 0.001\nwindow_s = 0.05\ncooldown_s = 0.05\n"
    (tmp_path / "pipeline.toml").write_text(SETTINGS + "[autoscale]\n" + bounds)
    with Service(load_config(tmp_path / "pipeline.toml", environment={})) as service:
        count = 0
        while len(service.layout().workers) < 3:
            assert count < 2000, service.status()
            position = service.push("t", pa.table({"x": [count]}))
            service.wait_until_processed(position, 60)
            count += 1
        position = service.push("t", pa.table({"x": [count]}))
        service.wait_until_processed(position, 60)
        (row,) = service.read_view("v").table.to_pylist()
        assert (row["n"], row["weight"]) == (count + 1, 1)
    story = (tmp_path / "data" / "coordinator.log").read_text()
    assert '"autoscale"' in story


class LaterClock(SystemClock):
    """The clock, set forward."""

    ahead_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.ahead_s


def test_no_worker_is_taken_away_while_a_pause_has_left_much_to_do(tmp_path: Path) -> None:
    (tmp_path / "circuit.py").write_text(CIRCUIT)
    bounds = "enabled = true\nworkers_max = 3\nbacklog_rows_max = 1000\nwindow_s = 600\ncooldown_s = 3600\n"
    text = SETTINGS.replace("workers = 1", "workers = 2") + "[autoscale]\n" + bounds
    (tmp_path / "pipeline.toml").write_text(text)
    config, clock = load_config(tmp_path / "pipeline.toml", environment={}), LaterClock()
    with Service(config, build(config, clock=clock)) as service:
        service.pause()
        position = service.push("t", pa.table({"x": range(20_000)}))
        assert service.board.wait_for(lambda now: now.state == "Paused", 60)
        clock.ahead_s = 601.0
        service.resume()
        service.wait_until_processed(position, 60)
        assert service.board.wait_for(lambda now: len(now.layout.workers) == 1, 60), "idle is little to do"
    story = [json.loads(line) for line in (tmp_path / "data" / "coordinator.log").read_text().splitlines()]
    events = [event["event"] for event in story if event["event"] != "step" or event["rows_in"]]
    assert events.index("step") < events.index("autoscale")


def test_it_needs_a_place_for_the_workers(tmp_path: Path) -> None:
    (tmp_path / "circuit.py").write_text(CIRCUIT)
    kafka = '[input]\nkind = "kafka"\nbootstrap = "b:1"\n[output]\nkind = "kafka"\nbootstrap = "b:1"\n'
    text = SETTINGS.replace('runtime = "local"', 'runtime = "spark"') + kafka + '[spark]\nmaster = "spark://a:1"\n'
    (tmp_path / "pipeline.toml").write_text(text + "[autoscale]\nenabled = true\n")
    with pytest.raises(ConfigError, match="no host is named"):
        build(load_config(tmp_path / "pipeline.toml", environment={}))
