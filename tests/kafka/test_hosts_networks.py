"""Hosts with addresses, disks and cables of their own: cut off, lost for ever, back late, replaced; with a broker and a consumer.

A host is a namespace of networks on a bridge. A cut cable refuses no connection, as a machine that is powered off: it is silent.
Oracles as in `test_hosts_apart`: a plain consumer reads of every step what a replay by one worker gives.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.broker import Broker
from tests.kafka.test_hosts_apart import cluster_shop, databases, rescaled
from tests.spark.networks import Networks, missing, networks

pytestmark = [
    pytest.mark.kafka, pytest.mark.crash, pytest.mark.spark, pytest.mark.soak,
    pytest.mark.skipif(bool(missing()), reason=missing()),
]  # fmt: skip

LOST_S = 8


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
        homes, reached = databases(tmp_path, three.hosts), shop.sent
        process = shop.running()
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL, shop.said()
        shop.until(lambda: not shop.marked(), "nothing of it is left", 30)
        for each in (shop.folder / "data").iterdir():  # the folder itself is where the hosts see their disks
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        shop.start()
        shop.until(lambda: shop.processed() >= reached, "it goes on with the ledger of the log", 300)
        assert (shop.status() or {})["workers"] == 3
        assert databases(tmp_path, three.hosts) == homes
