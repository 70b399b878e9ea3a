"""A user's program gives autoscale a machine of a Spark cluster while rows wait, and gets it back when they do not.

The machine is a namespace of networks with a disk of its own. Spark's Worker runs there only while the program has given it.
Oracles as in `test_hosts_apart`.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.broker import Broker
from tests.kafka.shop import Shop
from tests.kafka.test_hosts_apart import cluster_shop, databases, visits
from tests.spark.networks import Networks, missing, networks

pytestmark = [
    pytest.mark.kafka, pytest.mark.crash, pytest.mark.spark, pytest.mark.soak,
    pytest.mark.skipif(bool(missing()), reason=missing()),
]  # fmt: skip

PROGRAM = """#!/bin/sh
cd {folder} && echo "$@" >> said
case "$1 $2" in
"offer 1") echo {first};;
"offer 2")
    if [ ! -e pid ]; then
        env -u DBSP_SHOP SPARK_DAEMON_MEMORY=256m SPARK_LOCAL_DIRS={folder}/spark setsid {worker} &
        echo $! > pid
    fi
    echo {first},{second};;
"release {second}") kill $(cat pid) && rm pid;;
*) echo "unknown: $@" >&2; exit 2;;
esac
"""
PRESSURE = 4000
SETTINGS = (
    "pipeline.workers=1", "layout.strategy=warmup", "step.max_rows_per_step=100", "log.steps=true",
    "autoscale.enabled=true", "autoscale.workers_max=2", "autoscale.backlog_rows_max=2000", "autoscale.window_s=2",
    "autoscale.cooldown_s=5", "autoscale.step_latency_ms_max=60000",
)  # fmt: skip


@pytest.fixture
def two() -> Iterator[Networks]:
    with networks(2) as made:
        yield made


@pytest.mark.timeout(900)
def test_a_program_gives_autoscale_a_host_and_gets_it_back(two: Networks, tmp_path: Path) -> None:
    """Twice: the second time on a disk that has been used, and the service is killed while the workers move."""
    first, second = two.hosts
    folder = tmp_path / "rented"
    folder.mkdir()
    program = folder / "machines"
    settings = (*SETTINGS, f'autoscale.hosts_command=["{program}"]')
    options = tuple(part for each in settings for part in ("--set", each))
    with (
        ExitStack() as stack,
        closing(Broker(host=two.address).start()) as broker,
        cluster_shop(tmp_path, broker, 13, options, hosts=[first], own=two) as (cluster, shop),
    ):
        worker = shlex.join(cluster.command(second))
        program.write_text(PROGRAM.format(folder=folder, first=first, second=second, worker=worker))
        program.chmod(0o700)
        stack.callback(end, folder / "pid")
        for kills in (False, True):
            grows(shop, kills=kills)
            assert {host: len(names) for host, names in databases(tmp_path, two.hosts).items()} == {first: 1, second: 1}
            shop.until(lambda: is_settled(shop, 1), "one worker again", 300, restart=True)
            shop.until(lambda: not (folder / "pid").exists(), "the host is given back")
            assert {host: len(names) for host, names in databases(tmp_path, two.hosts).items()} == {first: 1, second: 0}
    said = (folder / "said").read_text().splitlines()
    assert said[:3] == [f"offer 2 {first}", f"offer 1 {first} {second}", f"release {second}"]
    assert said[3] == f"offer 2 {first}"
    assert said[-1] == f"release {second}"
    print(pauses(tmp_path))
    assert visits(tmp_path, two.hosts) == []


def end(file: Path) -> None:
    """End the program's machine, if it is still there."""
    if file.exists():
        with suppress(ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGKILL)


def grows(shop: Shop, *, kills: bool) -> None:
    """Let more rows wait than one worker should have, until there are two."""

    def is_asked() -> bool:
        now = shop.status() or {}
        if (now.get("lag_rows") or 0) < PRESSURE:
            shop.send(500)
        return now.get("rescale_waiting") is not None or now.get("rescale") is not None

    shop.until(is_asked, "autoscale asks", 300)
    if kills:
        shop.kill("group")
    shop.until(lambda: is_settled(shop, 2), "two workers", 300, restart=True)


def is_settled(shop: Shop, workers: int) -> bool:
    now: dict[str, Any] = shop.status() or {}
    moves = now.get("rescale"), now.get("rescale_waiting")
    return (now.get("state"), now.get("workers"), moves) == ("Running", workers, (None, None))


def pauses(tmp_path: Path) -> list[tuple[int, float]]:
    """The workers of each rescale of autoscale, and the longest time between two steps up to the first one after it."""
    found, stage, before = list[tuple[int, float]](), "", ""
    for line in map(json.loads, (tmp_path / "shop" / "data" / "coordinator.log").read_text().splitlines()):
        match line["event"]:
            case "autoscale":
                found.append((line["workers"], 0.0))
                stage = "asked"
            case "rescale":
                stage = "moved"
            case "step":
                if stage and before:
                    workers, longest = found[-1]
                    took = datetime.fromisoformat(line["at"]) - datetime.fromisoformat(before)
                    found[-1] = (workers, max(longest, took.total_seconds()))
                before, stage = line["at"], "" if stage == "moved" else stage
    return found
