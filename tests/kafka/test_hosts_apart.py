"""The service on a standalone cluster whose hosts have disks of their own, rescaled by every strategy, its parts killed.

Each host sees another folder in the place of `data_dir` (a mount of its own), so a task that came to the wrong host, or a worker
that read another host's files, would find nothing there. Oracles as for one host: whatever worker wrote it, a plain
`read_committed` consumer reads of every step what a replay of the step log by one worker gives, and the sum of all is what
DuckDB says of the input.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from dbsp.coordinator.address import read_address
from dbsp.coordinator.decisions.strategies import STRATEGIES
from tests import plain_http
from tests.kafka.broker import Broker
from tests.kafka.shop import Shop, by_step, summed
from tests.pace import in_turn
from tests.spark.networks import Networks
from tests.spark.standalone import Cluster, standalone
from tests.spark.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.crash, pytest.mark.spark]

HOSTS = ("127.0.0.2", "127.0.0.3")
SPARK = """\
[spark]
master = "{master}"
[spark.conf]
"spark.driver.host" = "{driver}"
"spark.driver.bindAddress" = "{driver}"
"spark.driver.memory" = "512m"
"spark.executor.memory" = "512m"
"spark.shuffle.io.maxRetries" = "1"
"spark.shuffle.io.retryWait" = "1s"
"""


@contextmanager
def cluster_shop(
    folder: Path,
    broker: Broker,
    seed: int,
    options: Sequence[str] = (),
    *,
    hosts: Sequence[str] = HOSTS,
    own: Networks | None = None,
) -> Iterator[tuple[Cluster, Shop]]:
    """A shop with a worker on each of the first two hosts; afterwards what it wrote is what it should be."""
    (folder / "shop").mkdir()
    driver = "127.0.0.1" if own is None else own.address
    with standalone(folder / "cluster", hosts, apart=folder / "shop" / "data", own=own) as cluster:
        spark, offered = SPARK.format(master=cluster.master, driver=driver), f"hosts = {list(hosts[:2])}"
        shop = Shop(folder / "shop", broker.brokers, seed, spark=spark, hosts=offered)
        try:
            shop.options = tuple(options)
            shop.start()
            shop.until(lambda: shop.processed() > 0, "its first step")
            yield cluster, shop
            shop.stop()
            consumed = shop.consumed()
            steps, replayed = shop.replayed(workers=1)
            assert {step for _, step, _ in consumed} <= set(range(steps))
            assert by_step(consumed) == by_step(replayed)
            assert summed(consumed, "per_customer") == shop.expected()
        finally:
            shop.end()


def rescaled(shop: Shop, workers: int, strategy: str, hosts: Sequence[str] | None = None) -> None:
    """Ask for it, and go on sending until it is answered."""
    named = None if hosts is None else dict.fromkeys(hosts, 1.0)
    url, answers = read_address(shop.folder / "data")["url"], list[httpx.Response]()

    def ask() -> None:
        answers.append(
            plain_http.post(
                url + "/v1/rescale", json={"workers": workers, "strategy": strategy, "hosts": named}, timeout_s=None
            )
        )

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    shop.until(lambda: not asking.is_alive(), f"a rescale to {workers} by {strategy}")
    assert answers, shop.said()
    assert answers[0].is_success, answers[0].text


def kill_executor(shop: Shop, cluster: Cluster, host: str) -> None:
    """SIGKILL to the JVM of a host's executor; Spark starts another one there."""
    reached = shop.sent
    for pid in shop.until(lambda: cluster.executors(host), f"an executor on {host}"):
        os.kill(pid, signal.SIGKILL)
    shop.until(lambda: shop.processed() >= reached, f"it goes on after the executor on {host} was killed", restart=True)


def databases(folder: Path, hosts: Sequence[str] = HOSTS) -> dict[str, list[str]]:
    """Whose databases lie on which host's disk."""
    homes = {host: folder / "cluster" / f"disk-{host}" / "workers" for host in hosts}
    return {host: sorted(each.name for each in home.glob("*") if each.name.isdigit()) for host, home in homes.items()}


def visits(folder: Path, hosts: Sequence[str] = HOSTS) -> list[Path]:
    """What has come of other hosts' workers, and is still there."""
    return [found for host in hosts for found in (folder / "cluster" / f"disk-{host}" / "visits").glob("*/*")]


TURNS = 6
TURN = "another turn at this commit (`test_spark_killed` has four of the six); `make soak` runs all"


@pytest.mark.skipif(not in_turn(0, TURNS), reason=TURN)
@pytest.mark.timeout(600)
def test_more_workers_on_hosts_that_share_no_disk(broker: Broker, tmp_path: Path) -> None:
    with cluster_shop(tmp_path, broker, seed=5) as (cluster, shop):
        assert databases(tmp_path) == {HOSTS[0]: ["0000"], HOSTS[1]: ["0001"]}
        rescaled(shop, 3, "warmup")
        kill_executor(shop, cluster, HOSTS[1])
        rescaled(shop, 4, "icadd")
    assert databases(tmp_path) == {HOSTS[0]: ["0000", "0002"], HOSTS[1]: ["0001", "0003"]}
    assert visits(tmp_path) == []


@pytest.mark.skipif(not in_turn(3, TURNS), reason=TURN)
@pytest.mark.timeout(600)
def test_fewer_workers_and_a_host_that_is_left(broker: Broker, tmp_path: Path) -> None:
    with cluster_shop(tmp_path, broker, seed=5) as (_, shop):
        rescaled(shop, 4, "cold")
        assert databases(tmp_path) == {HOSTS[0]: ["0000", "0002"], HOSTS[1]: ["0001", "0003"]}
        shop.kill("group")
        rescaled(shop, 1, "redistribute", HOSTS[1:])
    assert databases(tmp_path) == {HOSTS[0]: [], HOSTS[1]: ["0001"]}
    assert visits(tmp_path) == []


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_host_is_replaced_while_steps_run(broker: Broker, tmp_path: Path) -> None:
    """The worker on one host gives its state to a new one on the other, and back; an executor dies in between."""
    with cluster_shop(tmp_path, broker, seed=7) as (cluster, shop):
        rescaled(shop, 2, "warmup", HOSTS[:1])
        assert databases(tmp_path) == {HOSTS[0]: ["0000", "0002"], HOSTS[1]: []}
        kill_executor(shop, cluster, HOSTS[0])
        rescaled(shop, 2, "icadd", HOSTS)
    assert databases(tmp_path) == {HOSTS[0]: ["0000"], HOSTS[1]: ["0001"]}
    assert visits(tmp_path) == []


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_host_is_lost_for_ever_with_its_disk(broker: Broker, tmp_path: Path) -> None:
    """Without a command its worker moves, its database comes from the copies, and the outputs are as ever."""
    options = ("--set", f"checkpoint.copies={tmp_path / 'copies'}", "--set", "layout.host_lost_s=5")
    with cluster_shop(tmp_path, broker, seed=6, options=options) as (cluster, shop):
        shop.until(lambda: (shop.status() or {}).get("version", 0) > 1, "two checkpoints")
        reached, began = shop.sent, time.monotonic()
        for pid in (cluster.workers[HOSTS[1]].pid, *cluster.executors(HOSTS[1])):
            os.kill(pid, signal.SIGKILL)
        (tmp_path / "cluster" / f"disk-{HOSTS[1]}" / "workers").rename(tmp_path / "lost")
        shop.until(lambda: shop.processed() > reached, "steps go on elsewhere", 300)
        print(f"first new step after {time.monotonic() - began:.1f} s")
        (moved,) = (shop.status() or {})["moved_workers"]
        assert (moved["worker"], moved["lost_host"], moved["host"]) == (1, HOSTS[1], HOSTS[0])
        assert databases(tmp_path, HOSTS[:1]) == {HOSTS[0]: ["0000", "0001"]}


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kept", ["standbys", "copies", "broken"])
def test_a_disk_is_lost_while_its_host_answers(broker: Broker, tmp_path: Path, kept: str) -> None:
    """Its worker moves to its standby, or is made again from the copies: here, or elsewhere if the disk cannot be written."""
    options = ("layout.standbys_per_worker=1",) if kept == "standbys" else (f"checkpoint.copies={tmp_path / 'copies'}",)
    pairs = [part for each in options for part in ("--set", each)]
    with cluster_shop(tmp_path, broker, seed=12, options=pairs) as (_, shop):
        shop.until(lambda: (shop.status() or {}).get("version", 0) > 2, "three checkpoints")
        reached, began, workers = shop.sent, time.monotonic(), tmp_path / "cluster" / f"disk-{HOSTS[1]}" / "workers"
        workers.rename(tmp_path / "lost")
        if kept == "broken":
            workers.touch()
        shop.until(lambda: shop.processed() > reached, "steps go on", 300)
        print(f"{kept}: first new step after {time.monotonic() - began:.1f} s")
        there = ["0001"] if kept == "copies" else []
        assert databases(tmp_path) == {HOSTS[0]: sorted({"0000", "0001"}.difference(there)), HOSTS[1]: there}
        version = (shop.status() or {})["version"]
        shop.until(lambda: (shop.status() or {}).get("version", 0) > version + 1, "two more checkpoints", 300)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", ["empty", "broken"])
def test_an_idle_pipeline_notices_a_lost_disk(broker: Broker, tmp_path: Path, how: str) -> None:
    """No row arrives; the worker's database is made again from the copies, here or elsewhere, before the next rows."""
    pairs = ("--set", f"checkpoint.copies={tmp_path / 'copies'}", "--set", "layout.host_lost_s=5")
    with cluster_shop(tmp_path, broker, seed=15, options=pairs) as (_, shop):
        shop.until(lambda: (shop.status() or {}).get("version", 0) > 2, "three checkpoints")
        until(lambda: shop.processed() == shop.sent, "it is idle", 60)
        step, workers = (shop.status() or {})["step"], tmp_path / "cluster" / f"disk-{HOSTS[1]}" / "workers"
        began = time.monotonic()
        workers.rename(tmp_path / "lost")
        if how == "broken":
            workers.touch()
        there = (
            {HOSTS[0]: ["0000"], HOSTS[1]: ["0001"]} if how == "empty" else {HOSTS[0]: ["0000", "0001"], HOSTS[1]: []}
        )
        until(lambda: databases(tmp_path) == there, "the database is made again", 120)
        until(lambda: (shop.status() or {}).get("state") == "Running", "it goes on", 120)
        print(f"{how}: noticed and made again after {time.monotonic() - began:.1f} s")
        assert (shop.status() or {})["step"] == step
        reached = shop.sent
        shop.until(lambda: shop.processed() > reached, "steps go on", 300)


def lose_every_disk(shop: Shop, folder: Path, hosts: Sequence[str]) -> None:
    """End the service by force, and lose what the coordinator and these hosts have on their disks."""
    os.killpg(shop.running().pid, signal.SIGKILL)
    shop.running().wait(30)
    shop.until(lambda: not shop.marked(), "nothing of it is left", 30)
    for disk in (shop.folder / "data", *(folder / "cluster" / f"disk-{host}" for host in hosts)):
        for each in disk.iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_every_disk_is_lost_and_a_start_goes_on_from_the_copies(broker: Broker, tmp_path: Path) -> None:
    """First the same hosts go on, with empty disks; then two others, with one worker more, as the old hosts are gone."""
    others = ("127.0.0.4", "127.0.0.5")
    options = ("--set", f"checkpoint.copies={tmp_path / 'copies'}", "--set", "layout.host_lost_s=20")
    with cluster_shop(tmp_path, broker, seed=9, options=options, hosts=(*HOSTS, *others)) as (cluster, shop):

        def goes_on() -> None:
            reached, began = shop.sent, time.monotonic()
            shop.until(lambda: shop.processed() > reached, "steps go on", 300)
            print(f"first new step after {time.monotonic() - began:.1f} s")
            version = (shop.status() or {})["version"]
            shop.until(lambda: (shop.status() or {}).get("version", 0) > version + 1, "two more checkpoints", 300)

        goes_on()
        lose_every_disk(shop, tmp_path, HOSTS)
        shop.start()
        goes_on()
        assert databases(tmp_path) == {HOSTS[0]: ["0000"], HOSTS[1]: ["0001"]}
        lose_every_disk(shop, tmp_path, HOSTS)
        for host in HOSTS:
            for pid in (cluster.workers[host].pid, *cluster.executors(host)):
                os.kill(pid, signal.SIGKILL)
        shop.options = (*options, "--set", f"layout.hosts={json.dumps(others)}")
        shop.start("--rescale", "3")
        goes_on()
        shop.until(lambda: (shop.status() or {}).get("workers") == 3, "three workers", 300)
        assert databases(tmp_path) == {HOSTS[0]: [], HOSTS[1]: []}
        found = databases(tmp_path, others)
        assert sorted(worker for each in found.values() for worker in each) == ["0000", "0001", "0002"]
        assert all(found.values())


@contextmanager
def small_place(folder: Path) -> Iterator[Path]:
    """A file system of its own at `folder`; yield the file that fills it, while it is there."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "dbsp-copies", str(folder)], check=True)
    try:
        yield folder / "fills-it"
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(file: Path) -> None:
    """Leave no room."""
    with file.open("wb", buffering=0) as stream, suppress(OSError):
        while stream.write(bytes(1 << 16)):
            pass


@pytest.mark.soak
@pytest.mark.skipif(os.geteuid() != 0, reason="a file system is mounted, which needs root")
@pytest.mark.timeout(600)
def test_all_return_to_copies_that_lag_when_a_host_is_lost(broker: Broker, tmp_path: Path) -> None:
    """The place for copies is full while two versions are published; then a host is lost for ever with its disk."""
    with small_place(tmp_path / "copies") as filler:
        options = ("checkpoint.copies_required=0", f"checkpoint.copies={filler.parent}", "layout.host_lost_s=5")
        pairs = [part for each in options for part in ("--set", each)]
        with cluster_shop(tmp_path, broker, seed=8, options=pairs) as (cluster, shop):

            def lag() -> dict[str, Any]:
                return dict((shop.status() or {}).get("checkpoint_copies") or {})

            shop.until(lambda: (lag().get("version") or 0) > 1, "copies of two versions")
            fill(filler)
            shop.until(lambda: lag().get("lag_versions", 0) > 2, "the copies lag")
            whole, reached, began = lag()["version"], shop.sent, time.monotonic()
            for pid in (cluster.workers[HOSTS[1]].pid, *cluster.executors(HOSTS[1])):
                os.kill(pid, signal.SIGKILL)
            (tmp_path / "cluster" / f"disk-{HOSTS[1]}" / "workers").rename(tmp_path / "lost")
            filler.unlink()
            shop.until(lambda: shop.processed() > reached, "steps go on elsewhere", 300)
            print(f"first new step after {time.monotonic() - began:.1f} s")
            assert databases(tmp_path, HOSTS[:1]) == {HOSTS[0]: ["0000", "0001"]}
            shop.until(lambda: lag().get("lag_versions") == 0, "the copies catch up")
    lines = map(json.loads, (tmp_path / "shop" / "data" / "coordinator.log").read_text().splitlines())
    (returned,) = [line for line in lines if line["event"] == "returned-to-copies"]
    assert (returned["lost"], returned["version"] >= whole) == ([1], True)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_views_are_read_on_hosts_that_share_no_disk_while_steps_run(broker: Broker, tmp_path: Path) -> None:
    """A read is of one step, however many steps run between its pages; the oracle is what consumers read of the steps."""
    found: list[tuple[int, Counter[tuple[Any, ...]]]] = []
    with cluster_shop(tmp_path, broker, seed=7) as (cluster, shop):
        shop.until(lambda: shop.processed() > 500, "there are many rows")
        for _ in range(2):
            page = first = read(shop, cursor="", limit=7)
            rows = rows_in(page)
            while page["next"]:
                reached = shop.sent
                shop.until(lambda reached=reached: shop.processed() > reached, "steps go on while the read is held")
                page = read(shop, cursor=page["next"], limit=7)
                assert page["step"] == first["step"]
                rows += rows_in(page)
            found.append((first["step"], rows))
            assert shop.status()["step"] > first["step"]  # type: ignore[index]
        key = read(shop, key=json.dumps({"customer": "c7"}))
        assert len(key["rows"]) == 1
        rescaled(shop, 3, "cold")
        kill_executor(shop, cluster, HOSTS[1])
        whole = shop.until(lambda: read(shop), "a read after the executor is there again")
        found.append((whole["step"], rows_in(whole)))
    consumed = shop.consumed()
    for step, rows in found:
        assert rows == summed({part: values for part, values in consumed.items() if part[1] < step}, "per_customer")


def read(shop: Shop, **parameters: Any) -> dict[str, Any]:
    """What the service answers about its view; nothing while a host has no executor."""
    url = f"{read_address(shop.data)['url']}/v1/views/per_customer?{urlencode(parameters)}"
    answer = plain_http.ask("GET", url, timeout_s=60)
    if answer.status_code == 503:
        return {}
    assert answer.is_success, f"{answer.text} {shop.said()}"
    return dict(answer.json())


def rows_in(answer: dict[str, Any]) -> Counter[tuple[Any, ...]]:
    return Counter({tuple(row.values()): n for row, n in zip(answer["rows"], answer["weights"], strict=True)})


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_hosts_apart_rescaled_and_killed(broker: Broker, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with cluster_shop(tmp_path, broker, seed) as (cluster, shop):
        for _ in range(12):
            asked = shop.ask_rescale(chance.randint(1, 4), chance.choice(STRATEGIES))
            wait(shop, 4 * chance.random())
            strike(shop, cluster, chance)
            shop.until(lambda asked=asked: not asked.is_alive(), "the answer", restart=True)
    assert visits(tmp_path) == []


def wait(shop: Shop, seconds: float) -> None:
    """Until the moment of the kill, which the seed has drawn."""
    ended = threading.Event()
    threading.Timer(seconds, ended.set).start()
    shop.until(ended.is_set, "the moment of the kill")


def strike(shop: Shop, cluster: Cluster, chance: random.Random, hosts: Sequence[str] = HOSTS) -> None:
    """Kill an executor, or the service with all its processes, or nothing."""
    victim = chance.choice(["executor", "executor", "group", ""])
    if victim == "executor":
        kill_executor(shop, cluster, chance.choice(hosts))
    elif victim:
        shop.kill(victim)
