"""Hosts with addresses, disks and cables of their own: cut off, lost for ever, back late, replaced; with a broker and a consumer.

A host is a namespace of networks on a bridge. A cut cable refuses no connection, as a machine that is powered off: it is silent.
Oracles as in `test_hosts_apart`: a plain consumer reads of every step what a replay by one worker gives.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dbsp.coordinator.decisions.strategies import STRATEGIES
from dbsp.errors import FencedError
from tests.kafka.broker import Broker
from tests.kafka.shop import Shop, by_step, summed
from tests.kafka.test_hosts_apart import cluster_shop, databases, rescaled, visits, wait
from tests.spark.networks import Networks, missing, networks
from tests.spark.standalone import Cluster, seeing, standalone

pytestmark = [
    pytest.mark.kafka, pytest.mark.crash, pytest.mark.spark, pytest.mark.soak,
    pytest.mark.skipif(bool(missing()), reason=missing()),
]  # fmt: skip

LOST_S, LEASE_S = 8, 5


@pytest.fixture
def three() -> Iterator[Networks]:
    with networks(3) as made:
        yield made


@pytest.fixture
def reachable(three: Networks) -> Iterator[Broker]:
    """A broker at the bridge's address, which all hosts reach."""
    made = Broker(host=three.address).start()
    yield made
    made.close()


@pytest.mark.timeout(900)
def test_hosts_are_cut_off_lost_and_replaced(three: Networks, reachable: Broker, tmp_path: Path) -> None:
    """A short cut costs time alone; a long one moves the worker. The host comes back late, and is replaced by the third."""
    first, second, third = three.hosts
    options = ("--set", f"checkpoint.copies={tmp_path / 'copies'}", "--set", f"layout.host_lost_s={LOST_S}")
    with cluster_shop(tmp_path, reachable, 9, options, hosts=three.hosts, own=three) as (_, shop):
        shop.until(lambda: (shop.status() or {}).get("version", 0) > 1, "two checkpoints")
        homes = lambda: databases(tmp_path, three.hosts)  # noqa: E731 - short
        assert homes() == {first: ["0000"], second: ["0001"], third: []}
        reached, began = shop.sent, time.monotonic()
        three.cut(second)
        shop.until(lambda: time.monotonic() - began > LOST_S / 2, "half the time after which a host is lost")
        three.heal(second)
        shop.until(lambda: shop.processed() > reached, "it goes on after a short cut", 300)
        print(f"cut for {LOST_S / 2:.0f} s: first new step after {time.monotonic() - began:.1f} s")
        reached, began = shop.sent, time.monotonic()
        three.cut(second)
        shop.until(lambda: shop.processed() > reached, "steps go on elsewhere", 300)
        print(f"cut for ever: first new step after {time.monotonic() - began:.1f} s")
        (moved,) = (shop.status() or {})["moved_workers"]
        assert (moved["worker"], moved["lost_host"], moved["host"]) == (1, second, first)
        rescaled(shop, 2, "warmup", [first, third])
        assert homes()[third] == ["0002"]
        three.heal(second)
        rescaled(shop, 3, "cold", three.hosts)
        assert sorted(name for names in homes().values() for name in names) == ["0000", "0001", "0002"]
        assert len(homes()[second]) == 1, "what was left there is deleted, and a new worker is there"


@pytest.mark.timeout(900)
def test_the_folder_of_the_coordinator_is_deleted(three: Networks, reachable: Broker, tmp_path: Path) -> None:
    """After a rescale to a third host: the ledger is in the step log on Kafka, and the workers' databases are on their hosts."""
    with cluster_shop(tmp_path, reachable, 10, hosts=three.hosts, own=three) as (_, shop):
        rescaled(shop, 3, "warmup", three.hosts)
        homes = databases(tmp_path, three.hosts)
        lose_folder(shop)
        assert (shop.status() or {})["workers"] == 3
        assert databases(tmp_path, three.hosts) == homes


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("ready", "cores"), [("auto", 1), ("spark", 1), ("spark", 2)])
@pytest.mark.parametrize("fault", ["kill", "cut"])
def test_a_standby_of_the_coordinator_on_another_host(tmp_path: Path, fault: str, ready: str, cores: int) -> None:
    """Two hosts of workers, two of coordinators. The first coordinator is killed, or its cable is pulled and put back later.

    A standby has an application of "spark" ready where each host has two cores. With one core, it has the driver alone.
    """
    with networks(4) as nets, closing(Broker(host=nets.address).start()) as broker:
        *workers, one, two = nets.hosts
        (tmp_path / "shop").mkdir()
        with standalone(
            tmp_path / "cluster", workers, apart=tmp_path / "shop" / "data", own=nets, cores=cores
        ) as cluster:
            shop = Shop(
                tmp_path / "shop",
                broker.brokers,
                11,
                spark=f'[spark]\nmaster = "{cluster.master}"',
                hosts=f"hosts = {workers}",
            )
            shop.token = "of-the-test-alone"

            def start(host: str, *options: str) -> subprocess.Popen[bytes]:
                here = [
                    "http.host=" + host, "http.token=" + shop.token, f"coordinator.lease_s={LEASE_S}",
                    f"coordinator.standby={ready}",
                    f"spark.conf={{'spark.driver.host' = '{host}', 'spark.driver.bindAddress' = '{host}',"
                    " 'spark.driver.memory' = '512m', 'spark.executor.memory' = '512m', 'spark.cores.max' = '2'}",
                ]  # fmt: skip
                seen = seeing(tmp_path / f"disk-{host}", tmp_path / "shop" / "data", [])
                return shop.another(*(f"--set={each}" for each in here), *options, before=[*nets.inside(host), *seen])

            try:
                shop.process, shop.data = start(one), tmp_path / f"disk-{one}"
                shop.until(lambda: (shop.status() or {}).get("version", 0) > 1, "two checkpoints")
                first, standby = shop.process, start(two, "--standby")
                shop.until(lambda: "standing by" in shop.said(), "a standby is ready")
                reached, began = shop.sent, time.monotonic()
                if fault == "kill":
                    os.killpg(first.pid, signal.SIGKILL)
                else:
                    nets.cut(one)
                shop.process, shop.data = standby, tmp_path / f"disk-{two}"
                shop.until(lambda: shop.processed() > reached, "the standby goes on", 300)
                print(
                    f"{fault}, {ready}, {cores} cores: first new step on another host after {time.monotonic() - began:.1f} s"
                )
                nets.heal(one)
                shop.until(lambda: first.poll() is not None, "the first coordinator ends", 300)
                assert first.poll() == (-signal.SIGKILL if fault == "kill" else FencedError.exit_code), shop.said()
                shop.stop()
                consumed = shop.consumed()
                steps, replayed = shop.replayed(workers=1)
                assert {step for _, step, _ in consumed} <= set(range(steps))
                assert by_step(consumed) == by_step(replayed)
                assert summed(consumed, "per_customer") == shop.expected()
            finally:
                shop.end()


def lose_folder(shop: Shop) -> None:
    """End all processes of the coordinator, delete its folder, and start it with the same settings."""
    process, reached = shop.running(), shop.sent
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait(30) == -signal.SIGKILL, shop.said()
    shop.until(lambda: not shop.marked(), "nothing of it is left", 30)
    for each in (shop.folder / "data").iterdir():  # the folder itself is where the hosts see their disks
        shutil.rmtree(each) if each.is_dir() else each.unlink()
    shop.start()
    shop.until(lambda: shop.processed() >= reached, "it goes on with the ledger of the log", 300, restart=True)


class Fate:
    """What happens to the hosts and to the coordinator while layouts change: each fault leaves all of them alive."""

    def __init__(self, shop: Shop, cluster: Cluster, nets: Networks, chance: random.Random) -> None:
        self._shop, self._cluster, self._nets, self._chance = shop, cluster, nets, chance
        self.faults = {
            "cut": lambda host: self._cut(host, LOST_S / 2 * chance.random()),
            "lost": lambda host: self._cut(host, LOST_S * (1 + 2 * chance.random())),
            "power": self._power,
            "executor": self._executor,
            "group": lambda _: shop.kill("group"),
            "folder": lambda _: lose_folder(shop),
            "nothing": lambda _: None,
        }

    def strike(self) -> None:
        """Draw a fault and a host, and let it happen."""
        name, host = self._chance.choice(list(self.faults)), self._chance.choice(self._nets.hosts)
        print(f"{time.strftime('%T')} {name} {host}", flush=True)
        self.faults[name](host)

    def _cut(self, host: str, seconds: float) -> None:
        self._nets.cut(host)
        try:
            wait(self._shop, seconds)
        finally:
            self._nets.heal(host)

    def _power(self, host: str) -> None:
        """Everything on the host ends without a word to anybody; after a while it is switched on again."""
        self._nets.cut(host)
        try:
            for pid in (self._cluster.workers[host].pid, *self._cluster.executors(host)):
                os.kill(pid, signal.SIGKILL)
            wait(self._shop, 3 * LOST_S * self._chance.random())
        finally:
            self._nets.heal(host)
        self._cluster.begin(host)

    def _executor(self, host: str) -> None:
        for pid in self._cluster.executors(host):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.timeout(3600)
def test_hosts_come_and_go_under_cuts_and_kills(three: Networks, reachable: Broker, tmp_path: Path) -> None:
    """One host, three, two, three, one; a fault drawn at random during each change. Outputs are as without any."""
    seed = int(os.environ.get("DBSP_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"DBSP_TEST_SEED={seed}", flush=True)
    chance = random.Random(seed)
    options = ("--set", f"checkpoint.copies={tmp_path / 'copies'}", "--set", f"layout.host_lost_s={LOST_S}")
    with cluster_shop(tmp_path, reachable, seed, options, hosts=three.hosts, own=three) as (cluster, shop):
        fate = Fate(shop, cluster, three, chance)
        for count in (1, 3, 2, 3, 1):
            hosts = chance.sample(three.hosts, count)
            workers, strategy = chance.randint(count, 4), chance.choice(STRATEGIES)
            print(f"{time.strftime('%T')} rescale {workers} {strategy} {hosts}", flush=True)
            asked = shop.ask_rescale(workers, strategy, hosts)
            for _ in range(chance.randint(1, 2)):
                wait(shop, 4 * chance.random())
                fate.strike()
            reached = shop.sent
            shop.until(lambda asked=asked: not asked.is_alive(), "the answer", 300, restart=True)
            shop.until(lambda reached=reached: shop.processed() >= reached, "it goes on", 300, restart=True)
            rescaled(shop, workers, "cold", hosts)
            homes = databases(tmp_path, three.hosts)
            assert {host for host, names in homes.items() if names} >= set(hosts)
            assert sum(map(len, homes.values())) >= workers
    assert visits(tmp_path, three.hosts) == []


@pytest.mark.timeout(900)
def test_a_worker_goes_on_from_its_standby(three: Networks, reachable: Broker, tmp_path: Path) -> None:
    """No copies: host two is cut off for ever, its worker goes on where its standby is; when it is back, it serves again."""
    first, second, third = three.hosts
    settings = (
        f"layout.hosts={json.dumps(three.hosts)}",
        "layout.standbys_per_worker=1",
        f"layout.host_lost_s={LOST_S}",
    )
    options = tuple(part for each in settings for part in ("--set", each))
    with cluster_shop(tmp_path, reachable, 11, options, hosts=three.hosts, own=three) as (_, shop):
        shop.until(lambda: (shop.status() or {}).get("version", 0) > 1, "two checkpoints")
        at = standbys(shop)
        assert at[0] in (second, third)
        assert at[1] in (first, third)
        assert len(set(at.values())) == 2
        place = disk(tmp_path, at[1]) / "standbys" / "0001" / "durable" / "data.mdb"
        inode, reached, began = place.stat().st_ino, shop.sent, time.monotonic()
        three.cut(second)
        shop.until(lambda: shop.processed() > reached, "steps go on elsewhere", 300)
        print(f"cut for ever: first new step after {time.monotonic() - began:.1f} s")
        (moved,) = (shop.status() or {})["moved_workers"]
        assert (moved["worker"], moved["lost_host"], moved["host"]) == (1, second, at[1])
        home = disk(tmp_path, at[1]) / "workers" / "0001" / "durable" / "data.mdb"
        assert home.stat().st_ino == inode, "its state was copied, and not opened"
        shop.until(
            lambda: second not in standbys(shop).values() and len(standbys(shop)) == 2, "standbys elsewhere", 300
        )
        three.heal(second)
        rescaled(shop, 3, "cold", three.hosts)
        version = (shop.status() or {})["version"]
        shop.until(lambda: (shop.status() or {}).get("version", 0) > version + 1, "two more checkpoints", 300)
        assert len(standbys(shop)) == 3


def standbys(shop: Shop) -> dict[int, str]:
    """The host of the standby of each worker that has caught up."""
    found = (shop.status() or {}).get("standbys", {}).get("standbys", ())
    return {each["worker"]: each["host"] for each in found if each["lag_bytes"] == 0}


def disk(tmp_path: Path, host: str) -> Path:
    """The folder that a host sees as its data folder."""
    return tmp_path / "cluster" / f"disk-{host}"
