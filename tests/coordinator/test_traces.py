"""Traces of steps: spans that a small OTLP receiver gets, whose times lie within each other; what happens without a receiver."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from dbsp.coordinator.running.notices import CheckpointPublished, Notice, StepCut
from dbsp.coordinator.running.traces import CLOSE_S, CUTS_KEPT, Traces
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import TracesSection
from dbsp.coordinator.settings.settings_shown import settings_as_json
from dbsp.errors import ConfigError
from dbsp.runtime.runtime import StepReport, WorkerReport
from dbsp.steps.figures import StepPhase
from tests.coordinator.shop import ORDERS, settings
from tests.io.log_samples import make_record
from tests.spark.waiting import until

proto = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2", reason="the extra traces")

SLACK_NS = 2_000_000
"""What the two clocks of a process, and rounding to microseconds, may differ by."""


class Receiver:
    """An OTLP receiver over HTTP: it keeps the spans of all requests, or refuses them with a status."""

    def __init__(self, port: int = 0) -> None:
        self.spans: list[Any] = []
        self.resources: list[dict[str, str]] = []
        self.headers: list[str | None] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                request = proto.ExportTraceServiceRequest.FromString(body)
                receiver.headers.append(self.headers["authorization"])
                for each in request.resource_spans:
                    receiver.resources.append({a.key: a.value.string_value for a in each.resource.attributes})
                    receiver.spans += [span for scope in each.scope_spans for span in scope.spans]
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the library's name
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1/traces"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]

    def within(self, parent: Any) -> list[Any]:
        return [span for span in self.spans if span.parent_span_id == parent.span_id]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with closing(Receiver()) as made:
        yield made


def value(span: Any, key: str) -> Any:
    (found,) = [each.value for each in span.attributes if each.key == f"dbsp.{key}"]
    return getattr(found, found.WhichOneof("value"))


def test_a_step_is_a_trace(folder: Path, receiver: Receiver) -> None:
    more = f'[traces]\nendpoint = "{receiver.address}"\nheaders = {{ authorization = "Bearer of-the-collector" }}\n'
    file = folder / "pipeline.toml"
    file.write_text(file.read_text() + more)
    with Service(settings(folder)) as service:
        service.wait_until_processed(service.push("orders", ORDERS), 60)
        service.checkpoint()
    step = next(span for span in receiver.named("step") if value(span, "rows_in") == 3)
    assert (value(step, "replay"), value(step, "workers")) == (False, 2)
    assert {resource["service.name"] for resource in receiver.resources} == {"shop"}
    assert set(receiver.headers) == {"Bearer of-the-collector"}
    cut, run = sorted(receiver.within(step), key=lambda span: span.start_time_unix_nano)
    assert (cut.name, run.name) == ("cut", "run")
    workers = receiver.within(run)
    assert sorted(value(worker, "worker") for worker in workers) == [0, 1]
    for worker in workers:
        phases = sorted(receiver.within(worker), key=lambda span: (span.start_time_unix_nano, span.end_time_unix_nano))
        names = [phase.name for phase in phases]
        exchanges = names.count("exchange")
        assert exchanges >= 1
        assert names == ["read", "segment", *["exchange", "segment"] * exchanges, "output", "state"]
    families = {span.span_id: span for span in receiver.spans}
    for span in receiver.spans:
        parent = families.get(span.parent_span_id)
        assert span.start_time_unix_nano <= span.end_time_unix_nano
        if parent is not None:
            assert span.trace_id == parent.trace_id
            assert parent.start_time_unix_nano - SLACK_NS <= span.start_time_unix_nano
            assert span.end_time_unix_nano <= parent.end_time_unix_nano + SLACK_NS
    checkpoint = receiver.named("checkpoint")[0]
    assert {span.name for span in receiver.within(checkpoint)} == {"pin", "copy"}
    assert "of-the-collector" not in (folder / "data" / "coordinator.log").read_text()
    assert "of-the-collector" not in json.dumps(settings_as_json(service.config), default=str)


def test_without_an_address_nothing_is_loaded(folder: Path) -> None:
    with closing(Service(settings(folder))) as service:
        assert service.traces is None


class Stopped:
    """A clock that is moved by hand."""

    now_s = 1_000.0

    def wall_us(self) -> int:
        return round(self.now_s * 1e6)

    def monotonic_s(self) -> float:
        return self.now_s

    def wait(self, wake: threading.Event, timeout_s: float) -> None:
        raise NotImplementedError


def report(number: int) -> StepReport:
    phases = (StepPhase(name="read", began_s=999.0, seconds=0.25), StepPhase(name="state", began_s=999.25, seconds=0.5))
    worker = WorkerReport(worker=0, rows_in=1, rows_out=1, dead=0, seconds=0.5, state_bytes=1, phases=phases)
    return StepReport(step=number, seconds=1.0, workers=(worker,))


@contextmanager
def tracing(section: TracesSection, clock: Stopped, heard: list[Notice]) -> Iterator[Traces]:
    made = Traces(section, "p", clock, heard.append)
    yield made
    made.close()


def take(traces: Traces, number: int, *, replay: bool = False) -> None:
    traces.stepped(make_record(number), report(number), replay=replay, lag_rows=0)


def test_spans_have_the_times_that_were_reported(receiver: Receiver) -> None:
    """A step that runs again was cut by an earlier process, or before a rollback: it has no cut."""
    clock = Stopped()
    with tracing(TracesSection(endpoint=receiver.address), clock, []) as traces:
        clock.now_s = 998.5
        traces.noted(StepCut(step=4, seconds=0.5))
        clock.now_s = 1_000.0
        take(traces, 4)
        take(traces, 4, replay=True)
    times = [(span.name, span.start_time_unix_nano / 1e9, span.end_time_unix_nano / 1e9) for span in receiver.spans]
    whole = [("read", 999.0, 999.25), ("state", 999.25, 999.75), ("worker", 999.0, 999.75), ("run", 999.0, 1_000.0)]
    assert times == [
        ("cut", 998.0, 998.5), *whole, ("step", 998.0, 1_000.0), *whole, ("step", 999.0, 1_000.0)
    ]  # fmt: skip
    assert [value(span, "replay") for span in receiver.named("step")] == [False, True]


def test_so_many_steps_a_second_are_traced_and_every_checkpoint(receiver: Receiver) -> None:
    clock = Stopped()
    with tracing(TracesSection(endpoint=receiver.address, steps_per_s_max=2.0), clock, []) as traces:
        for number in range(5 * CUTS_KEPT):
            traces.noted(StepCut(step=number, seconds=0.0))
            take(traces, number)
            traces.noted(
                CheckpointPublished(
                    version=1, step=number, seconds=0.2, pause_seconds=0.1, bytes_written=0, state_bytes=0
                )
            )
            clock.now_s += 0.125
        for number in range(9 * CUTS_KEPT):
            traces.noted(StepCut(step=1_000 + number, seconds=0.0))
        assert len(traces._cuts) == CUTS_KEPT
    seconds = 5 * CUTS_KEPT * 0.125
    assert abs(len(receiver.named("step")) - 2 * seconds) <= 2
    assert len(receiver.named("checkpoint")) == 5 * CUTS_KEPT


def test_without_a_collector_steps_go_on_and_the_log_says_so_once(folder: Path) -> None:
    """It comes back: then the log says that, too. The end of a service does not wait long for a collector that is away."""
    with closing(Receiver()) as once:
        port = once.port
    heard: list[Notice] = []
    with tracing(TracesSection(endpoint=f"http://127.0.0.1:{port}/v1/traces"), Stopped(), heard) as traces:
        for number in range(2):
            take(traces, number)
            until(lambda count=number + 1: traces._provider.force_flush() and bool(heard), "it was noticed")  # type: ignore[misc]
        with closing(Receiver(port)) as back:
            take(traces, 2)
            until(lambda: traces._provider.force_flush() and len(heard) > 1, "it is back")
            assert back.named("step")
    assert [notice.EVENT for notice in heard] == ["traces-failed", "traces-sent"]

    address = f"traces.endpoint=http://127.0.0.1:{port}/v1/traces"
    service = Service(settings(folder, address, "checkpoint.interval_s=0.05"))
    service.start(timeout_s=60)
    service.wait_until_processed(service.push("orders", ORDERS), 60)
    began_s = time.monotonic()
    service.stop()
    assert time.monotonic() - began_s < CLOSE_S + 5
    lines = [json.loads(line) for line in (folder / "data" / "coordinator.log").read_text().splitlines()]
    assert "cut" not in {line["event"] for line in lines}


def test_what_cannot_trace_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"not an address: traces.endpoint=collector:4318"):
        settings(folder, "traces.endpoint=collector:4318")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ConfigError) as refused:
        Traces(TracesSection(endpoint="http://h/v1/traces"), "p", Stopped(), lambda _: None)
    assert "dbsp-engine[traces]" in str(refused.value.hint)
