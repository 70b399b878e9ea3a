"""The autoscale policy: its bounds, its cool-down, no swinging; and the service that acts on it."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp.coordinator.build import build
from dbsp.coordinator.decisions.autoscale import AutoscaleSection, Sample, Watching, decide, looked, may_do_with, seen
from dbsp.coordinator.running.clock import SystemClock
from dbsp.coordinator.running.control import Ledger, request_rescale
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import Config, load_config
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
        watching = looked(watching, len(changes), now, moving=False)
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
    assert run(SECTION, 3, [(10.0, 0)] * 100) == [(10.0, 2), (71.0, 1)]


def test_idle_is_little_to_do() -> None:
    assert decide(Watching(since_s=0.0), 3, 100.0, SECTION)[0] == 2


BUSY = Sample(at_s=99.0, latency_ms=5000, backlog_rows=0)


def test_a_change_of_the_layout_begins_the_cool_down_whoever_asked_for_it() -> None:
    before = seen(Watching(since_s=0.0, layout=1), BUSY, SECTION)
    assert decide(before, 4, 100.0, SECTION)[0] == 8
    after = looked(before, 2, 100.0, moving=False)
    assert after.samples == ()
    assert decide(seen(after, replace(BUSY, at_s=159.0), SECTION), 4, 159.0, SECTION)[0] is None
    assert decide(seen(after, replace(BUSY, at_s=160.0), SECTION), 4, 160.0, SECTION)[0] == 8
    assert looked(after, 2, 120.0, moving=False) is after


def test_the_cool_down_begins_when_a_long_rescale_is_over() -> None:
    wanted, asked = decide(seen(Watching(since_s=0.0, layout=1), BUSY, SECTION), 2, 100.0, SECTION)
    assert wanted == 4
    moving = looked(asked, 1, 500.0, moving=True)
    over = looked(moving, 2, 501.0, moving=False)
    assert decide(over, 4, 560.0, SECTION)[0] is None, "the decision was long ago, the change was not"
    assert decide(over, 4, 561.0, SECTION)[0] == 3


def test_the_window_begins_anew_behind_a_rescale_that_came_to_nothing() -> None:
    """No step is measured meanwhile; an empty window would say that there is nothing to do."""
    moving = looked(seen(Watching(since_s=0.0, layout=1), BUSY, SECTION), 1, 200.0, moving=True)
    over = looked(moving, 1, 201.0, moving=False)
    assert decide(over, 2, 209.0, SECTION)[0] is None
    assert decide(over, 2, 210.0, SECTION)[0] == 1


def test_a_count_outside_the_bounds_is_corrected_at_once() -> None:
    after = looked(Watching(since_s=0.0, layout=1), 2, 100.0, moving=False)
    assert decide(after, 4, 100.0, replace(SECTION, workers_max=3))[0] == 3
    wanted, asked = decide(after, 4, 100.0, replace(SECTION, workers_min=5))
    assert wanted == 5
    assert decide(asked, 4, 101.0, replace(SECTION, workers_min=5))[0] is None, "it was asked for, and could not be"
    assert decide(asked, 4, 160.0, replace(SECTION, workers_min=5))[0] == 5
    again = looked(asked, 3, 101.0, moving=False)
    assert decide(again, 9, 101.0, SECTION)[0] == 8, "another change, by hand"


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
    bounds = "workers_max = 3\nstep_latency_ms_max = 0.001\nwindow_s = 0.05\ncooldown_s = 0.05"
    with Service(with_autoscale(tmp_path, 1, bounds)) as service:
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
    assert counts_asked_for(tmp_path)


class LaterClock(SystemClock):
    """The clock, set forward."""

    ahead_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.ahead_s


def test_no_worker_is_taken_away_while_a_pause_has_left_much_to_do(tmp_path: Path) -> None:
    bounds = "workers_max = 3\nbacklog_rows_max = 1000\nwindow_s = 600\ncooldown_s = 3600"
    config, clock = with_autoscale(tmp_path, 2, bounds), LaterClock()
    with Service(config, build(config, clock=clock)) as service:
        service.pause()
        position = service.push("t", pa.table({"x": range(20_000)}))
        assert service.live_status.wait_for(lambda now: now.state == "Paused", 60)
        clock.ahead_s = 601.0
        service.resume()
        service.wait_until_processed(position, 60)
        assert len(service.layout().workers) == 2, "a pause is no idle window"
        clock.ahead_s = 1202.0
        assert service.live_status.wait_for(lambda now: len(now.layout.workers) == 1, 60), "idle is little to do"
    events = [event["event"] for event in told(tmp_path) if event["event"] != "step" or event["rows_in"]]
    assert events.index("step") < events.index("autoscale")


def with_autoscale(folder: Path, workers: int, bounds: str) -> Config:
    (folder / "circuit.py").write_text(CIRCUIT)
    text = SETTINGS.replace("workers = 1", f"workers = {workers}")
    (folder / "pipeline.toml").write_text(text + f"[autoscale]\nenabled = true\n{bounds}\n[log]\nsteps = true\n")
    return load_config(folder / "pipeline.toml", environment={})


def rest_and_go_on(service: Service, clock: LaterClock, *, workers: int) -> None:
    """Behind a window with nothing to do the policy would take a worker away; it does when the cool-down is over."""
    for _ in range(5):  # behind each step the policy is asked
        service.wait_until_processed(service.push("t", pa.table({"x": [1]})), 60)
    clock.ahead_s += 601.0
    for _ in range(5):
        service.wait_until_processed(service.push("t", pa.table({"x": [1]})), 60)
    assert len(service.layout().workers) == workers
    assert service.snapshot.rescale is service.snapshot.waiting is None
    clock.ahead_s += 3000.0
    assert service.live_status.wait_for(lambda now: len(now.layout.workers) == workers - 1, 60)


def told(folder: Path) -> list[dict[str, Any]]:
    """What the log says."""
    return [json.loads(line) for line in (folder / "data" / "coordinator.log").read_text().splitlines()]


def counts_asked_for(folder: Path) -> list[int]:
    return [event["workers"] for event in told(folder) if event["event"] == "autoscale"]


@pytest.mark.parametrize("strategy", ["cold", "warmup", "icadd"])
def test_behind_a_rescale_by_hand_the_cool_down_is_kept(tmp_path: Path, strategy: str) -> None:
    config, clock = with_autoscale(tmp_path, 1, "window_s = 600\ncooldown_s = 3600"), LaterClock()
    with Service(config, build(config, clock=clock)) as service:
        service.wait_until_processed(service.push("t", pa.table({"x": range(100)})), 60)
        service.rescale(3, 60, strategy=strategy)
        rest_and_go_on(service, clock, workers=3)
    assert counts_asked_for(tmp_path) == [2]


@pytest.mark.parametrize("sliced", [False, True])
def test_behind_a_rescale_that_a_start_carries_out_the_cool_down_is_kept(tmp_path: Path, sliced: bool) -> None:
    """As a kill leaves it: there is the request alone, or all workers hold a version that nobody has published."""
    config, clock = with_autoscale(tmp_path, 1, "window_s = 600\ncooldown_s = 3600"), LaterClock()
    service = Service(config, build(config, clock=clock))
    service.start()
    service.wait_until_processed(service.push("t", pa.table({"x": range(100)})), 60)
    if sliced:
        control = service.built.parts.control
        before = control.load()
        assert before is not None
        service.rescale(3, 60)
        control.change(None, lambda ledger: unpublished(ledger, before))
    else:
        service.request_rescale(3)
    service.stop(now=True)
    built = build(config, clock=clock)
    assert len(built.facts.layout.workers) == 1
    with Service(config, built) as service:
        assert service.live_status.wait_for(lambda now: now.settled and len(now.layout.workers) == 3, 60)
        rest_and_go_on(service, clock, workers=3)
    assert counts_asked_for(tmp_path) == [2]


def unpublished(ledger: Ledger, before: Ledger) -> Ledger:
    """The newest version is one that was about to be published, for a rescale to its workers; layouts go when it is."""
    newest = ledger.saved[ledger.published]
    workers = len(ledger.layouts[newest.checkpoint.layout_version].workers)
    saved = {**ledger.saved, newest.version: replace(newest, published=False)}
    layouts = {**before.layouts, **ledger.layouts}
    return request_rescale(replace(ledger, saved=saved, layouts=layouts), workers)


def test_a_start_alone_begins_a_window_and_no_cool_down(tmp_path: Path) -> None:
    config, clock = with_autoscale(tmp_path, 2, "window_s = 600\ncooldown_s = 3600"), LaterClock()
    starting = Service(config, build(config, clock=clock))
    clock.ahead_s = 601.0  # so long it recovers
    with starting as service:
        for _ in range(5):  # behind each step the policy is asked
            service.wait_until_processed(service.push("t", pa.table({"x": [1]})), 60)
        assert len(service.layout().workers) == 2
        clock.ahead_s = 1202.0
        assert service.live_status.wait_for(lambda now: len(now.layout.workers) == 1, 60)


def test_a_count_by_hand_outside_the_bounds_is_corrected_at_once_and_then_the_cool_down_is_kept(tmp_path: Path) -> None:
    bounds = "workers_min = 1\nworkers_max = 3\nwindow_s = 600\ncooldown_s = 3600"
    config, clock = with_autoscale(tmp_path, 2, bounds), LaterClock()
    with Service(config, build(config, clock=clock)) as service:
        service.rescale(5, 60)
        assert service.live_status.wait_for(lambda now: len(now.layout.workers) == 3, 60)
        rest_and_go_on(service, clock, workers=3)
    assert counts_asked_for(tmp_path) == [3, 2]


def test_it_needs_a_place_for_the_workers(tmp_path: Path) -> None:
    (tmp_path / "circuit.py").write_text(CIRCUIT)
    kafka = '[input]\nkind = "kafka"\nbootstrap = "b:1"\n[output]\nkind = "kafka"\nbootstrap = "b:1"\n'
    text = SETTINGS.replace('runtime = "local"', 'runtime = "spark"') + kafka + '[spark]\nmaster = "spark://a:1"\n'
    (tmp_path / "pipeline.toml").write_text(text + "[autoscale]\nenabled = true\n")
    with pytest.raises(ConfigError, match="no host is named"):
        build(load_config(tmp_path / "pipeline.toml", environment={}))
