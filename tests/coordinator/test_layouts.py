"""What `coordinator layout` and `rescale --dry-run` say, and which rescales are refused."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from dbsp.coordinator.build import facts_of
from dbsp.coordinator.layouts import StateRates, check_named, layout_as_json, plan_rescale
from dbsp.coordinator.running.control import new_ledger
from dbsp.coordinator.running.ledger_file import decode_ledger, encode_ledger
from dbsp.coordinator.running.notices import (
    CheckpointPublished,
    CommandFailed,
    MigrationBegun,
    RescaleMoved,
    StateChanged,
)
from dbsp.coordinator.running.progress import rescale_as_text
from dbsp.errors import ConfigError
from dbsp.layout import initial, rescaled
from dbsp.runtime.runtime import StepReport
from tests.coordinator import fakes
from tests.io.log_samples import make_record

MB = 1_000_000
FOUR = {0: 1000, 1: 3000, 2: 2000, 3: 2000}


def rates(now: list[float]) -> StateRates:
    return StateRates(lambda: now[0])


def test_a_plan_tells_shards_bytes_and_the_least() -> None:
    plan = plan_rescale(initial(4, shards=64), 5, step=7, state_bytes=FOUR, rates=rates([0.0]))
    assert (plan.shards_moved, plan.shards, plan.least) == (12, 64, 12 / 64)
    assert (plan.bytes_moved, plan.bytes_total) == (1500, 8000), "three of sixteen shards of everybody"
    assert "an assumption" in plan.pause_from
    text = rescale_as_text({**asdict(plan), "share": plan.share, "done": False})
    assert "12 of 64 shards (18.8%; at least 18.8% must), about 1,500 of 8,000 bytes" in text


def test_nothing_is_said_of_bytes_before_a_step() -> None:
    plan = plan_rescale(initial(4), 2, step=0, state_bytes={}, rates=rates([0.0]))
    assert (plan.bytes_moved, plan.pause_seconds) == (None, None)


def state(name: str) -> StateChanged:
    return StateChanged(state=name, step=0)


def written(seconds: float, count: int) -> CheckpointPublished:
    return CheckpointPublished(
        version=1, step=0, seconds=seconds, pause_seconds=0.0, bytes_written=count, state_bytes=count
    )


def moved_bytes(count: int, *, ahead: int) -> RescaleMoved:
    return RescaleMoved(
        workers=3, workers_before=2, shards_moved=1, shards=4, bytes_moved=count, bytes_total=count, bytes_ahead=ahead
    )


def test_a_pause_is_told_from_what_was_measured() -> None:
    now = [10.0]
    heard = rates(now)
    heard.noted(written(2.0, 1000 * MB))
    assert heard.pause(500 * MB, 8000 * MB) == (3.0, "the last checkpoint (an estimate)")
    heard.noted(state("Rescaling"))
    heard.noted(moved_bytes(500 * MB, ahead=0))
    now[0] = 14.0
    heard.noted(state("Running"))
    assert heard.pause(1000 * MB, 8000 * MB) == (8.0, "the last cold rescale")
    heard.noted(state("Rescaling"))
    heard.noted(CommandFailed(command="RunStep", code="data", error="bytes are wrong"))
    now[0] = 99.0
    heard.noted(state("Running"))
    assert heard.pause(1000 * MB, 8000 * MB) == (8.0, "the last cold rescale"), "one that failed measures nothing"


@pytest.mark.parametrize("moved", [0, 1000])
def test_few_bytes_do_not_tell_how_long_many_take(moved: int) -> None:
    now = [0.0]
    heard = rates(now)
    heard.noted(written(0.1, 1000))
    assert heard.pause(100 * MB, 200 * MB)[0] == pytest.approx(1.1)
    heard.noted(state("Rescaling"))
    heard.noted(moved_bytes(moved, ahead=0))
    now[0] = 0.05
    heard.noted(state("Running"))
    assert heard.pause(100 * MB, 200 * MB)[0] == pytest.approx(1.05, rel=1e-4)


def test_only_a_cold_rescale_measures_a_pause() -> None:
    """In the others steps stop for a moment, and go on while most moves, for minutes perhaps."""
    now = [0.0]
    heard = rates(now)
    for notice in (
        (state("Rescaling")),
        (MigrationBegun(strategy="icadd", workers=3)),
        (state("Running")),
        (moved_bytes(500, ahead=0)),
        (state("Rescaling")),
        (moved_bytes(500, ahead=400)),
        (state("Running")),
    ):
        now[0] += 30.0
        heard.noted(notice)
        heard.stepped(make_record(0), StepReport(step=0, seconds=1.0, workers=()), replay=False, lag_rows=0)
    assert "an assumption" in heard.pause(1000, 8000)[1]


def test_a_layout_has_a_row_for_every_worker() -> None:
    found = layout_as_json(initial(2, shards=4, hosts=[("a", 1.0), ("b", 1.0)]), {"t": 3}, {0: 5})
    assert found["rows"] == [
        {
            "worker": 0, "host": "a", "shards": 2, "first_step": 0, "ranges": [["0" * 16, "7" + "f" * 15]],
            "partitions": {"t": [0, 2]}, "state_bytes": 5,
        },
        {
            "worker": 1, "host": "b", "shards": 2, "first_step": 0, "ranges": [["8" + "0" * 15, "f" * 16]],
            "partitions": {"t": [1]}, "state_bytes": None,
        },
    ]  # fmt: skip


def test_hosts_with_disks_of_their_own_are_named() -> None:
    cluster = {"spark": {"master": "spark://a:7077"}, "pipeline": {"circuit": "c.py:c", "runtime": "spark"}}
    unnamed = fakes.config(**cluster)
    with pytest.raises(ConfigError, match=r"no host is named: spark\.master=spark://a:7077") as refused:
        check_named(unnamed)
    assert "hosts = [" in str(refused.value.hint)
    check_named(replace(unnamed, layout=replace(unnamed.layout, common_disk=True)), [initial(2)])
    check_named(fakes.config(), [initial(2)])
    named = fakes.config(layout={"hosts": ["a", "b"]}, **cluster)
    check_named(named, [initial(2, host="a")])
    with pytest.raises(ConfigError, match=r"made without a host: workers=\[0, 1\]"):
        check_named(named, [initial(1, host="a"), initial(2)])


def test_hosts_of_the_settings_are_where_the_next_workers_go() -> None:
    ledger = new_ledger(fingerprint="f", nodes=[], layout=initial(1, host="a"))
    assert decode_ledger(encode_ledger(ledger)) == ledger
    settings = fakes.config(layout={"hosts": ["a", "b"], "weights": {"b": 3}})
    layout = facts_of(ledger, settings).layout
    assert rescaled(layout, 3, step=4).hosts == ("a", "b", "b")
