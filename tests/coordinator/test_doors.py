"""Connections, bodies and threads: whatever others do at the doors, steps go on and status answers."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from dbsp.coordinator.http import connections, doors
from dbsp.coordinator.http.listen import bind
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import HttpSection
from dbsp.errors import ConfigError, UnavailableError
from tests import plain_http
from tests.coordinator.shop import answering, settings
from tests.spark.waiting import until

ROW = {"id": 1, "customer": "a", "amount": 700}


@contextmanager
def service_with(folder: Path, *overrides: str) -> Iterator[tuple[Service, httpx.Client]]:
    """A service whose doors have these settings."""
    with Service(settings(folder, *overrides)) as service, answering(service) as client:
        yield service, client


def connected(client: httpx.Client, sent: bytes = b"") -> socket.socket:
    """A connection on which some bytes were sent."""
    found = socket.create_connection((client.base_url.host, client.base_url.port or 0), timeout=20)
    found.sendall(sent)
    return found


def heard(connection: socket.socket) -> bytes:
    """All that comes on a connection until its end."""
    parts = []
    try:
        while part := connection.recv(1 << 16):
            parts.append(part)
    except ConnectionResetError:
        parts.append(b"")
    return b"".join(parts)


def answer(connection: socket.socket) -> bytes:
    """One whole answer, whose body may come after its head; the connection stays open."""
    found, size = b"", 1
    while len(found) < size:
        part = connection.recv(1 << 16)
        assert part, "the connection ended within an answer"
        found += part
        said, _, body = found.partition(b"\r\n\r\n")
        length = int(said.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
        size = len(found) - len(body) + length if body or found.endswith(b"\r\n\r\n") else len(found) + 1
    return found


def head(path: str, *more: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *more, "", ""]).encode()


def test_idle_connections_make_room_for_those_who_ask(folder: Path) -> None:
    with service_with(folder, "http.connections_max=32") as (_, client), ExitStack() as opened:
        idle = [opened.enter_context(closing(connected(client))) for _ in range(100)]
        for number in range(3):
            pushed = client.post("/v1/tables/orders/rows?wait=true", json=[ROW | {"id": number}])
            assert pushed.json()["processed"] is True
            assert plain_http.ask("GET", f"{client.base_url}/v1/status").status_code == 200
        assert heard(idle[0]) == b"", "the oldest was closed"
        idle[-1].sendall(head("/v1/views", "Connection: close"))
        assert b"per_customer" in heard(idle[-1]), "the newest was not"


def test_bodies_that_do_not_come_leave_room_for_status_and_end(folder: Path) -> None:
    begun = head("/v1/tables/orders/rows", "Content-Length: 99", "Content-Type: application/json", method="POST") + b"{"
    bounds = ("http.connections_max=32", "http.followers_max=8", "http.body_timeout_s=5")
    with service_with(folder, *bounds) as (_, client), ExitStack() as opened:
        rows = f"{client.base_url}/v1/tables/orders/rows"
        follower = opened.enter_context(closing(connected(client, head("/v1/views/large/changes?wait_s=60"))))
        bodies, refused = [], False
        while not refused and len(bodies) < 32:
            bodies.append(opened.enter_context(closing(connected(client, begun))))
            refused = plain_http.ask("POST", rows, json={"id": 9, "customer": "z", "amount": 1}).status_code == 429
        assert refused, "every place is taken"
        assert plain_http.ask("GET", f"{client.base_url}/v1/status").status_code == 200
        assert {heard(body)[:12] for body in bodies} == {b"HTTP/1.1 408"}, "those that were let in end at the time-out"
        plain_http.ask("POST", rows, json=ROW).raise_for_status()
        assert b'"amount":700' in answer(follower), "a request that is under way is not cut off"


def test_a_head_that_does_not_come_is_ended(folder: Path) -> None:
    with service_with(folder, "http.header_timeout_s=0.3") as (_, client):
        with closing(connected(client, b"GET /v1/sta")) as slow, closing(connected(client)) as silent:
            assert heard(slow).startswith(b"HTTP/1.1 408 ")
            assert heard(silent).startswith(b"HTTP/1.1 408 ")
        with closing(connected(client, head("/v1/views"))) as again:
            assert b"per_customer" in answer(again)
            again.sendall(b"GET /v1")
            assert heard(again) == b"", "also of the second request on a connection"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /v1/views/large?key=" + b"a" * (1 << 20) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
        (b"GET /v1/views HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * (1 << 20), 431),
        (b"\x16\x03\x01 no HTTP " + b"\xff" * (1 << 20), 400),
        (b"GET /v1/views HTTP/1.1\r\nno colon\r\n\r\n", 400),
    ],
)
def test_the_refusal_of_a_head_arrives_whole(folder: Path, sent: bytes, status: int) -> None:
    """The client sends all before it reads; a reset of the connection would take the response from it."""
    with service_with(folder) as (_, client):
        for first in (b"", head("/healthz")):
            with closing(connected(client, first)) as asking:
                if first:
                    answer(asking)
                asking.sendall(sent)
                line, _, body = _whole(asking).partition(b"\r\n\r\n")
            assert int(line.split()[1]) == status, line
            assert json.loads(body)["error"]["code"] == "config"


def test_a_body_in_broken_pieces_is_refused_once_and_the_connection_ends(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The route waits for the rest of the body when the pieces can no longer be told apart; the client stays."""
    start = head(
        "/v1/tables/orders/rows", "Transfer-Encoding: chunked", "Content-Type: application/json", method="POST"
    )
    with service_with(folder, "http.header_timeout_s=0.3", "http.body_timeout_s=0.5") as (_, client):
        with closing(connected(client, start + b'a\r\n{"id": 1, \r\n')) as broken:
            until(lambda: client.get("/healthz").is_success, "it is read")
            broken.sendall(b"no size\r\n")
            line, _, body = _whole(broken).partition(b"\r\n\r\n")
            with pytest.raises(OSError, match=r"reset|Broken pipe"):
                _send_for_ever(broken, b"x")
        assert int(line.split()[1]) == 400, line
        assert json.loads(body)["error"]["message"] == "the request is no HTTP/1.1", "one response alone"
        assert client.get("/v1/status").json()["lag_rows"] == 0
    assert "Traceback" not in capfd.readouterr().err


def _whole(connection: socket.socket) -> bytes:
    """All that comes until the end; a reset fails the test."""
    parts = []
    while part := connection.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


def test_a_body_that_does_not_come_is_refused_and_nothing_of_it_taken(folder: Path) -> None:
    with service_with(folder, "http.body_timeout_s=0.3") as (_, client):
        for path in ("/v1/tables/orders/rows", "/v1/query", "/v1/stop"):
            kind = "Content-Type: application/json"
            sent = head(path, "Content-Length: 99", kind, "Connection: close", method="POST") + b'{"id": 1}\n'
            with closing(connected(client, sent)) as abandoned:
                answer = heard(abandoned)
            assert answer.startswith(b"HTTP/1.1 408 "), path
            assert b"body_timeout_s=0.3" in answer
        assert client.get("/v1/status").json()["lag_rows"] == 0


def test_a_client_that_does_not_read_its_answers_is_cut_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STALLED_S", 0.3)
    with service_with(folder) as (_, client), closing(connected(client)) as greedy:
        greedy.settimeout(60)
        asked = head("/openapi.json") * 100
        with pytest.raises(OSError, match=r"reset|Broken pipe"):
            _send_for_ever(greedy, asked)


def _send_for_ever(connection: socket.socket, data: bytes) -> None:
    while True:
        connection.sendall(data)


def test_no_route_reads_a_body_beyond_its_bound(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sent in pieces, so that no length says beforehand how long it is; what was taken is given back."""
    monkeypatch.setattr(doors, "SMALL_BODY_BYTES_MAX", 100_000)
    most: list[int] = []
    take = doors.Passage._take

    def noted(self: doors.Passage, size: int) -> None:
        try:
            take(self, size)
        finally:
            most.append(self._doors.body_bytes)

    monkeypatch.setattr(doors.Passage, "_take", noted)
    with service_with(folder, "http.max_body_bytes=100000") as (_, client):
        paths = client.get("/openapi.json").json()["paths"]
        routes = [(method, path) for path, methods in paths.items() for method in methods if method != "get"]
        assert len(routes) > 8
        for method, path in routes:
            if path in ("/v1/checkpoint", "/v1/keep", "/v1/pause", "/v1/resume", "/v1/upgrade") or method == "delete":
                continue  # they read no body
            answer = client.request(
                method, path.replace("{table}", "orders"), content=iter([b"x" * 50_000] * 40),
                headers={"Content-Type": "application/json"},
            )  # fmt: skip
            assert (answer.status_code, answer.json()["error"]["code"]) == (413, "capacity"), path
            told = client.request(method, path.replace("{table}", "orders"), content=b"x" * 100_001)
            assert told.status_code == 413, "by its length alone"
        assert client.get("/v1/status").json()["state"] == "Running"
    assert max(most) <= 100_000 + (1 << 18), "no more is read than what comes at once"
    assert most[-1] <= 100_000 + (1 << 18)


def test_all_bodies_together_have_a_bound(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "SMALL_BODY_BYTES_MAX", 100_000)
    with service_with(folder, "http.max_body_bytes=100000") as (_, client), ExitStack() as opened:
        sent = head("/v1/tables/orders/rows", "Content-Length: 99999", method="POST") + b" " * 90_000
        held = [opened.enter_context(closing(connected(client, sent))) for _ in range(2)]
        with until_refused(client) as answer:
            assert answer.json()["error"]["code"] == "overloaded"
            assert answer.headers["retry-after"]
        for connection in held:
            connection.close()
        until(lambda: _takes(client, 90_000), "the bytes are given back")


def _takes(client: httpx.Client, size: int) -> bool:
    return client.post("/v1/tables/orders/rows", content=b" " * size).status_code == 200


@contextmanager
def until_refused(client: httpx.Client) -> Iterator[httpx.Response]:
    """Push until the bodies that others hold are counted."""
    answers: list[httpx.Response] = []

    def refused() -> bool:
        answers.append(client.post("/v1/tables/orders/rows", content=b" " * 90_000))
        return answers[-1].status_code == 429

    until(refused, "too many bytes of bodies are refused")
    yield answers[-1]


def test_followers_are_bounded_and_leave_their_place_when_they_go(folder: Path) -> None:
    with service_with(folder, "http.followers_max=2") as (_, client), ExitStack() as opened:
        path = "/v1/views/large/changes"
        poll = opened.enter_context(closing(connected(client, head(f"{path}?wait_s=600"))))
        stream = opened.enter_context(closing(connected(client, head(path, "Accept: text/event-stream"))))
        until(lambda: client.get(path, params={"wait_s": 0.01}).status_code == 429, "both places are taken")
        assert client.post("/v1/tables/orders/rows?wait=true", json=[ROW]).status_code == 429
        assert client.get("/v1/status").json()["rows_in"] == 0, "and nothing of that push was taken"
        assert client.get(path).status_code == 200, "who does not wait needs no place"
        for connection in (poll, stream):
            connection.close()
        until(lambda: client.get(path, params={"wait_s": 0.01}).status_code == 200, "a place is free")


def test_status_and_metrics_have_threads_of_their_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of every other kind of request hangs than there are threads."""
    release = threading.Event()

    def hang(*_: Any, **__: Any) -> Any:
        release.wait(60)
        raise UnavailableError("released")

    for name in ("push", "read_view", "query", "checkpoint", "pause", "changes", "push_together"):
        monkeypatch.setattr(Service, name, hang)
    requests = [
        head("/v1/views/large"), head("/v1/views/large/changes"), head("/v1/checkpoint", method="POST"),
        head("/v1/tables/orders/rows", "Content-Length: 0", method="POST"),
        head("/v1/query", "Content-Type: application/json", "Content-Length: 18", method="POST") + b'{"sql":"select 1"}',
    ]  # fmt: skip
    with service_with(folder) as (_, client), ExitStack() as opened:
        for _ in range(40):
            for request in requests:
                opened.enter_context(closing(connected(client, request)))
        for path in ("/v1/status", "/metrics") * 3:
            begun = time.monotonic()
            assert plain_http.ask("GET", f"{client.base_url}{path}").status_code == 200
            assert time.monotonic() - begun < 20, "not after the others, which hang for a minute"
        assert client.post("/v1/checkpoint").status_code == 429
        release.set()


def test_requests_for_figures_find_a_place_where_all_others_are_taken(folder: Path) -> None:
    with (
        service_with(folder, "http.connections_max=32", "http.followers_max=100") as (_, client),
        ExitStack() as opened,
    ):
        most = 32 - connections.FIGURES_PLACES
        begun = head("/v1/tables/orders/rows", "Content-Length: 9", method="POST")
        held = [opened.enter_context(closing(connected(client, begun))) for _ in range(most)]
        until(lambda: client.get("/v1/views").status_code == 429, "all places are taken")
        assert client.get("/v1/status").status_code == 200
        held[0].close()
        until(lambda: client.get("/v1/views").status_code == 200, "a place is free")


def test_an_address_that_asks_too_often_is_told_so(folder: Path) -> None:
    with service_with(folder, "http.requests_per_s_max=1") as (_, client):
        answers = [client.get("/v1/views").status_code for _ in range(20)]
        assert answers[:2] == [200, 200]
        assert 429 in answers


def test_the_engine_keeps_its_part_of_the_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    def limited(soft: int) -> int:
        monkeypatch.setattr(resource, "getrlimit", lambda _kind: (soft, soft))
        return connections.connections_max(HttpSection())

    assert limited(1024) == 1024 // 2 - connections.ACCEPTED_AT_ONCE
    assert limited(1 << 20) == limited(resource.RLIM_INFINITY) == HttpSection().connections_max
    with pytest.raises(ConfigError, match="the limit of open files is too low: limit=100"):
        limited(100)
    with pytest.raises(ConfigError, match="ulimit -n"):
        bind(HttpSection(port=0))


def test_2000_idle_connections_at_1024_descriptors(folder: Path) -> None:
    """A real process, whose limit it cannot raise."""
    connections.raise_descriptor_limit()  # ours
    command = f"ulimit -n 1024 && exec {sys.executable} -m dbsp.coordinator.serve pipeline.toml --no-progress"
    with subprocess.Popen(["bash", "-c", command], cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            while "answering at" not in (said := process.stderr.readline()):
                assert said, "it has ended"
            url = str(json.loads((folder / "data" / "coordinator.json").read_text())["url"])
            with plain_http.client(url) as client, ExitStack() as opened:
                for _ in range(2000):
                    opened.enter_context(closing(connected(client)))
                until(lambda: client.get("/v1/status").json()["state"] == "Running", "it runs")
                for number in range(5):
                    pushed = plain_http.post(f"{url}/v1/tables/orders/rows?wait=true", json=[ROW | {"id": number}])
                    assert pushed.json()["processed"] is True
                client.post("/v1/checkpoint").raise_for_status()
                status = plain_http.ask("GET", f"{url}/v1/status").json()
                assert (status["state"], status["last_error"], status["rollbacks"]) == ("Running", None, 0)
        finally:
            process.kill()
