"""The service with the Spark runtime: same answers, also from files, and it goes on when its JVM is killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import load_config
from dbsp.runtime.leases import LeasedViews
from tests.pace import in_turn

pytestmark = pytest.mark.spark

CIRCUIT = """
import dbsp
from dbsp import col, count
from dbsp import sum as total

orders = dbsp.table("orders", {"id": dbsp.INT64, "customer": dbsp.STRING, "amount": dbsp.INT64}, primary_key=["id"])
per_customer = orders.group_by("customer").aggregate(orders=count(), amount=total("amount"))
pipeline = dbsp.circuit("shop", {"per_customer": per_customer})
"""
SETTINGS = """
[pipeline]
circuit = "circuit.py:pipeline"
runtime = "spark"
workers = 2
"""
ORDERS = pa.table({"id": [1, 2, 3], "customer": ["a", "b", "b"], "amount": [10, 600, 1]})
MORE = pa.table({"id": [1, 4], "customer": ["b", "c"], "amount": [10, 7]})


def rows(service: Service) -> dict[Any, tuple[Any, ...]]:
    found = service.read_view("per_customer", 120).table.to_pylist()
    return {row["customer"]: (row["orders"], row["amount"], row["weight"]) for row in found}


def test_it_goes_on_when_its_jvm_is_killed(tmp_path: Path) -> None:
    (tmp_path / "circuit.py").write_text(CIRCUIT)
    (tmp_path / "pipeline.toml").write_text(SETTINGS)
    with Service(load_config(tmp_path / "pipeline.toml", environment={})) as service:
        service.wait_until_processed(service.push("orders", ORDERS), 120)
        assert rows(service) == {"a": (1, 10, 1), "b": (2, 601, 1)}
        service.rescale(3, 120)
        assert rows(service) == {"a": (1, 10, 1), "b": (2, 601, 1)}
        runtime: Any = service._loop.runner.runtime
        os.kill(runtime._spark.process.pid, signal.SIGKILL)
        service.wait_until_processed(service.push("orders", MORE), 200)
        assert rows(service) == {"b": (3, 611, 1), "c": (1, 7, 1)}
        assert service.snapshot.rollbacks >= 1


@pytest.mark.skipif(not in_turn(0, 2), reason="at every second commit; `make soak` runs it")
def test_it_reads_parquet_files(tmp_path: Path) -> None:
    (tmp_path / "circuit.py").write_text(CIRCUIT)
    (tmp_path / "pipeline.toml").write_text(f'{SETTINGS}[input]\nkind = "files"\ndirectory = "landing"\n')
    (tmp_path / "landing" / "orders").mkdir(parents=True)
    for name, table in (("1.parquet", ORDERS), ("2.parquet", MORE)):
        pq.write_table(table, tmp_path / "landing" / "orders" / name)
    with Service(load_config(tmp_path / "pipeline.toml", environment={})) as service:
        place = ("orders", 0)
        assert service.live_status.wait_for(lambda now: now.processed.get(place) == len(ORDERS) + len(MORE), 120)
        assert rows(service) == {"b": (3, 611, 1), "c": (1, 7, 1)}


@pytest.mark.skipif(not in_turn(1, 2), reason="at every second commit; `make soak` runs it")
def test_a_view_is_read_while_steps_of_other_processes_run(tmp_path: Path) -> None:
    """The driver holds the lease, and the workers that run steps and merges know of it."""
    (tmp_path / "circuit.py").write_text(CIRCUIT)
    (tmp_path / "pipeline.toml").write_text(SETTINGS)
    with Service(load_config(tmp_path / "pipeline.toml", environment={})) as service:
        first = pa.table({"id": range(3000), "customer": [f"c{n % 700}" for n in range(3000)], "amount": range(3000)})
        service.wait_until_processed(service.push("orders", first), 120)
        with service.leases.taken(("per_customer",), 120) as leased:
            assert isinstance(leased, LeasedViews)
            before = pa.concat_tables(leased.read("per_customer"))
            for number in range(6):
                change = pa.table(
                    {"id": range(3000), "customer": [f"d{n % 500}" for n in range(3000)], "amount": [number] * 3000}
                )
                service.wait_until_processed(service.push("orders", change), 120)
                if number % 2:
                    service.checkpoint()
            assert service.snapshot.step > leased.step
            assert pa.concat_tables(leased.read("per_customer")) == before
            assert len(before) == 700
        assert len(rows(service)) == 500
        found = service.read_view("per_customer", 120, key={"customer": "d7"}).table.to_pylist()
        assert found == [{"customer": "d7", "orders": 6, "amount": 30, "weight": 1}]
