"""The Prometheus metrics of one service, in a registry of its own.

Seconds and bytes are base units, counters end in `_total`, and the values of labels are bounded in number.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dbsp.coordinator.decisions.alarms import KINDS
from dbsp.coordinator.running.clock import Clock
from dbsp.coordinator.running.dataflow import dataflow_as_json
from dbsp.coordinator.running.notices import (
    BackupFailed,
    BackupMade,
    CheckpointPublished,
    CommandFailed,
    Notice,
    RescaleMoved,
    RolledBack,
    StateChanged,
    Upgraded,
)
from dbsp.coordinator.running.progress import MovingProgress, RescaleProgress
from dbsp.coordinator.running.row_metrics import RowMetrics
from dbsp.coordinator.running.status import NewSteps, Snapshot
from dbsp.coordinator.running.watch import Health, is_ready, unread_rows
from dbsp.coordinator.running.waterlines import WaterlineStatus
from dbsp.logs import StepRecord
from dbsp.plan.plan import Plan
from dbsp.runtime.runtime import StepReport
from dbsp.runtime.totals import NodeTotals, measured

STEP_BUCKETS_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

GAUGES = (
    ("step", "The next step"),
    ("epoch", "The epoch of this coordinator"),
    ("version", "The opened version"),
    ("workers", "Workers of the layout"),
    ("input_lag_rows", "Input rows that wait"),
    ("state_bytes", "Bytes of state of all workers"),
    ("running", "1 while steps are taken"),
    ("ready", "1 while steps are taken and none takes longer than usual"),
    ("step_running_seconds", "For how long the step under way has run"),
    ("workers_awaited", "Workers that have not answered in the step under way"),
    ("clock_ahead_seconds", "How far now() is ahead of the wall clock"),
    ("rescale_round", "Round of a warm-up; 0 when there is none"),
    ("rescale_copied_bytes", "Bytes that new owners have copied ahead in this warm-up"),
    ("rescale_lag_bytes", "Bytes of the round's version that new owners lack"),
    ("rescale_moved_keys", "Keys that a migration has moved since this process first saw it"),
    ("upgrade_pause_seconds", "For how long no step could run in the upgrade that started this process"),
    ("rescale_left_keys", "Keys that a migration has yet to move"),
    ("copies_lag_versions", "Published checkpoints that are not whole among the copies, where these may lag"),
    ("copies_lag_bytes", "Bytes that the copy under way has yet to put, where copies may lag"),
    (
        "copies_age_seconds",
        "Age of the newest checkpoint that is whole among the copies; 0 while it is the newest of all",
    ),
)
"""The gauges without labels, each with its description."""


class _WaterlineGauges(Collector):
    """The gauges of waterlines, created at each scrape: a partition that a rollback forgot has no gauge any more."""

    def __init__(self) -> None:
        self.standings: Sequence[WaterlineStatus] = ()

    def collect(self) -> Iterable[Metric]:
        """Return the gauges of the last waterline statuses."""
        line = GaugeMetricFamily("dbsp_waterline_unix_seconds", "Rows below this time are late", labels=("watermark",))
        labels = ("watermark", "partition")
        reached, idle, holds = (
            GaugeMetricFamily(f"dbsp_waterline_partition_{name}", text, labels=labels)
            for name, text in (
                ("unix_seconds", "The waterline that a partition would allow: its latest time minus the lateness"),
                ("idle", "1 while a partition is idle: the waterline leaves it out"),
                ("holds_back", "1 for the partition that holds the waterline back"),
            )
        )
        for standing in self.standings:
            name, slowest = standing.watermark.label, standing.slowest
            if standing.waterline_us is not None:
                line.add_metric((name,), standing.waterline_us / 1e6)
            for each in standing.partitions:
                place = (name, str(each.partition))
                if each.reached_us is not None:
                    reached.add_metric(place, each.reached_us / 1e6)
                idle.add_metric(place, each.idle)
                holds.add_metric(place, each == slowest)
        return [line, reached, idle, holds]


class _StandbyGauges(Collector):
    """The gauges of standbys on other hosts, created at each scrape: one that was moved has no gauge any more."""

    def __init__(self) -> None:
        self.status: Mapping[str, Any] = {}

    def collect(self) -> Iterable[Metric]:
        """Return the lag of each standby, where it is known, and the number of missing standbys."""
        labels = ("worker", "host")
        lag = GaugeMetricFamily("dbsp_standby_lag_bytes", "Bytes of its version that a standby lacks", labels=labels)
        for standby in self.status.get("standbys", ()):
            if standby["lag_bytes"] is not None:
                lag.add_metric((str(standby["worker"]), standby["host"]), standby["lag_bytes"])
        missing = GaugeMetricFamily("dbsp_standbys_missing", "Standbys for which no other host is left")
        missing.add_metric((), self.status.get("missing", 0))
        return [lag, missing]


class Metrics:
    """The metrics, counted from the reports of the command runner; `text` adds the figures of the snapshot."""

    def __init__(
        self, views: Mapping[str, int], clock: Clock, latency: Callable[[float], None] = lambda _: None
    ) -> None:
        """Register all metrics, at zero; `views` has the plan's node of each view, `latency` is as of `RowMetrics`."""
        registry = CollectorRegistry()
        self.rows = RowMetrics(registry, views, clock, latency)
        self._registry = registry
        self._step_seconds = Histogram(
            "dbsp_step_seconds", "Time of one step", ("kind",), registry=registry, buckets=STEP_BUCKETS_S
        )
        self._rows_in = Counter("dbsp_rows_in", "Input rows processed, each once", registry=registry)
        self._rows_replayed = Counter("dbsp_rows_replayed", "Input rows processed again", registry=registry)
        self._rows_out = Counter("dbsp_rows_out", "Rows of view deltas written, each once", registry=registry)
        self._dead = Counter("dbsp_dead_letters", "Rows that could not be used", registry=registry)
        self._late = Counter("dbsp_late_rows", "Dead letters that were late for a watermark", registry=registry)
        self._node_seconds = Counter("dbsp_node_seconds", "Time in one node of the plan", ("node",), registry=registry)
        self._checkpoint_seconds = Histogram(
            "dbsp_checkpoint_seconds", "Time of one commit on all workers", registry=registry, buckets=STEP_BUCKETS_S
        )
        self._pause_seconds = Histogram(
            "dbsp_checkpoint_pause_seconds",
            "Time without steps for one commit",
            registry=registry,
            buckets=STEP_BUCKETS_S,
        )
        self._checkpoint_bytes = Counter("dbsp_checkpoint_bytes", "Bytes written by commits", registry=registry)
        self._rollbacks = Counter("dbsp_rollbacks", "Rollbacks after an error", registry=registry)
        self._errors = Counter("dbsp_errors", "Errors of commands", ("code",), registry=registry)
        self._rescales = Counter("dbsp_rescales", "Rescales completed", registry=registry)
        self._backups = Counter("dbsp_backups", "Backups made, and those that failed", ("result",), registry=registry)
        self._backup_gauges = {
            name: Gauge(f"dbsp_backup_{name}", text, registry=registry)
            for name, text in (
                ("step", "The step of the last backup since this start"),
                ("bytes", "Bytes of the last backup"),
                ("seconds", "Time that the last backup took"),
                ("pause_seconds", "For how long the last backup let no step run, apart from its checkpoint"),
                ("last_unix_seconds", "When the last backup was made"),
            )
        }
        self._beside = {
            name: Gauge(f"dbsp_{name}", text, (label,), registry=registry)
            for name, text, label in (
                ("delta_behind_steps", "Finished steps that a view's Delta table lacks", "view"),
                ("delta_failing", "1 while a view's Delta table cannot be written", "view"),
                ("copy_behind_messages", "Messages of a table's topic that are not copied", "table"),
                ("copy_failing", "1 while a table's topic cannot be copied", "table"),
                ("input_waiting_rows", "Rows of a table that no step has read, as its input reports", "table"),
                ("input_away", "1 while a table waits for its broker, topic, registry or folder", "table"),
                ("alarm", "1 while something is wrong", "kind"),
            )
        }
        self._waterlines, self._standbys = _WaterlineGauges(), _StandbyGauges()
        registry.register(self._waterlines)
        registry.register(self._standbys)
        self._new_steps = NewSteps()
        self._lock = threading.Lock()
        self._totals = NodeTotals()
        self._gauges = {name: Gauge(f"dbsp_{name}", text, registry=registry) for name, text in GAUGES}

    def stepped(self, record: StepRecord, report: StepReport, *, replay: bool, lag_rows: int) -> None:  # noqa: ARG002
        """Count a finished step."""
        self._step_seconds.labels("replay" if replay else "live").observe(report.seconds)
        with self._lock:
            self._totals.add(report)
        new = self._new_steps.takes(record.step)
        (self._rows_in if new else self._rows_replayed).inc(report.rows_in)
        self.rows.stepped(record, report, new=new)
        for worker in report.workers if new else ():
            self._rows_out.inc(worker.rows_out)
            self._dead.inc(worker.dead)
            self._late.inc(worker.late)
        for worker in report.workers:
            for node in worker.nodes:
                self._node_seconds.labels(str(node.node)).inc(max(node.seconds, 0.0))

    def noted(self, notice: Notice) -> None:
        """Count other events."""
        match notice:
            case StateChanged(state="Running" | "Paused" | "Halted" | "Filling", step=step):
                self._new_steps.begin(step)
            case CheckpointPublished(seconds=seconds, bytes_written=written, pause_seconds=pause):
                self._checkpoint_seconds.observe(seconds)
                self._pause_seconds.observe(pause)
                self._checkpoint_bytes.inc(written)
            case RolledBack():
                self._rollbacks.inc()
            case CommandFailed(code=code):
                self._errors.labels(code).inc()
            case RescaleMoved():
                self._rescales.inc()
            case Upgraded(pause_seconds=seconds):
                self._gauges["upgrade_pause_seconds"].set(seconds)
            case BackupMade():
                self._backups.labels("made").inc()
                for name in ("step", "bytes", "seconds", "pause_seconds"):
                    self._backup_gauges[name].set(getattr(notice, name))
                self._backup_gauges["last_unix_seconds"].set(datetime.fromisoformat(notice.at).timestamp())
            case BackupFailed():
                self._backups.labels("failed").inc()

    def explained(self, plan: Plan) -> str:
        """Return the plan with the measurements of every node since this process started, including replayed steps."""
        with self._lock:
            return measured(plan, self._totals)

    def dataflow(self, plan: Plan) -> dict[str, Any]:
        """Return the plan as a graph of JSON values, with the measurements of `explained`."""
        with self._lock:
            return dataflow_as_json(plan, self._totals)

    def text(
        self,
        now: Snapshot,
        delta: Sequence[Mapping[str, Any]] = (),
        copies: Sequence[Mapping[str, Any]] = (),
        health: Health | None = None,
        waterlines: Sequence[WaterlineStatus] = (),
        lag: Mapping[str, Any] | None = None,
        standbys: Mapping[str, Any] | None = None,
    ) -> bytes:
        """Return the metrics in the exposition format; the arguments have the form of the status (`lag` is that of copies)."""
        self._waterlines.standings = waterlines
        self._standbys.status = standbys or {}
        for copy in copies:
            self._beside["copy_behind_messages"].labels(copy["table"]).set(copy["behind_messages"])
            self._beside["copy_failing"].labels(copy["table"]).set(copy["error"] is not None)
        for table in delta:
            self._beside["delta_behind_steps"].labels(table["view"]).set(table["behind_steps"])
            self._beside["delta_failing"].labels(table["view"]).set(table["error"] is not None)
        values: dict[str, float] = {
            "step": now.step, "epoch": now.epoch, "version": now.version,
            "input_lag_rows": now.lag_rows if now.knows_positions else math.nan,
            "state_bytes": math.nan if now.state_bytes is None else now.state_bytes,
            "workers": len(now.layout.workers) if now.layout else 0,
            "running": int(now.state == "Running"),
        }  # fmt: skip
        warming = now.rescale if isinstance(now.rescale, RescaleProgress) else None
        moving = now.rescale if isinstance(now.rescale, MovingProgress) else None
        values |= {
            "rescale_round": warming.round if warming else 0,
            "rescale_copied_bytes": warming.copied_bytes if warming else 0,
            "rescale_lag_bytes": warming.lag_bytes if warming else 0,
            "rescale_moved_keys": moving.moved_keys if moving else 0,
            "rescale_left_keys": moving.left_keys if moving else 0,
        }
        values |= {
            "copies_lag_versions": lag["lag_versions"] if lag else 0,
            "copies_lag_bytes": lag["lag_bytes"] if lag else 0, "copies_age_seconds": lag["age_s"] if lag else 0,
        }  # fmt: skip
        values |= self._watched(now, health or Health())
        for name, value in values.items():
            self._gauges[name].set(value)
        return generate_latest(self._registry)

    def _watched(self, now: Snapshot, health: Health) -> dict[str, float]:
        """Set the gauges by table and by kind of alarm, and return the values of the other watched gauges."""
        for table, rows in unread_rows(health, now.processed).items():
            self._beside["input_waiting_rows"].labels(table).set(rows if now.knows_positions else math.nan)
            self._beside["input_away"].labels(table).set(any(wait.table == table for wait in health.waits))
        for kind in KINDS:
            self._beside["alarm"].labels(kind).set(any(alarm.kind == kind for alarm in health.alarms))
        in_step = health.doing is not None and health.doing.step is not None
        return {
            "ready": int(is_ready(now, health)), "step_running_seconds": health.doing_s if in_step else 0.0,
            "workers_awaited": len(health.awaited), "clock_ahead_seconds": health.clock_ahead_s,
        }  # fmt: skip
