"""Fault row 63 with Kafka's logs: standbys on other hosts, which share nothing with the coordinator but brokers and copies.

Another host is another data folder: its lock and its ledger are its own.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from dbsp.coordinator.address import read_address
from dbsp.errors import ConfigError, FencedError
from dbsp.io.kafka import KafkaSettings
from dbsp.io.kafka.client import ensure_topic
from dbsp.io.kafka.heartbeats import KafkaHeartbeats
from dbsp.io.kafka.steps import KafkaStepLog
from dbsp.logs import Heartbeat
from tests import plain_http
from tests.coordinator.shop import script
from tests.coordinator.test_standby_coordinator import Started
from tests.kafka.test_service_kafka import config
from tests.kafka.topics import messages, send, weighted
from tests.spark.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.crash]

LEASE_S = 2
Start = Callable[..., Started]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Start]:
    """Start a process of the command on a "host"."""
    made: list[Started] = []

    def start(host: Path, *arguments: str) -> Started:
        made.append(Started(host, f"said{len(made)}", *arguments))
        return made[-1]

    yield start
    for each in made:
        each.process.kill()


def host(settings: KafkaSettings, folder: Path) -> Path:
    folder.mkdir()
    config(settings, folder)
    file = folder / "pipeline.toml"
    file.write_text(
        file.read_text().replace(
            "[http]", f'copies = "{folder.parent}/spare"\n[coordinator]\nlease_s = {LEASE_S}\n[http]'
        )
    )
    return folder


def totals(folder: Path, process: Started) -> dict[str, tuple[int, int]]:
    """The view, as the process on this host answers; empty while it does not."""
    found = read_address(folder / "data")
    if found.get("pid") != process.process.pid:
        return {}
    try:
        rows = plain_http.ask("GET", f"{found['url']}/v1/views/per_customer").json().get("rows", [])
    except httpx.HTTPError:
        return {}
    return {row["customer"]: (row["orders"], row["amount"]) for row in rows}


def give(settings: KafkaSettings, numbers: range) -> None:
    orders = [{"id": number, "customer": f"c{number % 3}", "amount": number} for number in numbers]
    send(settings, f"{settings.pipeline}.in", [json.dumps(order).encode() for order in orders])


def expected(count: int) -> dict[str, tuple[int, int]]:
    return {f"c{rest}": (len(range(rest, count, 3)), sum(range(rest, count, 3))) for rest in range(3)}


def test_standbys_elsewhere_take_over_and_the_old_one_is_fenced(
    settings: KafkaSettings, tmp_path: Path, started: Start
) -> None:
    """Killed, then stopped in its tracks; the third one goes on where an older ledger and older databases are.

    The first is a standby, too, as where a supervisor starts all of them alike.
    """
    ensure_topic(settings, f"{settings.pipeline}.in", 2, {})
    one, two = host(settings, tmp_path / "one"), host(settings, tmp_path / "two")
    first = started(one, "--standby")
    give(settings, range(10))
    until(lambda: totals(one, first) == expected(10), "the first has taken all")
    second = started(two, "--standby")
    second.wait_until_it_says("standing by")
    give(settings, range(10, 20))
    until(lambda: totals(one, first) == expected(20), "the first goes on")
    assert "goes on" not in second.said
    killed_s = time.monotonic()
    os.kill(first.process.pid, signal.SIGKILL)
    give(settings, range(20, 30))
    until(lambda: totals(two, second) == expected(30), "the second goes on")
    print(f"elsewhere, after a kill: {time.monotonic() - killed_s:.1f} s")
    answer = script("cli", "rescale", "3", folder=two)
    assert answer.returncode == 0, answer.stderr
    third = started(one, "--standby")
    third.wait_until_it_says("standing by")
    stopped_s = time.monotonic()
    os.kill(second.process.pid, signal.SIGSTOP)
    give(settings, range(30, 40))
    until(lambda: totals(one, third) == expected(40), "the third goes on")
    print(f"elsewhere, after a stop: {time.monotonic() - stopped_s:.1f} s")
    os.kill(second.process.pid, signal.SIGCONT)
    assert second.process.wait(60) == FencedError.exit_code, second.said
    fourth = started(two, "--standby")
    fourth.wait_until_it_says("standing by")
    assert script("cli", "stop", folder=one).returncode == 0
    assert (third.process.wait(60), fourth.process.wait(60)) == (0, 0)
    assert "the pipeline was stopped, and so this standby ends" in fourth.said
    found: Counter[tuple[Any, ...]] = Counter()
    for message in messages(settings, f"{settings.pipeline}.per_customer"):
        _, (row, weight) = weighted(message)
        found[row] += weight
    rows = Counter((customer, *sums) for customer, sums in expected(40).items())
    assert Counter({row: weight for row, weight in found.items() if weight}) == rows


def test_an_idle_coordinator_hears_that_it_was_replaced(
    settings: KafkaSettings, tmp_path: Path, started: Start
) -> None:
    """No row comes and no step fails; a heartbeat alone is no reason to end."""
    ensure_topic(settings, f"{settings.pipeline}.in", 2, {})
    one = host(settings, tmp_path / "one")
    first = started(one, "--standby")
    give(settings, range(10))
    until(lambda: totals(one, first) == expected(10), "it has taken all")
    with closing(KafkaHeartbeats(settings)) as beats, closing(KafkaStepLog(settings)) as steps:
        seen = beats.beat(Heartbeat(of="a standby that is too early"), 30)
        until(lambda: beats.end() > seen + 3, "it goes on")
        assert totals(one, first) == expected(10)
        steps.claim()
        beats.beat(Heartbeat(of="its replacement"), 30)
        assert first.process.wait(60) == FencedError.exit_code, first.said
        assert "another coordinator owns the step log" in first.said


def test_heartbeats_are_in_one_order_for_all(settings: KafkaSettings) -> None:
    with closing(KafkaHeartbeats(settings)) as one, closing(KafkaHeartbeats(settings)) as two:
        assert (one.end(), two.end()) == (0, 0)
        written = [Heartbeat(of="a"), Heartbeat(of="b", pause_s=3.5), Heartbeat(of="a", stopped=True)]
        places = [each.beat(beat, 30) for each, beat in zip((one, two, one), written, strict=True)]
        assert places == [0, 1, 2]
        assert two.end() == 3
        assert two.read(1) == {1: written[1], 2: written[2]}
        assert one.read(3) == {}


def test_a_topic_that_the_coordinator_may_not_have(settings: KafkaSettings) -> None:
    """A view's topic cannot have the name of the heartbeats' topic."""
    ensure_topic(settings, settings.topic("coordinator.heartbeats"), 1, {})
    with closing(KafkaHeartbeats(settings)) as there:
        assert there.end() == 0
    with pytest.raises(ConfigError, match="Kafka refuses"):
        KafkaHeartbeats(KafkaSettings(brokers=settings.brokers, pipeline="no name/"))
