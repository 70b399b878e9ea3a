"""An upgrade by a successor on a standalone cluster: beside the old application where there is room, else with a pause."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from dbsp.coordinator.address import read_address
from dbsp.version import VERSION
from tests import plain_http
from tests.coordinator.versions import Installations
from tests.kafka.broker import Broker
from tests.kafka.shop import Shop, by_step, summed
from tests.kafka.test_hosts_apart import HOSTS, SPARK
from tests.spark.standalone import standalone

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(600)]
OTHER = "0.9.2"


@contextmanager
def shop_on(
    hosts: Sequence[str], folder: Path, broker: Broker, conf: str = "", *, apart: bool = False
) -> Iterator[Shop]:
    """A shop on a cluster with a core on each host; its outputs are right at the end.

    Its workers run on any of the hosts, or each on its own if the disks are `apart`.
    """
    (folder / "shop").mkdir()
    offered = f"hosts = {list(hosts)}" if apart else "common_disk = true"
    with standalone(folder / "cluster", hosts, apart=folder / "shop" / "data" if apart else None) as cluster:
        spark = SPARK.format(master=cluster.master, driver="127.0.0.1") + conf
        shop = Shop(folder / "shop", broker.brokers, 3, spark=spark, hosts=offered)
        try:
            shop.start()
            shop.until(lambda: shop.processed() > 0, "its first step")
            yield shop
            shop.stop()
            consumed = shop.consumed()
            _, replayed = shop.replayed(workers=1)
            assert by_step(consumed) == by_step(replayed)
            assert summed(consumed, "per_customer") == shop.expected()
        finally:
            shop.end()


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """The interpreter of another version."""
    (tmp_path / "versions").mkdir()
    return Installations(tmp_path / "versions").python(OTHER)


def upgrade(shop: Shop, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dbsp.coordinator.commands.cli", "upgrade", *options]
    return subprocess.run(
        command, cwd=shop.folder, capture_output=True, text=True, check=False, timeout=400, stdin=subprocess.DEVNULL
    )


def goes_on(shop: Shop, engine: str) -> None:
    """This version takes the steps, whatever its process."""
    reached = shop.sent

    def takes_rows() -> bool:
        with suppress(httpx.HTTPError, KeyError):
            url = read_address(shop.folder / "data")["url"]
            status = plain_http.ask("GET", url + "/v1/status").raise_for_status().json()
            return status["engine"] == engine and sum(place["offset"] for place in status["processed"]) > reached
        return False

    shop.until(takes_rows, f"{engine} takes rows")


@pytest.mark.parametrize("apart", [False, True], ids=["one disk", "disks apart"])
def test_where_a_cluster_has_no_room_the_pause_is_said_before(
    broker: Broker, tmp_path: Path, other: Path, apart: bool
) -> None:
    """Where disks are apart, the other version has proved itself over what was copied from both hosts."""
    with shop_on(HOSTS if apart else HOSTS[:1], tmp_path, broker, apart=apart) as shop:
        refused = upgrade(shop, "--python", str(other))
        print(refused.stderr)
        assert refused.returncode == 4, refused.stderr
        assert "gave this application no executors in 30 s" in refused.stderr
        assert "no step can run for about" in refused.stderr
        assert "`--yes`" in refused.stderr
        goes_on(shop, VERSION)
        done = upgrade(shop, "--python", str(other), "--yes")
        print(done.stdout)
        assert done.returncode == 0, done.stderr + shop.said()
        assert f"upgraded from dbsp {VERSION} to {OTHER}" in done.stdout
        assert not apart or re.search(r"proved: steps? .* gave the same .* over [\d,]+ bytes copied from", done.stdout)
        goes_on(shop, OTHER)


def test_where_a_cluster_has_room_the_other_version_starts_beside_the_old_one(
    broker: Broker, tmp_path: Path, other: Path
) -> None:
    with shop_on(HOSTS, tmp_path, broker, '"spark.cores.max" = "1"\n') as shop:
        done = upgrade(shop, "--python", str(other))
        print(done.stdout)
        assert done.returncode == 0, done.stderr + shop.said()
        goes_on(shop, OTHER)
