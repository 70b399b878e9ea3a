"""A whole service with the in-process runtime: the Python interface, HTTP, the command lines."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import httpx
import lmdb
import pyarrow as pa
import pytest

from dbsp.coordinator import build as build_module
from dbsp.coordinator import serve
from dbsp.coordinator.clock import SystemClock
from dbsp.coordinator.config import Config, HttpSection, load_config
from dbsp.coordinator.events_log import EventsLog
from dbsp.coordinator.http import ARROW, make_app
from dbsp.coordinator.listen import Server, bind, read_address
from dbsp.coordinator.service import Service
from dbsp.coordinator.status import Board
from dbsp.errors import CircuitError, ConfigError, DataError, OverloadedError, UnavailableError
from dbsp.io import EmbeddedOutputLog, Position, Producer, read_outputs
from dbsp.io.embedded_output import output_workers

CIRCUIT = """
import dbsp
from dbsp import col, count
from dbsp import sum as total

orders = dbsp.table("orders", {"id": dbsp.INT64, "customer": dbsp.STRING, "amount": dbsp.INT64}, primary_key=["id"])
per_customer = orders.group_by("customer").aggregate(orders=count(), amount=total("amount"))
large = orders.filter(col("amount") > 500)
pipeline = dbsp.circuit("shop", {"per_customer": per_customer, "large": large})
"""
SETTINGS = """
[pipeline]
name = "shop"
circuit = "circuit.py:pipeline"
runtime = "local"
workers = 2
[http]
port = 0
[step]
max_step_delay_ms = 0
"""
ORDERS = pa.table({"id": [1, 2, 3], "customer": ["a", "b", "b"], "amount": [10, 600, 1]})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "circuit.py").write_text(CIRCUIT)
    (tmp_path / "pipeline.toml").write_text(SETTINGS)
    return tmp_path


def settings(folder: Path, *overrides: str) -> Config:
    return load_config(folder / "pipeline.toml", overrides=overrides, environment={})


@pytest.fixture
def service(folder: Path) -> Iterator[Service]:
    made = Service(settings(folder))
    made.start(timeout_s=60)
    yield made
    made.stop(quiet=True)


@contextmanager
def answering(service: Service) -> Iterator[httpx.Client]:
    """The service behind a real socket."""
    server = Server(make_app(service), bind(HttpSection(port=0)), service.config.data_dir)
    server.start()
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as client:
        yield client
    server.stop()


@pytest.fixture
def client(service: Service) -> Iterator[httpx.Client]:
    with answering(service) as made:
        yield made


def rows(service: Service, view: str = "per_customer") -> dict[Any, tuple[Any, ...]]:
    found = service.read_view(view).table.to_pylist()
    return {row["customer"]: (row["orders"], row["amount"], row["weight"]) for row in found}


# --- the Python interface -------------------------------------------------------------------------------------------


def test_rows_in_views_out(service: Service) -> None:
    position = service.push("orders", ORDERS)
    service.wait_until_processed(position, 60)
    assert rows(service) == {"a": (1, 10, 1), "b": (2, 601, 1)}
    position = service.push("orders", ORDERS.slice(1, 1), delete=True)
    service.wait_until_processed(position, 60)
    assert rows(service) == {"a": (1, 10, 1), "b": (1, 1, 1)}
    found = service.completion("orders", 0, position.first)
    assert (found.durable, found.processed, found.delivered) == (True, True, True)
    assert found.step == service.snapshot.step - 1
    assert not service.completion("orders", 0, position.last).durable


def test_it_goes_on_where_it_was(folder: Path) -> None:
    with Service(settings(folder)) as first:
        first.wait_until_processed(first.push("orders", ORDERS), 60)
    with Service(settings(folder)) as second:
        assert rows(second) == {"a": (1, 10, 1), "b": (2, 601, 1)}
        assert second.snapshot.checkpoint_step == second.snapshot.step == 1
        assert second.snapshot.epoch == 2


def test_steps_since_the_checkpoint_are_replayed(folder: Path) -> None:
    first = Service(settings(folder))
    first.start(timeout_s=60)
    first.wait_until_processed(first.push("orders", ORDERS), 60)
    first.stop(now=True)
    with Service(settings(folder)) as second:
        assert rows(second) == {"a": (1, 10, 1), "b": (2, 601, 1)}
        assert (second.snapshot.checkpoint_step, second.snapshot.step) == (0, 1)


def with_checkpoints(folder: Path, *overrides: str, more: int = 0) -> None:
    """Three steps, a checkpoint after each; `more` is added to the amounts."""
    amounts = [amount + more for amount in ORDERS["amount"].to_pylist()]
    orders = ORDERS.set_column(2, "amount", pa.array(amounts))
    with Service(settings(folder, *overrides)) as service:
        for number in range(3):
            service.wait_until_processed(service.push("orders", orders.slice(number, 1)), 60)
            service.checkpoint(60)


def refused(folder: Path, *overrides: str) -> str:
    """Why the service does not start."""
    with (
        closing(Service(settings(folder, "step.failures_max=0", *overrides))) as service,
        pytest.raises(DataError) as caught,
    ):
        service.start(timeout_s=60)
    return str(caught.value)


@pytest.mark.parametrize("kind", ["embedded", "files"])
def test_lost_outputs_are_an_error(folder: Path, kind: str) -> None:
    chosen = f"output.kind={kind}"
    with_checkpoints(folder, chosen)
    place = folder / "data" / ("outputs/1" if kind == "embedded" else "files/.progress/1")
    kept = place.with_name("kept")
    place.rename(kept)
    found = refused(folder, chosen)
    assert "a worker's outputs are gone: worker=1 wanted=3" in found
    assert f"file={place}" in found
    assert not place.exists(), "nothing empty is put in its place"
    kept.rename(place)
    with Service(settings(folder, chosen)) as again:
        assert rows(again) == {"a": (1, 10, 1), "b": (2, 601, 1)}


def still_open(folder: Path) -> list[str]:
    """Files of the data folder that this process holds open, and threads of the service."""
    files = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            files.append(str(link.readlink()))
    mine = [file for file in files if file.startswith(str(folder / "data"))]
    return mine + [thread.name for thread in threading.enumerate() if thread.name == "dbsp-shell"]


@pytest.mark.parametrize("cause", ["broken", "interrupted"])
def test_a_failed_start_closes_everything(folder: Path, cause: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recovery opens databases, logs and outputs before it fails; an interrupt comes while it is at it."""
    with_checkpoints(folder)
    assert still_open(folder) == []
    expected: type[BaseException] = DataError
    if cause == "broken":
        shutil.rmtree(folder / "data" / "outputs" / "1")
    else:
        expected = KeyboardInterrupt
        monkeypatch.setattr(Board, "wait_for", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    failing = Service(settings(folder, "step.failures_max=0"))
    assert still_open(folder) != []
    with pytest.raises(expected), failing:
        raise AssertionError("it started")
    assert still_open(folder) == []


def test_outputs_of_an_older_backup_are_an_error(folder: Path) -> None:
    place = folder / "data" / "outputs" / "1"
    with_checkpoints(folder)
    shutil.copytree(place, folder / "backup")
    with_checkpoints(folder)
    shutil.rmtree(place)
    (folder / "backup").rename(place)
    found = refused(folder)
    assert f"end below the checkpoint: worker=1 folder={place} found=3 wanted=6" in found
    assert "restore the outputs" in found


def test_a_worker_that_joins_begins_its_outputs_there(folder: Path) -> None:
    with_checkpoints(folder)
    for workers in (3, 1, 3):
        with Service(settings(folder)) as service:
            service.rescale(workers, 60)
            service.wait_until_processed(service.push("orders", ORDERS), 60)
    with closing(EmbeddedOutputLog(folder / "data", 2)) as log:
        assert log.bounds() == (5, 6)
    shutil.rmtree(folder / "data" / "outputs" / "2")
    assert "worker=2 wanted=6" in refused(folder)


def test_logs_are_trimmed_below_the_oldest_openable_version(folder: Path) -> None:
    with Service(settings(folder)) as service:
        for number in range(3):
            service.wait_until_processed(service.push("orders", ORDERS.slice(number, 1)), 60)
            service.checkpoint(60)
        steps: Any = service.built.parts.steps
        inputs: Any = service.built.parts.inputs
        with pytest.raises(DataError, match="missing"):
            steps.read(0)
        assert [record.step for record in steps.read(2)] == [2]
        assert inputs.floors()["orders", 0] == 2
    with Service(settings(folder)) as again:
        assert rows(again) == {"a": (1, 10, 1), "b": (2, 601, 1)}


def output_steps(folder: Path) -> tuple[set[int], set[int]]:
    """Steps with rows, steps with checksums, of all workers."""
    found: set[int] = set()
    for worker in output_workers(folder / "data"):
        path = folder / "data" / "outputs" / str(worker)
        with lmdb.open(str(path), max_dbs=4, readonly=True, lib_version=0) as env:
            checksums = env.open_db(b"checksums", create=False)
            with env.begin() as txn:
                found |= {int.from_bytes(key, "big") for key in txn.cursor(checksums).iternext(values=False)}
    return {step for step, _, _ in read_outputs(folder / "data", "per_customer")}, found


def test_checksums_are_kept_from_the_oldest_openable_version_on(folder: Path) -> None:
    with_checkpoints(folder)
    assert output_steps(folder) == ({0, 1, 2}, {2})
    with_checkpoints(folder, "output.retention_steps=1", more=1)
    kept, checksums = output_steps(folder)
    assert (kept, checksums) == ({4, 5}, {5})
    with Service(settings(folder)) as again:
        assert rows(again) == {"a": (1, 11, 1), "b": (2, 603, 1)}


def test_retention_of_other_outputs_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"output\.kind=files"):
        settings(folder, "output.kind=files", "output.retention_steps=1")


def test_retention_keeps_them(folder: Path) -> None:
    with Service(settings(folder, "checkpoint.retention_s=1000")) as service:
        for number in range(3):
            service.wait_until_processed(service.push("orders", ORDERS.slice(number, 1)), 60)
            service.checkpoint(60)
        assert [record.step for record in service.built.parts.steps.read(0)] == [0, 1, 2]


def test_rescale_keeps_the_answers(service: Service) -> None:
    service.wait_until_processed(service.push("orders", ORDERS), 60)
    for workers in (3, 1, 4, 4):
        planned = service.plan_rescale(workers)
        service.rescale(workers, 60)
        assert len(service.layout().workers) == workers == planned.workers
        assert rows(service) == {"a": (1, 10, 1), "b": (2, 601, 1)}
    more = pa.table({"id": [9], "customer": ["a"], "amount": [5]})
    service.wait_until_processed(service.push("orders", more), 60)
    assert rows(service)["a"] == (2, 15, 1)


def test_a_rescale_that_cannot_be_is_refused(service: Service) -> None:
    with pytest.raises(ConfigError):
        service.rescale(5000)
    assert service.status()["workers"] == 2


def test_a_rescale_wished_at_rest(folder: Path) -> None:
    with Service(settings(folder)) as first:
        first.wait_until_processed(first.push("orders", ORDERS), 60)
    second = Service(settings(folder))
    second.wish_rescale(3)
    with second:
        assert second.board.wait_for(lambda now: now.layout is not None and len(now.layout.workers) == 3, 60)
        assert rows(second) == {"a": (1, 10, 1), "b": (2, 601, 1)}


def test_pause_keeps_rows_waiting(service: Service) -> None:
    service.pause(60)
    position = service.push("orders", ORDERS)
    with pytest.raises(UnavailableError, match="not processed in time"):
        service.wait_until_processed(position, 0.3)
    assert rows(service) == {}
    service.resume(60)
    service.wait_until_processed(position, 60)


@pytest.mark.parametrize("setting", ["max_backlog_rows=3", "max_backlog_bytes=1"])
def test_a_producer_that_is_too_fast_is_told_to_wait(folder: Path, setting: str) -> None:
    """Nothing is lost: what was answered is there, what was refused is not, and is taken when it comes again."""
    with Service(settings(folder, f"input.{setting}")) as service, answering(service) as client:
        service.pause(60)
        taken, waiting = 0, [json.dumps({"id": n, "customer": "c", "amount": n}) for n in range(30)]
        limit = 3 if "rows" in setting else 1
        while waiting:
            answer = client.post("/v1/tables/orders/rows", content=waiting[0])
            if answer.status_code == 200:
                waiting.pop(0)
                taken += 1
                continue
            assert answer.status_code == 429
            assert int(answer.headers["Retry-After"]) > 0
            assert answer.json()["error"]["code"] == "overloaded"
            assert setting in answer.json()["error"]["message"]
            assert taken % limit == 0, "it is refused when the bound is reached, not before"
            assert service.built.parts.inputs.ends()["orders", 0] == taken
            service.resume(60)
            service.wait_until_processed(Position(table="orders", partition=0, first=taken - 1, last=taken), 60)
            service.pause(60)
        with pytest.raises(OverloadedError) if taken % limit == 0 else nullcontext():
            service.push("orders", ORDERS.slice(0, 1))
        service.resume(60)
        last = service.built.parts.inputs.ends()["orders", 0]
        service.wait_until_processed(Position(table="orders", partition=0, first=last - 1, last=last), 60)
        assert rows(service) == {"c": (30, sum(range(30)), 1)}


def test_a_backlog_survives_a_restart(folder: Path) -> None:
    """Rows that wait in the log still count, before the first step and after it."""
    with Service(settings(folder)) as first:
        first.pause(60)
        first.push("orders", ORDERS)
        first.stop(now=True)
    second = Service(settings(folder, "input.max_backlog_rows=3"))
    with pytest.raises(OverloadedError, match="backlog_rows=3 max_backlog_rows=3"):
        second.push("orders", ORDERS)
    second.start(timeout_s=60)
    second.wait_until_processed(Position(table="orders", partition=0, first=2, last=3), 60)
    second.wait_until_processed(second.push("orders", ORDERS), 60)
    second.stop()


def test_a_repeated_push_counts_once(service: Service) -> None:
    first = service.push("orders", ORDERS, producer=Producer(id="p", sequence=1))
    again = service.push("orders", ORDERS, producer=Producer(id="p", sequence=1))
    assert again == first
    assert again.repeated


def test_another_circuit_is_refused_with_the_node(folder: Path) -> None:
    with Service(settings(folder)):
        pass
    (folder / "circuit2.py").write_text(CIRCUIT.replace("> 500", "> 501"))
    with pytest.raises(CircuitError, match="501"):
        Service(settings(folder, "pipeline.circuit=circuit2.py:pipeline"))


def test_an_ended_service_says_so(folder: Path) -> None:
    service = Service(settings(folder))
    with pytest.raises(UnavailableError, match="not started"):
        service.read_view("large")
    service.start(timeout_s=60)
    service.stop()
    with pytest.raises(UnavailableError, match="has ended"):
        service.read_view("large")


def test_two_services_on_one_pipeline(folder: Path) -> None:
    """The second fences the first, which ends with the fact and does no harm."""
    first = Service(settings(folder))
    first.start(timeout_s=60)
    second = Service(settings(folder))
    second.start(timeout_s=60)
    first.push("orders", ORDERS)
    finish = first.wait_for_end(60)
    assert finish is not None
    assert finish.code == "fenced"
    second.wait_until_processed(second.push("orders", ORDERS.slice(0, 1)), 60)
    assert rows(second) == {"a": (1, 10, 1), "b": (2, 601, 1)}
    second.stop()
    first.close()


# --- HTTP -----------------------------------------------------------------------------------------------------------


def test_http_push_and_read(client: httpx.Client) -> None:
    body = (
        b'{"id": 1, "customer": "a", "amount": 700}\n{"id": "x"}\n{"insert": {"id": 2, "customer": "a", "amount": 1}}\n'
    )
    answer = client.post("/v1/tables/orders/rows", content=body, params={"wait": "true"})
    assert answer.status_code == 200
    found = answer.json()
    assert (found["first"], found["last"], found["bad_rows"], found["bad"][0]["row"]) == (0, 3, 1, 1)
    view = client.get("/v1/views/per_customer").json()
    assert view["rows"] == [{"customer": "a", "orders": 2, "amount": 701}]
    assert view["weights"] == [1]
    answer = client.get("/v1/views/large", headers={"Accept": ARROW})
    with pa.ipc.open_stream(answer.content) as reader:
        assert reader.read_all().to_pylist() == [{"id": 1, "customer": "a", "amount": 700, "weight": 1}]
    assert answer.headers["dbsp-step"] == str(view["step"])
    status = client.get("/v1/status").json()
    assert (status["state"], status["dead_letters"]) == ("Running", 1)


def test_http_arrow_in(client: httpx.Client) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ORDERS.schema) as writer:
        writer.write_table(ORDERS)
    headers = {"Content-Type": ARROW, "Dbsp-Producer": "p", "Dbsp-Sequence": "4"}
    for repeated in (False, True):
        answer = client.post("/v1/tables/orders/rows?wait=true", content=sink.getvalue().to_pybytes(), headers=headers)
        assert answer.json()["repeated"] is repeated
    found = client.post("/v1/query", json={"sql": "SELECT sum(orders) AS n FROM per_customer"}).json()
    assert found["rows"] == [[3]]


def test_http_decisions(client: httpx.Client) -> None:
    client.post("/v1/tables/orders/rows?wait=true", json=[{"id": 1, "customer": "a", "amount": 1}])
    assert client.post("/v1/checkpoint").json() == {"version": 1, "step": 1}
    assert client.post("/v1/pause").json()["state"] == "Paused"
    assert client.post("/v1/resume").json()["state"] == "Running"
    planned = client.post("/v1/rescale", json={"workers": 3, "dry_run": True}).json()
    assert planned["done"] is False
    done = client.post("/v1/rescale", json={"workers": 3}).json()
    assert (done["done"], done["shards_moved"]) == (True, planned["shards_moved"])
    assert len(client.get("/v1/layout").json()["workers"]) == 3
    assert "busiest worker" in client.get("/v1/explain").json()["plan"]
    completion = client.get("/v1/completion", params={"table": "orders", "offset": 0}).json()
    assert completion == {"durable": True, "processed": True, "step": 0, "delivered": True}
    text = client.get("/metrics").text
    assert "dbsp_workers 3.0" in text
    assert 'dbsp_step_seconds_count{kind="live"} 1.0' in text


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/v1/views/nothing", None, 404),
        ("POST", "/v1/tables/nothing/rows", [], 404),
        ("POST", "/v1/query", {"sql": "SELECT * FROM read_csv('/etc/passwd')"}, 400),
        ("POST", "/v1/query", {"sql": "DROP TABLE large"}, 400),
        ("POST", "/v1/rescale", {"workers": 4999}, 400),
        ("POST", "/v1/rescale", {"workers": 0}, 422),
        ("GET", "/v1/completion?table=orders&partition=7&offset=0", None, 404),
    ],
)
def test_http_refusals(client: httpx.Client, method: str, path: str, body: Any, status: int) -> None:
    assert client.request(method, path, json=body).status_code == status


@pytest.mark.parametrize(
    ("method", "path", "content", "status", "message"),
    [
        ("GET", "/nothing", None, 404, "no such address: GET /nothing"),
        ("GET", "/v1/checkpoint", None, 405, "method not allowed: GET /v1/checkpoint"),
        ("POST", "/v1/rescale", b'{"workers": "two"}', 422, "workers: input should be a valid integer"),
        ("POST", "/v1/rescale", b'{"workers": 2, "dryrun": true}', 422, "dryrun: extra inputs are not permitted"),
        ("POST", "/v1/query", b"{", 422, "the request is wrong: not JSON"),
        ("GET", "/v1/views/large?limit=-1", None, 422, "limit: input should be greater than or equal to 0"),
    ],
)
def test_every_refusal_has_one_form(
    client: httpx.Client, method: str, path: str, content: bytes | None, status: int, message: str
) -> None:
    answer = client.request(method, path, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == status
    error = answer.json()["error"]
    assert message in error["message"]
    assert set(error) == {"code", "message", "hint"}


def test_a_bug_is_answered_and_logged(service: Service, client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "status", lambda: {}["nothing"])
    answer = client.get("/v1/status")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
    log = (service.config.data_dir / "coordinator.log").read_text()
    assert "Traceback" in log
    assert "GET /v1/status" in log


def test_the_page_shows_every_address_and_loads_nothing(client: httpx.Client) -> None:
    answer = client.get("/", follow_redirects=True)
    assert answer.url.path == "/docs"
    assert answer.headers["content-type"].startswith("text/html")
    paths = client.get("/openapi.json").json()["paths"]
    assert len(paths) > 10
    for path, operations in paths.items():
        for method, operation in operations.items():
            assert f"<b>{method.upper()}</b> {path}</h2>" in answer.text
            assert html.escape(operation["summary"]) in answer.text
    assert "Dbsp-Producer" in answer.text
    assert not re.search(r"<script|<link|src=|url\(|@import", answer.text)


def test_http_names_of_other_hosts_and_pages_are_refused(client: httpx.Client) -> None:
    assert client.get("/v1/status", headers={"Host": "evil.example"}).status_code == 403
    assert client.get("/v1/status", headers={"Origin": "https://evil.example"}).status_code == 403
    assert client.get("/openapi.json").json()["paths"]["/v1/rescale"]


def test_http_token(folder: Path) -> None:
    with Service(settings(folder, "http.token=secret")) as service, answering(service) as client:
        assert client.get("/v1/status").status_code == 401
        assert client.get("/metrics", headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert client.get("/v1/status", headers={"Authorization": "Bearer secret"}).status_code == 200


def test_a_large_body_is_refused(folder: Path) -> None:
    with Service(settings(folder, "http.max_body_bytes=100")) as service, answering(service) as client:
        answer = client.post("/v1/tables/orders/rows", content=b"x" * 200)
        assert answer.status_code == 413
        assert "max_body_bytes" in answer.json()["error"]["message"]


def test_a_port_in_use_is_one_clear_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="in use"):
            bind(HttpSection(port=taken.getsockname()[1]))


# --- the command lines ----------------------------------------------------------------------------------------------


def script(name: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"dbsp.coordinator.{name}", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_check_prints_the_plan_and_starts_nothing(folder: Path) -> None:
    done = script("serve", "pipeline.toml", "--check", folder=folder)
    assert done.returncode == 0, done.stderr
    assert "per_customer" in done.stdout
    assert not (folder / "data").exists()


@pytest.mark.parametrize(
    ("settings", "circuit", "message"),
    [
        (SETTINGS.replace("port", "prot"), CIRCUIT, "did you mean `port`"),
        (SETTINGS.replace(":pipeline", ":pipelin"), CIRCUIT, "pipeline"),
        (SETTINGS, CIRCUIT.replace('col("amount")', 'col("amout")'), "amount"),
    ],
)
def test_check_names_what_is_wrong(folder: Path, settings: str, circuit: str, message: str) -> None:
    (folder / "pipeline.toml").write_text(settings)
    (folder / "circuit.py").write_text(circuit)
    done = script("serve", "pipeline.toml", "--check", folder=folder)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [["status"], ["rescale", "3"], ["query", "SELECT 1"], ["stop"]])
def test_a_client_without_a_service(folder: Path, command: list[str]) -> None:
    done = script("cli", *command, folder=folder)
    assert done.returncode == 4
    assert "not running" in done.stderr
    assert "dbsp-coordinator pipeline.toml" in done.stderr
    assert ("--rescale 3" in done.stderr) == (command[0] == "rescale")


def test_the_client_steers_a_service(folder: Path) -> None:
    arguments = [sys.executable, "-m", "dbsp.coordinator.serve", "pipeline.toml", "--no-progress"]
    process = subprocess.Popen(arguments, cwd=folder, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert "answering at" in process.stderr.readline()
        (folder / "rows.json").write_text(json.dumps(ORDERS.to_pylist()))
        pushed = script("cli", "push", "orders", "rows.json", folder=folder)
        assert "rows 0 to 3" in pushed.stdout, pushed.stderr
        url = read_address(folder / "data")["url"]
        httpx.post(f"{url}/v1/tables/orders/rows", params={"wait": "true"}, content=b"", timeout=60).raise_for_status()
        asked = script("cli", "query", "SELECT sum(amount) AS s FROM per_customer", folder=folder)
        assert "611" in asked.stdout, asked.stderr
        assert "moved" in script("cli", "rescale", "3", folder=folder).stdout
        found = script("cli", "--json", "status", folder=folder)
        assert json.loads(found.stdout)["workers"] == 3
        refused = script("cli", "query", "COPY large TO 'x'", folder=folder)
        assert (refused.returncode, "only SELECT" in refused.stderr) == (2, True)
        assert script("cli", "stop", folder=folder).returncode == 0
        assert process.wait(60) == 0
        assert not (folder / "data" / "coordinator.json").exists()
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_after_a_checkpoint(folder: Path, number: signal.Signals) -> None:
    arguments = [sys.executable, "-m", "dbsp.coordinator.serve", "pipeline.toml", "--no-progress"]
    process = subprocess.Popen(arguments, cwd=folder, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert "answering at" in said, said + process.stderr.read()
        url = read_address(folder / "data")["url"]
        rows = json.dumps(ORDERS.to_pylist())
        httpx.post(f"{url}/v1/tables/orders/rows", params={"wait": "true"}, content=rows, timeout=60).raise_for_status()
        os.kill(process.pid, number)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()
    with Service(settings(folder)) as service:
        assert service.snapshot.checkpoint_step == service.snapshot.step == 1


def test_kernels_are_compiled_before_steps_wait_for_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slow, done = threading.Event(), threading.Event()

    def compile_all() -> None:
        slow.wait(60)
        done.set()

    monkeypatch.setattr(serve, "compile_all", compile_all)
    monkeypatch.setattr(serve.click, "echo", lambda text, err: (print(text), slow.set()))
    serve.compile_kernels(patience_s=0.01)
    assert done.is_set()
    assert "compiling kernels" in capsys.readouterr().out


def test_without_spark_the_error_names_the_command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_module.importlib.util, "find_spec", lambda name: None)
    with (
        pytest.raises(ConfigError, match=r"pip install 'dbsp\[spark\]'"),
        Service(settings(folder, "pipeline.runtime=spark")),
    ):
        pass


@pytest.mark.parametrize("module", ["service", "client"])
def test_without_the_packages_of_the_service_the_command_says_what_to_install(module: str) -> None:
    absent = "import sys; sys.modules['httpx'] = sys.modules['fastapi'] = None"
    code = f"{absent}; from dbsp.coordinator import commands; commands.{module}()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'dbsp[service]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_push_that_is_repeated_says_so(client: httpx.Client, service: Service) -> None:
    def push(*options: str) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-m",
            "dbsp.coordinator.cli",
            "--url",
            str(client.base_url),
            "push",
            "orders",
            *options,
        ]
        row = '{"id": 1, "customer": "a", "amount": 1}'
        return subprocess.run(command, input=row, capture_output=True, text=True, timeout=120, check=False)

    assert "pushed before" not in push("--producer", "me", "--sequence", "1").stdout
    assert "pushed before, nothing was added" in push("--producer", "me", "--sequence", "1").stdout
    half = push("--sequence", "2")
    assert half.returncode == 2
    assert "--producer and --sequence together" in half.stderr


def test_a_coordinator_that_idles_sees_that_it_was_replaced(folder: Path) -> None:
    first = Service(settings(folder))
    first.start(timeout_s=60)
    with Service(settings(folder)):
        finish = first.wait_for_end(60)
    assert finish is not None
    assert finish.code == "fenced"
    first.close()


def test_a_log_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    log = EventsLog(tmp_path / "log", SystemClock())
    log._file.close()
    log._file = Path("/dev/full").open("a", buffering=1)  # noqa: SIM115 - closed by the log
    log.noted("lost", {})
    log.noted("kept", {})
    log.close()
    assert '"event": "kept"' in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ('input.topics={ordrs = "x"}', "input.topics names ordrs"),
        ('output.topics={nothing = "x"}', "output.topics names nothing"),
        ('output.keys={large = "nothing"}', "output.keys names large.nothing"),
    ],
)
def test_settings_name_tables_and_views_that_are_there(folder: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_module.load_plan(settings(folder, override))
    build_module.load_plan(settings(folder, 'output.topics={dead_letters = "x", large = "y"}'))


def test_a_data_folder_that_cannot_be_made_is_one_error(folder: Path) -> None:
    (folder / "taken").write_text("")
    done = command_line(folder, "--set", "pipeline.data_dir=taken", "--set", "http.port=0")
    assert done.returncode == 2
    assert done.stderr.startswith("error: the data folder cannot be made: ")
    assert "Traceback" not in done.stderr


def test_another_number_of_workers_in_the_settings_is_noted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Service(settings(folder)).close()
    with closing(Service(settings(folder, "pipeline.workers=5"))) as service:
        serve._note_workers(service, None)
    assert "coordinator rescale 5" in capsys.readouterr().err


@pytest.mark.parametrize(("error", "code"), [(OSError("full"), 4), (KeyError("x"), 70)])
def test_an_error_of_another_kind_has_its_exit_code(
    error: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> None:
        raise error

    assert serve.guarded(fails) == code
    assert "error: " in capsys.readouterr().err


def test_a_wrong_token_is_a_wrong_argument(folder: Path) -> None:
    with Service(settings(folder, "http.token=secret")) as service, answering(service) as client:
        command = [
            sys.executable,
            "-m",
            "dbsp.coordinator.cli",
            "--url",
            str(client.base_url),
            "--token",
            "x",
            "status",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "give --token" in done.stderr


def command_line(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dbsp.coordinator.serve", str(folder / "pipeline.toml"), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
