"""Copies that may lag with Kafka in and out: a lost disk takes all workers back, and a plain consumer sees every result once."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import load_config
from dbsp.io.kafka import KafkaSettings
from dbsp.io.kafka.client import ensure_topic
from tests.coordinator.hosted import events
from tests.coordinator.test_copies_lagging import caught_up, lag, troubled
from tests.kafka.test_service_kafka import config, orders, wait_for
from tests.kafka.topics import messages, weighted

pytestmark = [pytest.mark.kafka, pytest.mark.crash]


def service(folder: Path) -> Service:
    overrides = [
        "checkpoint.interval_s=1000", "checkpoint.copies=spare", "checkpoint.copies_required=0", "http.enabled=false",
    ]  # fmt: skip
    return Service(load_config(folder / "pipeline.toml", overrides=overrides, environment={}))


def test_a_lost_disk_doubles_nothing(settings: KafkaSettings, tmp_path: Path) -> None:
    """Three versions are newer than the newest whole copy; steps after the last of them are logged, too."""
    config(settings, tmp_path)
    ensure_topic(settings, f"{settings.pipeline}.in", 1)

    def taken(running: Service, first: int, *, checkpoint: bool = True) -> None:
        orders(settings, first, first + 50)
        wait_for(running, first + 50)
        if checkpoint:
            assert running.checkpoint(60)

    with troubled(tmp_path / "spare") as troubles:
        with service(tmp_path) as running:
            taken(running, 0)
            caught_up(running)
            whole = lag(running)
            troubles.mode = "away"
            for first in (50, 100, 150):
                taken(running, first)
            assert (lag(running)["version"], lag(running)["lag_versions"]) == (whole["version"], 3)
            taken(running, 200, checkpoint=False)
            running.stop(now=True)
        shutil.rmtree(tmp_path / "data" / "workers" / "0001")
        troubles.mode = "well"
        with service(tmp_path) as running:
            taken(running, 250)
            caught_up(running)
    (returned,) = events(tmp_path, "returned-to-copies")
    assert (returned["version"], returned["step"], returned["lost"]) == (whole["version"], whole["step"], [1])
    total, seen = Counter[Any](), Counter[Any]()
    for message in messages(settings, f"{settings.pipeline}.per_customer"):
        step, (row, weight) = weighted(message)
        total[row] += weight
        seen[step, row, weight] += 1
    assert {row: weight for row, weight in total.items() if weight} == {("c", 300, sum(range(300))): 1}
    assert set(seen.values()) == {1}, "a change was put out twice"
