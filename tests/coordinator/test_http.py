"""A whole service with the in-process runtime, over HTTP."""

from __future__ import annotations

import html
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from dbsp.coordinator.http.kinds import ARROW
from dbsp.coordinator.http.listen import bind
from dbsp.coordinator.http.pages import CONSOLE
from dbsp.coordinator.running.progress import rescale_as_text
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import HttpSection
from dbsp.errors import UnavailableError
from dbsp.layout import initial, rescaled
from dbsp.runtime.runtime import MoveReport
from tests.coordinator.shop import CIRCUIT, ORDERS, answering, settings

WAITING = 60


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


@pytest.mark.parametrize("patience", ["inf", "nan", "-1", "1e12"])
@pytest.mark.parametrize("path", ["tables/orders/rows", "transactions"])
def test_http_no_row_is_taken_with_a_patience_that_cannot_be(client: httpx.Client, path: str, patience: str) -> None:
    rows = [{"id": 1, "customer": "a", "amount": 700}]
    body = rows if path.startswith("tables") else {"orders": rows}
    answer = client.post(f"/v1/{path}", json=body, params={"wait": "true", "timeout_s": patience})
    assert answer.status_code == 422, answer.text
    assert client.get("/v1/status").json()["lag_rows"] == 0
    assert client.get("/v1/views/per_customer").json()["rows"] == []
    assert client.get("/v1/views/per_customer", params={"limit": 10**20}).status_code == 422


def test_http_any_number_of_pushes_may_wait(client: httpx.Client) -> None:
    """More than the server has threads; what would let them go on is answered meanwhile."""
    client.post("/v1/pause").raise_for_status()

    def push(number: int) -> int:
        rows = [{"id": number, "customer": "a", "amount": 1}]
        return client.post("/v1/tables/orders/rows", json=rows, params={"wait": "true", "timeout_s": 120}).status_code

    with ThreadPoolExecutor(WAITING) as pool:
        answers = [pool.submit(push, number) for number in range(WAITING)]
        while client.get("/v1/status").json()["lag_rows"] < WAITING:
            assert not any(answer.done() for answer in answers)
        client.post("/v1/resume").raise_for_status()
        assert {answer.result(60) for answer in answers} == {200}
    assert client.get("/v1/views/per_customer").json()["rows"] == [
        {"customer": "a", "orders": WAITING, "amount": WAITING}
    ]


def test_http_a_push_that_waits_hears_of_its_time_and_of_the_end(client: httpx.Client) -> None:
    client.post("/v1/pause").raise_for_status()
    rows = [{"id": 1, "customer": "a", "amount": 1}]
    late = client.post("/v1/tables/orders/rows", json=rows, params={"wait": "true", "timeout_s": 0.01})
    assert (late.status_code, late.json()["processed"]) == (202, False)
    assert late.json()["waiting"].startswith("not processed in time: table=orders partition=0 first=0 last=1")
    assert client.get("/v1/status").json()["lag_rows"] == 1, "the rows are durable all the same"


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


def test_http_a_number_that_was_passed_over_is_refused_and_one_that_is_none_explained(client: httpx.Client) -> None:
    def push(sequence: bytes) -> httpx.Response:
        headers = [(b"Dbsp-Producer", b"p"), (b"Dbsp-Sequence", sequence)]
        return client.post("/v1/tables/orders/rows", json=[{"id": 1, "customer": "a", "amount": 1}], headers=headers)

    assert push(b"3").status_code == 200
    late = push(b"2")
    assert (late.status_code, late.json()["error"]["code"]) == (422, "data")
    assert "sequence=2 newest=3" in late.json()["error"]["message"]
    for wrong in (b"\xb2", b"-1", b"", b"9" * 5000):
        assert (push(wrong).status_code, push(wrong).json()["error"]["code"]) == (400, "config")


def test_csv_is_pushed_by_the_rules_of_files(client: httpx.Client, service: Service) -> None:
    """Good rows are taken, each bad one is counted with its reason, and a header that does not fit refuses all."""
    path, kind = "/v1/tables/orders/rows", {"Content-Type": "text/csv; charset=utf-8"}
    body = 'amount,id,customer\n700,1,"a, ""b"""\n,2,\n9,3,""\n5,4,c\n'
    found = client.post(path, content=body.encode(), headers=kind, params={"wait": "true"}).json()
    assert (found["first"], found["last"], found["bad_rows"]) == (0, 4, 0)
    assert service.query("select id, customer, amount from large")[1].to_pylist() == [
        {"id": 1, "customer": 'a, "b"', "amount": 700}
    ]
    tabs = {"Content-Type": "Text/Tab-Separated-Values"}
    lines = ["id customer amount __op", "1   1", "x b 5 0", "6 b 900 0", "7 b 1 0"]
    body = "\n".join(lines).replace(" ", "\t")
    some = client.post(path, content=body.encode(), headers=tabs, params={"wait": "true"})
    assert (some.json()["bad_rows"], some.json()["bad"][0]["row"]) == (1, 1)
    assert [row["id"] for row in service.query("select id from large")[1].to_pylist()] == [6], "1 was deleted"
    for wrong in (b"customer,amount\na,1\n", b"id,customer,amount,id\n1,a,1,1\n"):
        refused = client.post(path, content=wrong, headers=kind)
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "data")
        assert "does not fit the table: table=orders column" in refused.json()["error"]["message"]
    for none in (b"", b"id,customer,amount\n"):
        empty = client.post(path, content=none, headers=kind).json()
        assert empty["first"] == empty["last"]
    together = client.post("/v1/transactions", content=b"id\n1\n", headers=kind)
    assert together.status_code == 422


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "application/avro"},
        {"Content-Type": "Multipart/form-data; boundary=x"},
        {"Content-Type": "application/vnd.apache.arrow.file"},
        {"Content-Type": "application/json", "Content-Encoding": "br"},
    ],
)
def test_http_what_is_not_read_is_refused_and_no_row_of_it_taken(client: httpx.Client, headers: dict[str, str]) -> None:
    answer = client.post("/v1/tables/orders/rows", content=b"id,customer,amount\n1,a,1\n", headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "data")
    assert "Content-" in answer.json()["error"]["message"]
    arrow = client.post(
        "/v1/tables/orders/rows", content=b"", headers={"Content-Type": "Application/VND.apache.arrow.stream"}
    )
    assert (arrow.status_code, arrow.json()["error"]["code"]) == (422, "data")
    assert "most rows of the push are bad: bad=1 rows=1" in arrow.json()["error"]["message"], "no stream is a bad row"
    for kind in ("application/x-www-form-urlencoded", "application/x-ndjson"):
        taken = client.post("/v1/tables/orders/rows", content=b"", headers={"Content-Type": kind})
        assert taken.status_code == 200
        assert (taken.json()["first"], taken.json()["last"]) == (0, 0), "nothing came before it"


def test_http_a_producer_that_dies_within_its_request_is_no_bug_of_ours(folder: Path) -> None:
    with Service(settings(folder)) as service, answering(service) as client:
        with socket.create_connection((client.base_url.host, client.base_url.port)) as broken:
            broken.sendall(
                b'POST /v1/tables/orders/rows HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{"id": 1'
            )
        assert client.post("/v1/tables/orders/rows?wait=true", json=[{"id": 2}]).json()["first"] == 0
    log = (folder / "data" / "coordinator.log").read_text()
    assert '"bug"' not in log


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


def test_a_rescale_is_told_as_it_was_and_not_as_it_was_planned(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one came between: 3 to 2, where 2 to 2 was planned."""
    three = initial(3)
    moved = MoveReport.between(three, rescaled(three, 2, step=1), bytes_moved=5, bytes_total=9)
    for answer, text in (
        (moved, "3 -> 2 workers: moved 10 of 32 shards (31.2%; at"),
        (None, "there are 2 workers already"),
    ):
        monkeypatch.setattr(Service, "rescale", lambda *_, answer=answer, **__: answer)
        told = client.post("/v1/rescale", json={"workers": 2, "strategy": "cold"}).json()
        assert rescale_as_text(told).startswith(text)


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


@pytest.mark.parametrize("day", ["date '9999-12-31' + 1", "date '-3000-01-01'", "timestamp '20000-01-01 00:00:00'"])
def test_an_answers_day_that_json_cannot_have_is_told_with_what_to_do(client: httpx.Client, day: str) -> None:
    answer = client.post("/v1/query", json={"sql": f"SELECT 1 AS n, {day} AS day"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "config")
    assert "outside the years 1 to 9999 cannot be shown: column=day" in answer.json()["error"]["message"]
    cast = client.post("/v1/query", json={"sql": f"SELECT ({day})::varchar AS day"})
    assert (cast.status_code, len(cast.json()["rows"])) == (200, 1)
    stream = client.post("/v1/query", json={"sql": f"SELECT {day} AS day"}, headers={"Accept": ARROW})
    assert pa.ipc.open_stream(stream.content).read_all().num_rows == 1


@pytest.mark.parametrize(
    ("method", "path", "content", "status", "message"),
    [
        ("GET", "/nothing", None, 404, "no such address: GET /nothing"),
        ("GET", "/v1/checkpoint", None, 405, "method not allowed: GET /v1/checkpoint"),
        ("POST", "/v1/rescale", b'{"workers": "two"}', 422, "workers: input should be a valid integer"),
        ("POST", "/v1/rescale", b'{"workers": 2, "dryrun": true}', 422, "dryrun: extra inputs are not permitted"),
        ("POST", "/v1/query", b"{", 422, "the request is wrong: not JSON"),
        ("POST", "/v1/rescale", b'{"workers": 2, "dry_run": 0}', 422, "dry_run: input should be a valid boolean"),
        ("POST", "/v1/backup", b'{"folder": "/tmp/\\u0000"}', 400, "not a path: folder='/tmp/\\x00'"),
        ("POST", "/v1/backup", b'{"folder": "\\ud800"}', 400, "not a path: folder='\\ud800'"),
        ("POST", "/v1/query", b'{"sql": "select \'\\ud800\'"}', 400, "half of a character: place=8 code=0xd800"),
        ("GET", "/v1/views/large?limit=-1", None, 422, "limit: input should be greater than or equal to 0"),
        ("GET", "/v1/views/large?limits=1", None, 400, "no parameter of /v1/views/large: limits"),
        ("GET", "/v1/status?verbose", None, 400, "no parameter of /v1/status: verbose"),
        (
            "POST",
            "/v1/tables/orders/rows?producer=me&sequence=1",
            b"",
            400,
            "no parameter of /v1/tables/orders/rows: producer",
        ),
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


def test_every_route_says_how_it_refuses(client: httpx.Client) -> None:
    described = client.get("/openapi.json").json()
    for path, methods in described["paths"].items():
        for method, route in methods.items():
            assert {"400", "401", "403", "413", "422", "429", "500", "503"} <= set(route["responses"]), (method, path)
            for status, answer in route["responses"].items():
                if int(status) >= 400:
                    assert answer["content"]["application/json"]["schema"]["$ref"].endswith("/Refusal")
        refused = client.options(re.sub(r"{\w+}", "any", path))
        assert refused.status_code == 405
        assert set(refused.headers["allow"].split(", ")) == {method.upper() for method in methods}


def test_a_header_that_would_be_passed_over_is_refused(client: httpx.Client) -> None:
    asked = client.post("/v1/tables/orders/rows", content=b"", headers={"Dbsp-Producer-Id": "me", "Dbsp-Sequence": "1"})
    assert (asked.status_code, asked.json()["error"]["message"]) == (400, "not a header of dbsp: Dbsp-Producer-Id")


def test_a_bug_is_answered_and_logged(service: Service, client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "status", lambda: {}["nothing"])
    answer = client.get("/v1/status")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
    log = (service.config.data_dir / "coordinator.log").read_text()
    assert "Traceback" in log
    assert "GET /v1/status" in log


def test_the_console_asks_only_what_there_is_and_loads_nothing(client: httpx.Client) -> None:
    page, script, style = (client.get(address) for address in CONSOLE)
    for answer in (page, script, style):
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert set(re.findall(r'(?:src|href)="([^"]*)"', page.text)) == {*CONSOLE, "data:,"} - {"/"}
    assert not re.search(r"<style|\bstyle=|\bon\w+=", page.text), "the policy lets no inline style or script run"
    assert not re.search(r"url\(|@import", style.text)
    links = set(re.findall(r"https?://[\w./-]+", script.text))
    assert links <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1998/Math/MathML", "http://www.w3.org/1999/xhtml"}
    assert not re.search(r"\beval\(|new Function\(|\bimport\(", script.text)
    described = {re.sub(r"{\w+}", "*", path) for path in client.get("/openapi.json").json()["paths"]}
    asked = {re.sub(r"\$\{[^}]*\}", "*", path) for path in re.findall(r"[`\"](/v1/[^`\"?]*)", script.text)}
    assert len(asked) > 15
    assert asked <= described


def test_the_page_shows_every_address_and_loads_nothing(client: httpx.Client) -> None:
    answer = client.get("/docs")
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
        assert client.get("/").status_code == 200  # the page that asks for the token
        assert client.post("/").status_code == client.get("/docs").status_code == 401


def test_a_large_body_is_refused(folder: Path) -> None:
    with Service(settings(folder, "http.max_body_bytes=100")) as service, answering(service) as client:
        answer = client.post("/v1/tables/orders/rows", content=b"x" * 200)
        assert answer.status_code == 413
        assert "max_body_bytes" in answer.json()["error"]["message"]


def test_a_port_in_use_is_one_clear_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UnavailableError, match="in use"):
            bind(HttpSection(port=taken.getsockname()[1]))


def test_http_a_view_that_is_not_materialized_is_told_from_none(folder: Path) -> None:
    text = CIRCUIT.replace('"large": large}', '"large": large}, materialize=["large"]')
    (folder / "circuit.py").write_text(text)
    with Service(settings(folder)) as service, answering(service) as client:

        def told(view: str, status: int = 400) -> tuple[str, str]:
            answers = (
                client.get(f"/v1/views/{view}"),
                client.post("/v1/query", json={"sql": f"select * from {view.upper()}"}),
            )
            assert [answer.status_code for answer in answers] == [status, status]
            here, there = (answer.json()["error"] for answer in answers)
            assert (here["message"].lower(), here["hint"]) == (there["message"].lower(), there["hint"])
            return here["message"], str(here["hint"])

        message, hint = told("per_customer")
        assert message == "there is such a view, but it is not materialized: view=per_customer views=['large']"
        assert hint.startswith(
            "`coordinator changes per_customer` tells what every step changed in it; to read its rows"
        )
        error = client.get("/v1/views/dead_letters").json()["error"]
        assert error["hint"] == "`coordinator dead-letters` lists them, and SQL reads them: SELECT * FROM dead_letters"
        assert client.post("/v1/query", json={"sql": "select * from DEAD_LETTERS"}).json()["rows"] == []
        assert told("larg", 404) == ("no such view: view=larg views=['large']", "did you mean `large`?")
        message, hint = told("orders", 404)
        assert message == "no such view, but a table, whose rows are not kept: table=orders views=['large']"
        assert "`create materialized view all_orders as select * from orders`" in hint
        named = client.post(
            "/v1/query", json={"sql": "with dead_letters as (select 1 as n) select n from dead_letters"}
        )
        assert named.json()["rows"] == [[1]]
