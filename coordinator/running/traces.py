"""Traces of steps and checkpoints for OpenTelemetry: spans that are sent by OTLP over HTTP, as the section [traces] says.

A trace is one step or one checkpoint. Its spans are made after the fact, from the reports that all observers get, so
nothing waits for them. They are sent in a thread of the library; while the collector is away, spans are dropped. Times
of workers are by the clocks of their hosts.

| span | parent | time |
| --- | --- | --- |
| `step` | none | from the cut, if the step is new, until the outputs are durable |
| `cut` | `step` | the input is looked at, and the record of the step is logged |
| `run` | `step` | the runtime runs the step |
| `worker` | `run` | one worker |
| `read`, `segment`, `exchange`, `loop`, `output`, `state` | `worker` | see `dbsp.steps.figures.StepPhase` |
| `checkpoint` | none | from the pin until every worker has acknowledged the version |
| `pin` | `checkpoint` | no step can run |
| `copy` | `checkpoint` | chunks are copied while steps run |
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dbsp.coordinator.running.clock import Clock
from dbsp.coordinator.running.notices import CheckpointPublished, Notice, Notify, StepCut, TracesFailed, TracesSent
from dbsp.coordinator.settings.config import TracesSection
from dbsp.coordinator.settings.extras import refuse_missing
from dbsp.diagnostics.secrets import without_login
from dbsp.logs import StepRecord
from dbsp.runtime.runtime import StepReport, WorkerReport

QUEUE_SPANS: Final = 16_384
SEND_S: Final = 5.0
"""The time limit of one request to the collector, in seconds."""
CLOSE_S: Final = 3.0
"""Seconds that the end of the service waits for the last spans to be sent."""
CUTS_KEPT: Final = 64
"""The most cuts of unfinished steps that are remembered; a rollback leaves some that never finish."""


class Traces:
    """The observer that makes spans. Called on the thread of the event loop, and on that which cuts ahead."""

    def __init__(self, section: TracesSection, pipeline: str, clock: Clock, note: Notify) -> None:
        """Prepare the sender; `note` receives a notice when spans can no longer be sent, and when they can again.

        **Errors** `ConfigError` if the packages of the extra `traces` are missing.
        """
        refuse_missing("traces")
        from opentelemetry import trace  # noqa: PLC0415 (an extra)
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 (as above)
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 (as above)
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 (as above)
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult  # noqa: PLC0415 (as above)

        exporter = OTLPSpanExporter(endpoint=section.endpoint, headers=dict(section.headers), timeout=SEND_S)
        sender: Any = _Sender(exporter, SpanExportResult.SUCCESS, without_login(section.endpoint), note)
        resource = Resource.create({"service.name": pipeline, "service.namespace": "dbsp"})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(sender, max_queue_size=QUEUE_SPANS))
        self._tracer, self._within = self._provider.get_tracer("dbsp"), trace.set_span_in_context
        self._clock, self._rate = clock, section.steps_per_s_max
        self._allowed, self._allowed_at_s = max(1.0, self._rate), clock.monotonic_s()
        self._cuts: dict[int, tuple[float, float]] = {}
        self._lock = threading.Lock()

    def stepped(self, record: StepRecord, report: StepReport, *, replay: bool, lag_rows: int) -> None:
        """Make the spans of a step, unless too many steps were traced within the last second."""
        end_s = self._clock.wall_us() / 1e6
        with self._lock:
            cut = self._cuts.pop(record.step, None)
        if not self._is_allowed():
            return
        began_s = end_s - report.seconds if report.began_s is None else report.began_s
        step = self._span("step", None, began_s if cut is None else min(cut[0], began_s), {
            "step": record.step, "replay": replay, "rows_in": report.rows_in, "lag_rows": lag_rows,
            "rows_out": sum(worker.rows_out for worker in report.workers), "workers": len(report.workers),
            "dead_rows": sum(worker.dead for worker in report.workers), "commands": len(record.commands),
        })  # fmt: skip
        if cut is not None:
            self._whole("cut", step, *cut)
        run = self._span("run", step, began_s)
        for worker in report.workers:
            self._worker(run, worker)
        _end(run, began_s + report.seconds)
        _end(step, end_s)

    def _worker(self, run: Any, worker: WorkerReport) -> None:
        """Make the spans of a worker from its phases, which are in order."""
        if not worker.phases:
            return
        figures = {"worker": worker.worker, "rows_in": worker.rows_in, "rows_out": worker.rows_out}
        span = self._span("worker", run, worker.phases[0].began_s, figures)
        for phase in worker.phases:
            self._whole(phase.name, span, phase.began_s, phase.ended_s, {"segment": phase.segment})
        _end(span, worker.phases[-1].ended_s)

    def noted(self, notice: Notice) -> None:
        """Keep the times of a cut until its step is done; make the spans of a checkpoint."""
        now_s = self._clock.wall_us() / 1e6
        match notice:
            case StepCut(step=number, seconds=seconds):
                with self._lock:
                    self._cuts[number] = (now_s - seconds, now_s)
                    while len(self._cuts) > CUTS_KEPT:
                        self._cuts.pop(min(self._cuts))
            case CheckpointPublished(seconds=seconds, pause_seconds=pause):
                began_s = now_s - seconds
                figures = {
                    "step": notice.step, "version": notice.version, "bytes_written": notice.bytes_written,
                    "state_bytes": notice.state_bytes,
                }  # fmt: skip
                span = self._span("checkpoint", None, began_s, figures)
                self._whole("pin", span, began_s, began_s + pause)
                self._whole("copy", span, began_s + pause, now_s)
                _end(span, now_s)

    def close(self) -> None:
        """Send the spans that wait, within `CLOSE_S`."""
        ending = threading.Thread(target=self._provider.shutdown, name="dbsp-traces-end", daemon=True)
        ending.start()
        ending.join(CLOSE_S)

    def _is_allowed(self) -> bool:
        """Return whether one more step may be traced now; bursts of up to a second's steps are allowed."""
        now_s, most = self._clock.monotonic_s(), max(1.0, self._rate)
        self._allowed = min(most, self._allowed + (now_s - self._allowed_at_s) * self._rate)
        self._allowed_at_s = now_s
        if self._allowed < 1.0:
            return False
        self._allowed -= 1.0
        return True

    def _span(self, name: str, parent: Any, began_s: float, figures: Mapping[str, Any] | None = None) -> Any:
        attributes = {f"dbsp.{key}": value for key, value in (figures or {}).items()}
        context = None if parent is None else self._within(parent)
        return self._tracer.start_span(name, context=context, start_time=_ns(began_s), attributes=attributes)

    def _whole(
        self, name: str, parent: Any, began_s: float, ended_s: float, figures: Mapping[str, Any] | None = None
    ) -> None:
        _end(self._span(name, parent, began_s, figures), ended_s)


def _end(span: Any, ended_s: float) -> None:
    span.end(end_time=_ns(ended_s))


def _ns(seconds: float) -> int:
    """Return seconds since 1970 as nanoseconds, exact to the microsecond."""
    return round(seconds * 1e6) * 1000


class _Sender:
    """The library's sender, which reports when requests begin to fail, and when they succeed again."""

    def __init__(self, exporter: Any, success: Any, endpoint: str, note: Notify) -> None:
        self._exporter, self._success, self._endpoint, self._note = exporter, success, endpoint, note
        self._fails = False

    def export(self, spans: Sequence[Any]) -> Any:
        """Send spans; called by one thread at a time."""
        result = self._exporter.export(spans)
        fails = result != self._success
        if fails != self._fails:
            self._fails = fails
            self._note((TracesFailed if fails else TracesSent)(endpoint=self._endpoint, spans=len(spans)))
        return result

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Send nothing: the library's sender holds no spans back."""
        return bool(self._exporter.force_flush(timeout_millis))

    def shutdown(self) -> None:
        """End a request that is being repeated, and close the connection."""
        self._exporter.shutdown()
