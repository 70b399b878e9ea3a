"""A circuit is changed on a cluster whose hosts have disks of their own, by a process that is killed at any point of it.

Each host sees another folder in the place of `data_dir`, so only tasks on its host reach a worker's database. A view is edited
under its name, and one is added. Afterwards a plain `read_committed` consumer that adds up all changes has what DuckDB says
of the input.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kafka.broker import Broker
from tests.kafka.shop import CIRCUIT, ROOT, Shop, summed
from tests.kafka.test_hosts_apart import HOSTS, SPARK, databases
from tests.spark.standalone import standalone

pytestmark = [pytest.mark.kafka, pytest.mark.crash, pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(600)]

CHANGED = CIRCUIT.replace(
    'amount=total("amount"))', 'amount=total("amount"), largest=dbsp.max("amount"))'
).replace('"per_customer": per_customer', '"per_customer": per_customer, "sizes": sizes').replace(
    "pipeline =", 'sizes = orders.group_by("amount").aggregate(n=count())\npipeline ='
)  # fmt: skip
PER_CUSTOMER = "SELECT customer, count(*), sum(amount)::BIGINT, max(amount) FROM orders GROUP BY customer"
SIZES = "SELECT amount, count(*) FROM orders GROUP BY amount"
POINTS = [
    "",
    "hosts.on_hosts:after:1",
    "hosts.on_hosts:after:2",
    "control.change:after:2",
    "runtime.run_step:before:1",
    "runtime.run_step:after:1",
]
"""Nobody dies; after the question for versions; all workers have the new version; the switch; the step that fills."""


def said_by_the_check(shop: Shop) -> str:
    command = [
        sys.executable,
        "-m",
        "dbsp.coordinator.serve",
        str(shop.folder / "pipeline.toml"),
        "--check",
        "--accept-circuit",
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def die_at(shop: Shop, point: str) -> None:
    """Start the service with the changed circuit in a process that is killed at this point."""
    call = f"serve(Path({str(shop.folder / 'pipeline.toml')!r}), {point!r}, None, True)"
    program = f"from pathlib import Path; from tests.crash.coordinator_child import serve; {call}"
    environment = {**os.environ, "DBSP_SHOP": shop.name}
    with (shop.folder / "out").open("ab") as out:
        dying = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, env=environment, stdout=out, stderr=out, timeout=200,
            start_new_session=True, check=False,
        )  # fmt: skip
    assert dying.returncode == -signal.SIGKILL, shop.said()


@pytest.mark.parametrize("point", POINTS)
def test_a_view_is_edited_where_hosts_share_no_disk(broker: Broker, tmp_path: Path, point: str) -> None:
    (tmp_path / "shop").mkdir()
    with standalone(tmp_path / "cluster", HOSTS, apart=tmp_path / "shop" / "data") as cluster:
        spark, offered = SPARK.format(master=cluster.master, driver="127.0.0.1"), f"hosts = {list(HOSTS)}"
        shop = Shop(tmp_path / "shop", broker.brokers, 11, spark=spark, hosts=offered)
        try:
            shop.start()
            shop.until(lambda: shop.processed() > 200, "its first steps")
            shop.stop()
            assert databases(tmp_path) == {HOSTS[0]: ["0000"], HOSTS[1]: ["0001"]}
            (shop.folder / "circuit.py").write_text(CHANGED)
            said = said_by_the_check(shop)
            assert "writes the changes, old rows retracted and new rows inserted: per_customer" in said
            assert "views added: sizes" in said
            if point:
                die_at(shop, point)
                shop.until(lambda: not shop.marked(), "nothing of it is left", 60)
            reached = shop.sent
            shop.start("--accept-circuit")
            shop.until(lambda: shop.processed() > reached, "it goes on with the new circuit", 200)
            shop.stop()
            consumed = shop.consumed("per_customer", "sizes")
            assert summed(consumed, "per_customer") == shop.expected(PER_CUSTOMER)
            assert summed(consumed, "sizes") == shop.expected(SIZES)
        finally:
            shop.end()
