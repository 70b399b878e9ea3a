"""`/metrics` by table, view, worker and reason; the dashboard names metrics that a running service has, and no others."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

import dbsp
from dbsp.coordinator.running.row_metrics import NOTED_MAX, RowMetrics
from dbsp.io.pushed import Position
from dbsp.logs import Range
from dbsp.runtime.runtime import StepReport, WorkerReport
from dbsp.steps.figures import TableRead
from tests.coordinator.metric_samples import samples
from tests.coordinator.shop import ORDERS
from tests.io.log_samples import make_record
from tools.deploy.grafana import dashboard


@pytest.fixture
def figures(client: httpx.Client) -> str:
    asking = dbsp.Client(url=str(client.base_url))
    asking.push("orders", ORDERS, wait_s=60)
    asking.push("orders", [{"id": 1, "customer": "c", "amount": 9000}, {"id": "x"}], wait_s=60)
    asking.checkpoint()
    return asking.metrics()


def test_rows_are_counted_by_table_view_and_worker(figures: str) -> None:
    found = samples(figures)
    assert found["dbsp_table_rows_total", ("orders",)] == 5
    views = {view: found["dbsp_view_rows_total", (view,)] for view in ("per_customer", "large")}
    assert views == {"per_customer": 4, "large": 2}  # a, b; then a goes, c comes: and 600, then 9000
    assert sum(views.values()) == found["dbsp_rows_out_total", ()]
    assert found["dbsp_dead_rows_total", ("orders", "input")] == found["dbsp_dead_letters_total", ()] == 1
    workers = [found["dbsp_worker_state_bytes", (str(worker),)] for worker in (0, 1)]
    assert sum(workers) == found["dbsp_state_bytes", ()]
    assert (
        sum(found["dbsp_worker_rows_in_total", (str(worker),)] for worker in (0, 1)) == found["dbsp_rows_in_total", ()]
    )
    assert found["dbsp_arrival_to_output_seconds_count", ("orders",)] == 2
    assert found["dbsp_arrival_to_output_seconds_sum", ("orders",)] > 0
    assert found["dbsp_checkpoint_pause_seconds_count", ()] >= 1


def test_bytes_are_counted_by_table_and_view(client: httpx.Client, figures: str) -> None:
    found = samples(figures)
    stored = found["dbsp_table_bytes_total", ("orders",)]
    changes = {view: found["dbsp_view_bytes_total", (view,)] for view in ("per_customer", "large")}
    assert min(stored, *changes.values()) > 0
    dbsp.Client(url=str(client.base_url)).push("orders", [{"id": 7, "customer": "d" * 1_000, "amount": 1}], wait_s=60)
    after = samples(dbsp.Client(url=str(client.base_url)).metrics())
    assert after["dbsp_table_bytes_total", ("orders",)] - stored > 1_000
    assert after["dbsp_view_bytes_total", ("per_customer",)] - changes["per_customer"] > 1_000
    assert after["dbsp_view_bytes_total", ("large",)] == changes["large"]


def expressions() -> list[str]:
    return [target["expr"] for panel in dashboard.dashboard()["panels"] for target in panel["targets"]]


def missing(texts: list[str], figures: str) -> list[str]:
    """The metrics, and labels of them, that expressions name and a service lacks."""
    families = list(text_string_to_metric_families(figures))
    names = {sample.name for family in families for sample in family.samples} | {family.name for family in families}
    names |= {
        f"{family.name}_total" for family in families if family.type == "counter"
    }  # that of labels without values yet
    labels = {label for family in families for sample in family.samples for label in sample.labels}
    known = {"instance", *labels}
    gone = [name for text in texts for name in re.findall(r"dbsp_\w+", text) if name not in names]
    for text in texts:
        for by in re.findall(r"by \(([^)]*)\)", text):
            gone += [label for label in map(str.strip, by.split(",")) if label not in known]
    return gone


def test_the_dashboard_names_metrics_that_a_service_has(figures: str) -> None:
    optional = {"dbsp_copy_behind_messages", "dbsp_delta_behind_steps", "dbsp_waterline_unix_seconds", "code"}
    assert set(missing(expressions(), figures)) <= optional
    assert missing(["rate(dbsp_no_such_total[1m])", "sum(dbsp_step) by (nobody)"], figures) == [
        "dbsp_no_such_total",
        "nobody",
    ]


def test_the_documentation_has_every_metric(figures: str) -> None:
    said = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    table = said[said.index("## Metrics") :]
    names = [
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in text_string_to_metric_families(figures)
        if not family.name.endswith("_created")
    ]
    assert [name for name in names if f"`{name}`" not in table] == []


def test_the_dashboard_is_what_its_script_makes() -> None:
    assert dashboard.FILE.read_text() == dashboard.text()
    made: dict[str, Any] = json.loads(dashboard.FILE.read_text())
    places = [tuple(panel["gridPos"].values()) for panel in made["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in made["panels"]}) == len(places)


class Times:
    """A clock whose wall time is 1,000 s ahead of its monotonic time."""

    now = 0.0

    def monotonic_s(self) -> float:
        return self.now

    def wall_us(self) -> int:
        return round((self.now + 1_000) * 1e6)

    def wait(self, wake: threading.Event, timeout_s: float) -> None:
        raise NotImplementedError


def test_the_time_from_arrival_is_that_of_each_push(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted, too: a push that a step has taken before its arrival is noted waits for no further step."""
    times, registry = Times(), CollectorRegistry()
    rows = RowMetrics(registry, {}, times)
    table, partition, first, last = "orders", 2, 5, 9
    record = replace(make_record(0), ranges=(Range(table=table, partition=partition, first=first, last=last),))

    def count_and_sum() -> tuple[float, float]:
        values = [
            registry.get_sample_value(f"dbsp_arrival_to_output_seconds_{n}", {"table": table}) for n in ("count", "sum")
        ]
        return values[0] or 0.0, values[1] or 0.0

    def position(to: int, **more: Any) -> Position:
        return Position(table=table, partition=partition, first=first, last=to, **more)

    rows.arrived((each, 1.0) for each in (position(last), position(last + 5), position(last, repeated=True)))
    times.now = 3.0
    rows.stepped(record, StepReport(step=0, seconds=1.0, workers=()), new=True)
    assert count_and_sum() == (1, 2.0)
    rows.arrived([(position(last), 2.5)])
    assert count_and_sum() == (2, 2.5)
    for _ in range(NOTED_MAX + 5):
        rows.arrived([(position(last + 9), 3.0)])
    assert sum(map(len, rows._waiting.values())) <= NOTED_MAX


def read_by(worker: int, *reads: TableRead) -> WorkerReport:
    return WorkerReport(worker=worker, rows_in=0, rows_out=0, dead=0, seconds=0.0, state_bytes=0, reads=reads)


def test_rows_that_steps_read_are_measured_by_the_oldest_of_each_table() -> None:
    """A replay is not measured: its rows were, or their outputs were there long before."""
    times, registry, latencies = Times(), CollectorRegistry(), list[float]()
    rows = RowMetrics(registry, {}, times, latencies.append)
    workers = (
        read_by(0, TableRead(table="t", stored_bytes=10, arrived_s=1_004.0), TableRead(table="u", stored_bytes=1)),
        read_by(1, TableRead(table="t", stored_bytes=7, arrived_s=1_002.5)),
    )
    times.now = 6.0
    for new in (True, False):
        rows.stepped(make_record(0), StepReport(step=0, seconds=1.0, workers=workers), new=new)
    figures = {table: registry.get_sample_value("dbsp_table_bytes_total", {"table": table}) for table in ("t", "u")}
    assert figures == {"t": 17, "u": 1}
    assert latencies == [3.5]
    assert registry.get_sample_value("dbsp_arrival_to_output_seconds_count", {"table": "u"}) is None
