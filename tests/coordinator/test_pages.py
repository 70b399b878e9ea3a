"""Large views are sent while they are read, or page by page; all of it is of one step, and ends when the client goes away."""

from __future__ import annotations

from typing import Any

import httpx
import pyarrow as pa
import pytest

from dbsp.coordinator.http import cell_texts, views
from dbsp.coordinator.http.kinds import ARROW
from dbsp.coordinator.http.rendering import plain
from dbsp.coordinator.service import Service
from tests.coordinator.shop import answering, settings
from tests.spark.waiting import until

ROWS = 500


@pytest.fixture
def large(service: Service, monkeypatch: pytest.MonkeyPatch) -> Service:
    """A view of some rows, in chunks of several steps, which counts as large."""
    monkeypatch.setattr(views, "KEPT_VIEW_BYTES_MAX", 100)
    monkeypatch.setattr(cell_texts, "TEXT_ROWS", 7)
    for first in range(0, ROWS, 100):
        pushed(service, first, 100)
    return service


def pushed(service: Service, first: int, count: int) -> None:
    ids = list(range(first, first + count))
    rows = pa.table({"id": ids, "customer": [f"customer {n % 9}" for n in ids], "amount": [501 + n for n in ids]})
    service.wait_until_processed(service.push("orders", rows), 60)


def arrow(answer: httpx.Response) -> pa.Table:
    return pa.ipc.open_stream(answer.content).read_all()


def without_leases(service: Service) -> None:
    until(lambda: service.leases.count == 0, "all leases end")


@pytest.mark.parametrize("limit", [None, 0, 1, 33, ROWS, 10 * ROWS])
def test_a_large_view_is_sent_in_pieces(client: httpx.Client, large: Service, limit: int | None) -> None:
    params = {} if limit is None else {"limit": limit}
    whole = large.read_view("large")
    wanted = whole.table.slice(0, limit)
    answer = client.get("/v1/views/large", params=params, headers={"Accept": ARROW})
    assert arrow(answer) == wanted
    assert int(answer.headers["Dbsp-Step"]) == whole.step
    found = client.get("/v1/views/large", params=params).json()
    assert found == {
        "view": "large", "step": whole.step, "rows": plain(wanted.drop_columns(["weight"]).to_pylist()),
        "weights": wanted.column("weight").to_pylist(), "rows_total": ROWS,
    }  # fmt: skip
    without_leases(large)


def test_pages_are_of_one_step(client: httpx.Client, large: Service) -> None:
    whole = large.read_view("large")
    rows: list[Any] = []
    cursor: str | None = ""
    while cursor is not None:
        given = {"limit": 123, "cursor": cursor}
        page = client.get("/v1/views/large", params=given).json()
        assert page["step"] == whole.step
        if cursor:  # an answer that was lost is asked for again
            assert client.get("/v1/views/large", params=given).json() == page
        rows += page["rows"]
        cursor = page["next"]
        pushed(large, ROWS + len(rows), 5)
    assert rows == whole.table.drop_columns(["weight"]).to_pylist()
    without_leases(large)


def test_pages_of_a_key_in_arrow(client: httpx.Client, large: Service) -> None:
    given = {"limit": 40, "cursor": "", "key": '{"customer": "customer 3"}'}
    first = client.get("/v1/views/large", params=given, headers={"Accept": ARROW})
    second = client.get(
        "/v1/views/large", params={**given, "cursor": first.headers["Dbsp-Next"]}, headers={"Accept": ARROW}
    )
    assert "Dbsp-Next" not in second.headers
    assert sorted(pa.concat_tables([arrow(first), arrow(second)]).column("id").to_pylist()) == list(range(3, ROWS, 9))


def test_wrong_cursors_are_refused(client: httpx.Client, large: Service) -> None:
    first = client.get("/v1/views/large", params={"limit": 10, "cursor": ""}).json()["next"]
    for _ in range(3):
        cursor = client.get("/v1/views/large", params={"limit": 10, "cursor": first}).json()["next"]
        first, gone = cursor, first
    answers = {
        "x": 400, "x.y": 400, "0000.1": 503, gone.split(".")[0] + ".1": 400, gone.split(".")[0] + ".9": 400,
    }  # fmt: skip
    for wrong, status in answers.items():
        answer = client.get("/v1/views/large", params={"limit": 10, "cursor": wrong})
        assert answer.status_code == status, (wrong, answer.text)
    assert client.get("/v1/views/per_customer", params={"cursor": first}).status_code == 503
    assert client.get("/v1/views/large", params={"limit": 0, "cursor": ""}).status_code == 400


def test_the_oldest_read_of_too_many_ends(folder: Any) -> None:
    with Service(settings(folder, "query.leases_max=2")) as service, answering(service) as client:
        pushed(service, 0, 50)
        cursors = []
        for number in range(3):
            cursors.append(client.get("/v1/views/large", params={"limit": 10, "cursor": ""}).json()["next"])
            pushed(service, 100 + number, 1)
        found = [client.get("/v1/views/large", params={"limit": 10, "cursor": each}).status_code for each in cursors]
        assert found == [503, 503, 200]


def test_a_client_that_goes_away_ends_its_read(client: httpx.Client, large: Service, monkeypatch: Any) -> None:
    """Its lease is held back by nobody, although most pieces were never read."""
    monkeypatch.setattr(views, "_as_arrow", lambda read, _limit: iter(lambda: (read.next(), b"x" * (1 << 20))[1], None))
    with client.stream("GET", "/v1/views/large", headers={"Accept": ARROW}) as answer:
        assert next(answer.iter_raw())
        assert large.leases.count == 1
    without_leases(large)


def test_a_read_whose_lease_has_ended_breaks_off(client: httpx.Client, large: Service, monkeypatch: Any) -> None:
    """The client does not take a part of the rows for all."""
    original = views._as_arrow

    def late(read: Any, limit: int | None) -> Any:
        for piece in original(read, limit):
            yield piece
            read._shared.leased.end()

    monkeypatch.setattr(views, "ROWS", {**views.ROWS, ARROW: late})
    monkeypatch.setattr(views, "KEPT_VIEW_BYTES_MAX", 0)
    with pytest.raises(httpx.RemoteProtocolError):
        client.get("/v1/views/large", headers={"Accept": ARROW})
    without_leases(large)
