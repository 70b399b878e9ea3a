"""Metrics by table, view and worker: rows, bytes, dead letters, state, and the time from a row's arrival to the outputs.

A push is measured from its arrival here; one that copies a topic, from its oldest message. Topics and files that steps
read are measured once a step: from the arrival of the oldest row that the step read of the table.

The values of labels are names of the circuit and numbers of workers, so their number is bounded.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dbsp.coordinator.running.clock import Clock
from dbsp.io.pushed import Position
from dbsp.logs import StepRecord
from dbsp.runtime.runtime import StepReport, WorkerReport

ARRIVAL_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
NOTED_MAX = 10_000
"""The most pushes of a partition whose arrival is noted; while so many wait, further pushes are not measured."""

Place = tuple[str, int]


class _WorkerGauges(Collector):
    """The gauges of workers, created at each scrape: a worker that a rescale removed has no gauge any more."""

    def __init__(self) -> None:
        self.workers: Sequence[WorkerReport] = ()

    def collect(self) -> Iterable[Metric]:
        """Return the gauges of the workers of the last step."""
        state = GaugeMetricFamily("dbsp_worker_state_bytes", "Bytes of a worker's state", labels=("worker",))
        seconds = GaugeMetricFamily("dbsp_worker_step_seconds", "Time of a worker in the last step", labels=("worker",))
        for worker in self.workers:
            state.add_metric((str(worker.worker),), worker.state_bytes)
            seconds.add_metric((str(worker.worker),), worker.seconds)
        return [state, seconds]


class RowMetrics:
    """The counters by table, view and worker; `views` has the plan's node of each view."""

    def __init__(
        self,
        registry: CollectorRegistry,
        views: Mapping[str, int],
        clock: Clock,
        latency: Callable[[float], None] = lambda _: None,
    ) -> None:
        """Register the metrics, at zero; `latency` is called with each time from an arrival to the outputs, in seconds."""
        self._views, self._clock, self._latency = views, clock, latency
        self._table_rows = Counter(
            "dbsp_table_rows", "Offsets of a table's input processed, each once", ("table",), registry=registry
        )
        self._table_bytes = Counter(
            "dbsp_table_bytes", "Bytes of a table's input processed, as its source stores them, each once",
            ("table",), registry=registry,
        )  # fmt: skip
        self._view_bytes = Counter(
            "dbsp_view_bytes", "Bytes of a view's changes, as Arrow with weights, each once", ("view",),
            registry=registry,
        )  # fmt: skip
        self._view_rows = Counter("dbsp_view_rows", "Rows of a view's changes, each once", ("view",), registry=registry)
        self._dead = Counter(
            "dbsp_dead_rows", "Rows that could not be used, by table or node and kind of reason",
            ("origin", "reason"), registry=registry,
        )  # fmt: skip
        self._worker_rows = Counter(
            "dbsp_worker_rows_in", "Input rows that a worker read, each once", ("worker",), registry=registry
        )
        self._worker_seconds = Counter(
            "dbsp_worker_busy_seconds", "Time of a worker in steps", ("worker",), registry=registry
        )
        self._arrival = Histogram(
            "dbsp_arrival_to_output_seconds", "Time from the arrival of rows until their results are in the outputs",
            ("table",), registry=registry, buckets=ARRIVAL_BUCKETS_S,
        )  # fmt: skip
        self._workers = _WorkerGauges()
        registry.register(self._workers)
        for view in views:
            self._view_rows.labels(view)
            self._view_bytes.labels(view)
        self._lock = threading.Lock()
        self._waiting: dict[Place, deque[tuple[int, float]]] = {}
        self._done: dict[Place, int] = {}

    def arrived(self, pushes: Iterable[tuple[Position, float]]) -> None:
        """Note durable pushes and their arrivals, in monotonic seconds; one that a step has taken is measured now."""
        with self._lock:
            for position, began_s in pushes:
                place = (position.table, position.partition)
                if position.repeated or position.last == position.first:
                    continue
                if self._done.get(place, 0) >= position.last:
                    self._measure(position.table, self._clock.monotonic_s() - began_s)
                    continue
                noted = self._waiting.setdefault(place, deque())
                if len(noted) < NOTED_MAX:
                    noted.append((position.last, began_s))

    def stepped(self, record: StepRecord, report: StepReport, *, new: bool) -> None:
        """Count a finished step, whose outputs are durable; a step that runs again counts for the time of workers alone."""
        self._workers.workers = report.workers
        for worker in report.workers:
            self._worker_seconds.labels(str(worker.worker)).inc(max(worker.seconds, 0.0))
        self._take(record)
        if not new:
            return
        for range_ in record.ranges:
            self._table_rows.labels(range_.table).inc(range_.last - range_.first)
        for worker in report.workers:
            self._worker_rows.labels(str(worker.worker)).inc(worker.rows_in)
            for read in worker.reads:
                self._table_bytes.labels(read.table).inc(read.stored_bytes)
            for view, size in worker.view_bytes:
                self._view_bytes.labels(view).inc(size)
            rows = {node.node: node.rows_out for node in worker.nodes}
            for view, node in self._views.items():
                self._view_rows.labels(view).inc(rows.get(node, 0))
            for dead in worker.dead_of:
                self._dead.labels(dead.origin, dead.kind).inc(dead.rows)
        self._measure_reads(report)

    def _measure_reads(self, report: StepReport) -> None:
        """Measure the oldest row that the step read of each table whose source knows when rows arrived."""
        oldest: dict[str, float] = {}
        for read in (each for worker in report.workers for each in worker.reads):
            if read.arrived_s is not None:
                oldest[read.table] = min(read.arrived_s, oldest.get(read.table, read.arrived_s))
        now_s = self._clock.wall_us() / 1e6
        for table, arrived_s in oldest.items():
            self._measure(table, now_s - arrived_s)

    def _take(self, record: StepRecord) -> None:
        """Measure the pushes that this step has taken whole."""
        now = self._clock.monotonic_s()
        with self._lock:
            for range_ in record.ranges:
                place = (range_.table, range_.partition)
                self._done[place] = max(range_.last, self._done.get(place, 0))
                noted = self._waiting.get(place)
                left: deque[tuple[int, float]] = deque()
                while noted:
                    last, began = noted.popleft()
                    if last <= range_.last:
                        self._measure(range_.table, now - began)
                    else:
                        left.append((last, began))
                if noted is not None:
                    noted.extend(left)

    def _measure(self, table: str, seconds: float) -> None:
        """Count the time from the arrival of rows until their results are in the outputs."""
        self._arrival.labels(table).observe(max(0.0, seconds))
        self._latency(max(0.0, seconds))
