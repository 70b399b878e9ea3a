"""A changed circuit on Spark: the step that fills it is a job like any other, also with a loop and joins in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dbsp.coordinator.build import build
from dbsp.coordinator.decisions.fills import old_views
from dbsp.coordinator.decisions.states import Facts
from dbsp.coordinator.service import Service
from tests.coordinator import test_evolving_logs as logs
from tests.coordinator.shop import CIRCUIT, ORDERS, settings
from tests.coordinator.test_edited_views import LATER, told
from tests.coordinator.test_evolving import CHANGED, MORE, content, folded, write
from tests.pace import rotating

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SPARK = ("pipeline.runtime=spark", "spark.master=local[2]")
PATHS = """
below = orders.select(a=col("id") // 2, b="id")

def longer(paths):
    return paths.join(below.rename({"a": "b", "b": "c"}), on="b").select("a", b="c")

paths = dbsp.recursive(below, longer)
halves = orders.select("id", half=col("amount") // 2)
views = {"per_customer": per_customer, "best": best, "number": number, "paths": paths, "large": halves}
pipeline = dbsp.circuit("shop", views)
"""


@pytest.mark.parametrize("workers", rotating([3, 2], 2))
def test_a_changed_circuit_is_filled_by_spark(tmp_path: Path, workers: int) -> None:
    """Two workers have tasks that stay on `local[2]`, three take a job for each step; the old circuit ran in one process.

    The view `large` is edited, so it begins anew. Just before, jobs read it as it was, as on hosts with disks of their own.
    """
    write(tmp_path, CIRCUIT, workers)
    with Service(settings(tmp_path)) as service:
        service.wait_until_processed(service.push("orders", ORDERS), 120)
    write(tmp_path, CHANGED + PATHS, workers)
    config = settings(tmp_path, *SPARK)
    made = Service(config, build(config, evolve=True))
    begins, tables = made._loop.backfill_begins, dict[str, list[Any]]()

    def read_before(runtime: Any, facts: Facts) -> None:
        runtime._one_host = False
        leased = runtime.lease_views(
            ("large", "per_customer"), facts.next_step, facts.layout, old_views(facts.fill, facts.next_step)
        )
        runtime._one_host = True
        assert leased.spec("large").schema.names == ("id", "customer", "amount")
        tables.update({view: pa.concat_tables(leased.read(view)).to_pylist() for view in ("large", "per_customer")})
        leased.end()
        begins(runtime, facts)

    made._loop.backfill_begins = read_before  # type: ignore[method-assign]
    with made as service:
        assert tables["large"] == [{"id": 2, "customer": "b", "amount": 600, "weight": 1}]
        assert len(tables["per_customer"]) == 2
        service.wait_until_processed(service.push("orders", MORE), 120)
        assert content(service, "best") == {("a", 70): 1, ("b", 60): 1}
        assert content(service, "number") == {(4,): 1}
        assert content(service, "large") == told(service, "large", 1) == LATER
        assert content(service, "paths") == dict.fromkeys(
            [(0, 1), (1, 2), (1, 3), (2, 4), (0, 2), (0, 3), (1, 4), (0, 4)], 1
        )
    assert folded(config, "per_customer") == {("a", 2, 80): 1, ("b", 2, 61): 1}
    assert folded(config, "best") == {("a", 70): 1, ("b", 60): 1}


@pytest.mark.parametrize("workers", rotating([2, 3], 2))
def test_rows_of_the_input_log_are_read_again_by_spark(tmp_path: Path, workers: int) -> None:
    more = logs.KEEP + logs.PARTS
    write(tmp_path, logs.BEFORE, workers, more)
    with Service(settings(tmp_path)) as service:
        for partition in range(3):
            rows = logs.VISITS.slice(partition, 2 if partition == 2 else 1)
            service.wait_until_processed(service.push("visits", rows, partition=partition), 120)
    write(tmp_path, logs.AFTER, workers, more)
    config = settings(tmp_path, *SPARK)
    logs.check(config, Service(config, build(config, evolve=True)))
