"""Waterlines per input partition in a whole service: backlogs, idle partitions, restarts, data of 0.1.0 (row 46)."""

from __future__ import annotations

import datetime as dt
import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dbsp
from dbsp.coordinator.build import build
from dbsp.coordinator.http.app import metrics_of
from dbsp.coordinator.running.clock import SystemClock
from dbsp.coordinator.running.time_text import waterline_text
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import load_config
from dbsp.errors import ConfigError
from dbsp.io.embedded_steps import EmbeddedStepLog
from tests.coordinator.test_timers import until

CIRCUIT = """
import dbsp

clicks = dbsp.table("clicks", {"id": dbsp.INT64, "at": dbsp.TIMESTAMP}, watermark={"at": dbsp.seconds(10)})
closed = clicks.tumble("at", dbsp.seconds(60)).group_by("window_end").aggregate(emit="final", n=dbsp.count())
pipeline = dbsp.circuit("clicks", {"closed": closed})
"""
SETTINGS = """
[pipeline]
name = "clicks"
circuit = "circuit.py:pipeline"
runtime = "local"
workers = 2
[checkpoint]
interval_s = 3600
[step]
max_step_delay_ms = 0
max_rows_per_step = 5000
[http]
port = 0
[input]
partitions = 2
"""
START = dt.datetime(2024, 1, 1)


class Jumping(SystemClock):
    """A clock that stands still, and that a test moves on."""

    def __init__(self) -> None:
        self.now_s = super().monotonic_s()

    def monotonic_s(self) -> float:
        return self.now_s


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "circuit.py").write_text(CIRCUIT)
    (tmp_path / "pipeline.toml").write_text(SETTINGS)
    return tmp_path


@contextmanager
def started(
    folder: Path, clock: Jumping | None = None, *overrides: str, accepting: Sequence[str] = ()
) -> Iterator[Service]:
    config = load_config(folder / "pipeline.toml", overrides=overrides, environment={})
    service = Service(config, build(config, clock=clock or Jumping(), accepting=accepting))
    try:
        service.start(timeout_s=60)
        yield service
        service.stop(now=True)
    finally:
        service.stop(now=True, quiet=True)


def clicks(seconds: Sequence[int]) -> pa.Table:
    at = [START + dt.timedelta(seconds=second) for second in seconds]
    return pa.table({"id": list(range(len(at))), "at": pa.array(at, dbsp.TIMESTAMP)})


def push(service: Service, partition: int, *seconds: int) -> None:
    """Rows at these seconds, in a step that is over on return."""
    service.wait_until_processed(service.push("clicks", clicks(seconds), partition=partition), 60)


def shown(service: Service) -> dict[str, Any]:
    (found,) = service.status()["waterlines"]
    return found


def figures(service: Service) -> dict[str, float]:
    """What `/metrics` says of waterlines, by metric and partition."""
    lines = metrics_of(service).decode().splitlines()
    found = re.finditer(
        r'^dbsp_waterline_(\w+)\{(?:partition="(\d+)",)?watermark="clicks.at"\} (\S+)$', "\n".join(lines), re.MULTILINE
    )
    return {f"{each[1]} {each[2] or ''}".strip(): float(each[3]) for each in found}


def at(second: int) -> float:
    return (START.replace(tzinfo=dt.UTC) + dt.timedelta(seconds=second)).timestamp()


def closed(service: Service) -> dict[int, int]:
    """Rows per closed window, by its end in seconds."""
    rows = service.read_view("closed").table.to_pylist()
    return {int((row["window_end"] - START).total_seconds()): row["n"] for row in rows}


def uneven() -> tuple[list[int], list[int]]:
    """Seconds of 20,000 rows each: three a second in the first 5,000 s and one after, and the other way round."""
    one = [*(second for second in range(5000) for _ in range(3)), *range(5000, 10_000)]
    return one, [*range(5000), *(second for second in range(5000, 10_000) for _ in range(3))]


def expected(partitions: Sequence[Sequence[int]]) -> Counter[int]:
    return Counter(second // 60 * 60 + 60 for seconds in partitions for second in seconds)


def test_a_backlog_of_uneven_partitions_has_no_late_rows(folder: Path) -> None:
    """The backlog is cut into steps of 5,000 rows: the same share of each partition, which is not the same time."""
    backlog = uneven()
    config = load_config(folder / "pipeline.toml", environment={})
    service = Service(config)
    last = [service.push("clicks", clicks(seconds), partition=each) for each, seconds in enumerate(backlog)]
    try:
        service.start(timeout_s=60)
        for position in last:
            service.wait_until_processed(position, 60)
        assert service.snapshot.step >= 8, "it was cut"
        assert service.snapshot.dead == 0
        until(lambda: closed(service).keys() >= {9960})
        assert closed(service) == {end: n for end, n in expected(backlog).items() if end <= 9989}
    finally:
        service.stop(quiet=True)


def test_files_of_uneven_partitions_have_no_late_rows(folder: Path) -> None:
    """A file's rows are shared among the partitions as stretches: each is another time."""
    backlog = uneven()
    for number, seconds in enumerate([backlog[0][:7000], backlog[0][7000:]]):
        (folder / "landing" / "clicks").mkdir(parents=True, exist_ok=True)
        pq.write_table(clicks(seconds), folder / "landing" / "clicks" / f"{number}.parquet")
    with started(folder, None, "input.kind=files", "input.directory=landing") as service:
        until(lambda: service.snapshot.rows_in >= 20_000)
        assert service.snapshot.step >= 4, "it was cut"
        assert service.snapshot.dead == 0
        assert shown(service)["partitions"] == 2
        until(lambda: len(closed(service)) > 50)
        assert closed(service).items() <= expected(backlog[:1]).items()


def test_an_idle_partition_is_left_out_by_a_logged_decision(folder: Path) -> None:
    clock = Jumping()
    with started(folder, clock) as service:
        push(service, 0, 30, 100)
        until(lambda: shown(service)["held_back_by"] == {"partition": 1, "reached": None})  # the next decision says it
        assert waterline_text(shown(service)) == (
            "clicks.at: waterline none yet, held back by partition 1, which has no rows yet\n"
            "  partition 0: 2024-01-01T00:01:30.000000\n  partition 1: no rows yet"
        )
        assert figures(service) == {
            "partition_unix_seconds 0": at(90), "partition_idle 0": 0, "partition_idle 1": 0,
            "partition_holds_back 0": 0, "partition_holds_back 1": 1,
        }  # fmt: skip
        clock.now_s += 59
        push(service, 0, 101)
        assert not shown(service)["idle"]
        assert closed(service) == {}
        clock.now_s += 60
        until(lambda: closed(service) == {60: 1})
        assert 1 in shown(service)["idle"]
        assert shown(service)["waterline"] == "2024-01-01T00:01:31.000000"
        found = figures(service)
        assert (found["unix_seconds"], found["partition_idle 1"], found["partition_holds_back 1"]) == (at(91), 1, 0)
    records = EmbeddedStepLog(folder / "data").read(0)
    assert records[0].idle == ()
    assert ("clicks", 1) in records[-1].idle
    assert records[-1].waterlines
    noted = map(json.loads, (folder / "data" / "coordinator.log").read_text().splitlines())
    assert ["clicks", 1] in [place for each in noted if each["event"] == "idle" for place in each["partitions"]]
    with started(folder, clock) as service:  # by a replay of the step log, without a checkpoint
        push(service, 1, 50)  # it was idle: its rows may come too late
        assert service.snapshot.dead == 1
        push(service, 0, 300)
        assert shown(service)["held_back_by"] == {"partition": 1, "reached": "2024-01-01T00:00:40.000000"}
        until(lambda: figures(service)["partition_unix_seconds 0"] == at(290))  # the next decision says it
        found = figures(service)
        assert found["partition_unix_seconds 1"] == at(40)
        assert (found["partition_holds_back 0"], found["partition_holds_back 1"]) == (0, 1)
        push(service, 1, 200)
        until(lambda: closed(service) == {60: 1, 120: 2})
        assert service.snapshot.dead == 1


class Away:
    """A source that may not answer."""

    answers = True

    def __init__(self, clock: Jumping) -> None:
        self._clock = clock

    def settled_s(self) -> dict[tuple[str, int], float | None]:
        return {("clicks", 1): self._clock.monotonic_s() if self.answers else None}


def test_a_partition_whose_source_is_away_is_not_idle(folder: Path) -> None:
    clock = Jumping()
    source = Away(clock)
    source.answers = False
    with started(folder, clock) as service:
        service.built.parts.waterlines.ask(source)
        push(service, 0, 30, 100)
        clock.now_s += 1000
        push(service, 0, 101)
        assert shown(service)["idle"] == []
        source.answers = True
        push(service, 0, 102)
        assert shown(service)["idle"] == [], "it rests from now on"
        clock.now_s += 60
        until(lambda: closed(service) == {60: 1})


def test_one_waterline_of_0_1_0_goes_on_per_partition(folder: Path) -> None:
    """A checkpoint and steps above it of 0.1.0, in which rows of partition 1 were late by what partition 0 had."""
    with zipfile.ZipFile(Path(__file__).parent / "kept" / "time" / "0.1.0.zip") as found:
        found.extractall(folder)
    with started(folder, accepting=["0.1.0"]) as service:
        assert service.snapshot.step >= 10, "the steps above the checkpoint were run again"
        before = service.snapshot.dead
        push(service, 1, 115)
        assert shown(service)["waterline"] == "2024-01-01T00:02:00.000000", "that of 0.1.0 stands"
        assert service.snapshot.dead == before + 1, "115 is below it"
        push(service, 0, 200)
        push(service, 1, 125)
        push(service, 1, 124)
        assert service.snapshot.dead == before + 1, "from now on partition 1 is judged by its own rows"
        push(service, 1, 200)
        until(lambda: closed(service) == {60: 2, 120: 2, 180: 3})


def test_idle_settings_name_a_table_and_seconds(folder: Path) -> None:
    def config(*overrides: str) -> Any:
        return load_config(folder / "pipeline.toml", overrides=overrides, environment={}).input

    assert config().idle_s_of("clicks") == 60
    assert config("input.idle_s=5", "input.idle_tables_s={ clicks = 300 }").idle_s_of("clicks") == 300
    assert config("input.idle_s=5", "input.idle_tables_s={ clicks = 300 }").idle_s_of("views") == 5
    for override, message in (
        ("input.idle_s=-1", "too small: input.idle_s=-1"),
        ("input.idle_tables_s={ clicks = -2 }", "too small: input.idle_tables_s.clicks=-2"),
        ("input.idle_tables_s={ clicks = 'soon' }", "not a number of seconds: input.idle_tables_s.clicks=soon"),
    ):
        with pytest.raises(ConfigError, match=message):
            config(override)
    with pytest.raises(ConfigError, match=r"no such table: input.idle_tables_s names click"):
        build(load_config(folder / "pipeline.toml", overrides=["input.idle_tables_s={ click = 3 }"], environment={}))
