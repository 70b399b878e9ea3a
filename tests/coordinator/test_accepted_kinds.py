"""The kinds of body of views, changes and queries, as `Accept` asks; and a refusal of the others."""

from __future__ import annotations

import csv
import io

import httpx
import pyarrow as pa
import pytest

from dbsp.coordinator.http.kinds import ARROW, CSV, EVENTS, JSON, JSON_LINES, chosen

ROWS = [{"id": 1, "customer": "a, b", "amount": 700}, {"id": 2, "customer": "", "amount": 900}]
LARGE = [["1", "a, b", "700", "1"], ["2", "", "900", "1"]]


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", JSON), ("*/*", JSON), ("application/*", JSON), (CSV, CSV), (f"{CSV}; charset=utf-8, */*", CSV),
        ("text/html,application/xhtml+xml,*/*;q=0.8", JSON), (f"{CSV};q=0.5, {ARROW}", ARROW), (f"{CSV}, {ARROW}", CSV),
        (f"{JSON};q=0.1, text/*;q=0.9", CSV), ("application/xml", None), (f"{CSV};q=0", None), ("TEXT/CSV", CSV),
        (f"{JSON};q=0, */*", ARROW),
    ],
)  # fmt: skip
def test_the_kind_that_is_preferred(accept: str, kind: str | None) -> None:
    assert chosen(accept, (JSON, ARROW, CSV)) == kind


def read(client: httpx.Client, path: str, kind: str, **params: str) -> tuple[httpx.Headers, list[list[str]]]:
    """Return the headers of a response, and its rows with a header as texts, from either kind."""
    answer = client.get(path, params=params, headers={"Accept": kind}).raise_for_status()
    assert answer.headers["content-type"].split(";")[0] == kind
    if kind == CSV:
        return answer.headers, list(csv.reader(io.StringIO(answer.text)))
    table = pa.ipc.open_stream(answer.content).read_all()
    return answer.headers, [table.column_names, *([str(value) for value in row.values()] for row in table.to_pylist())]


@pytest.mark.parametrize("kind", [CSV, ARROW])
def test_views_and_changes_are_read_as_csv_and_arrow(client: httpx.Client, kind: str) -> None:
    client.post("/v1/tables/orders/rows", json=ROWS, params={"wait": "true"}).raise_for_status()
    head = ["id", "customer", "amount", "weight"]
    headers, rows = read(client, "/v1/views/large", kind)
    assert (rows[0], sorted(rows[1:]), headers["dbsp-step"]) == (head, LARGE, "1")
    assert len(read(client, "/v1/views/large", kind, limit="1")[1]) == 2
    headers, first = read(client, "/v1/views/large", kind, limit="1", cursor="")
    _, second = read(client, "/v1/views/large", kind, limit="1", cursor=headers["dbsp-next"])
    assert sorted(first[1:] + second[1:]) == LARGE
    headers, rows = read(client, "/v1/views/large/changes", kind)
    assert (rows[0], sorted(rows[1:])) == ([*head, "step"], [[*row, "0"] for row in LARGE])
    assert headers["dbsp-next-step"] == "1"
    assert read(client, "/v1/views/large/changes", kind, first="1")[1] == [[*head, "step"]], "no row, but a header"


def test_a_kind_that_is_not_offered_is_refused(client: httpx.Client) -> None:
    asked = {"Accept": "application/xml"}
    view, changes = client.get("/v1/views/large", headers=asked), client.get("/v1/views/large/changes", headers=asked)
    query = client.post("/v1/query", json={"sql": "SELECT 1"}, headers=asked)
    for answer, others in ((view, ()), (changes, (EVENTS,)), (query, (JSON_LINES,))):
        assert answer.status_code == 406
        assert answer.json()["error"]["message"] == "no body of this kind: Accept=application/xml"
        assert all(kind in answer.json()["error"]["hint"] for kind in (JSON, ARROW, CSV, *others))


def test_what_newcomers_try_is_explained(client: httpx.Client) -> None:
    pushed = client.post("/v1/tables/large/rows", json=ROWS).json()["error"]
    assert pushed["message"] == "this is a view, which takes no rows: view=large tables=['orders']"
    for sql in ("show create view large", "describe select 1", "PRAGMA table_info('large')"):
        error = client.post("/v1/query", json={"sql": sql}).json()["error"]
        assert error["message"] == f"only SELECT is allowed: statement={sql}"
        assert "SHOW TABLES lists the views" in error["hint"]
    assert client.post("/v1/query", json={"sql": "show tables"}).json()["rows"][:2] == [["dead_letters"], ["large"]]
    for sql in ("DESCRIBE large", "desc large;", "show columns from LARGE -- all"):
        answer = client.post("/v1/query", json={"sql": sql}).json()
        assert answer["columns"] == ["column_name", "column_type", "null"]
        assert [row[0] for row in answer["rows"]] == ["id", "customer", "amount"]
    assert "did you mean `large`" in client.post("/v1/query", json={"sql": "describe larg"}).json()["error"]["hint"]
    assert ["reason", "varchar"] in [
        row[:2] for row in client.post("/v1/query", json={"sql": "describe dead_letters"}).json()["rows"]
    ]
