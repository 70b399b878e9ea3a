"""600 followers and 400 pushes at once: status, health and metrics are answered within a second meanwhile, and steps go on."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections import Counter
from multiprocessing import get_context
from pathlib import Path

import pytest

from dbsp.coordinator.http.connections import raise_descriptor_limit
from tests import plain_http
from tests.coordinator.shop import serving
from tests.spark.waiting import until

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

FOLLOWERS, PUSHES, ROUNDS = 600, 400, 5
FIGURES = ("/v1/status", "/healthz", "/readyz", "/metrics")
WITHIN_S, RETRY_AFTER_S = 1.0, 1.0


def asked(url: str, over: Path) -> list[tuple[str, int, float]]:
    """Ask for each figure again and again, from a process of its own, until a file is there: (path, status, seconds)."""
    found = list[tuple[str, int, float]]()
    while not over.exists():
        path, begun_s = FIGURES[len(found) % len(FIGURES)], time.monotonic()
        status = plain_http.ask("GET", url + path).status_code
        found.append((path, status, time.monotonic() - begun_s))
    return found


async def request(url: str, text: bytes, statuses: Counter[int], *, stays: bool = False) -> None:
    """Send a request on a connection of its own, and count its status; one that `stays` reads on until it is cancelled."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(text)
        line = await reader.readline()
        statuses[int(line.split()[1])] += 1
        while stays and await reader.read(1 << 16):
            pass
    finally:
        writer.close()


def head(method: str, path: str, *more: str) -> str:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", *more, "", ""])


def push(number: int) -> bytes:
    body = json.dumps([{"id": 1000 * number + each, "customer": f"c{each % 7}", "amount": 600} for each in range(50)])
    wait = "?wait=true" if number % 2 else ""
    return (head("POST", f"/v1/tables/orders/rows{wait}", f"Content-Length: {len(body)}") + body).encode()


async def crowd(url: str) -> tuple[Counter[int], Counter[int]]:
    """All followers and pushes at once, some rounds of pushes."""
    followed, pushed = Counter[int](), Counter[int]()
    stream = head("GET", "/v1/views/large/changes", "Accept: text/event-stream").encode()
    async with asyncio.TaskGroup() as group:
        followers = [group.create_task(request(url, stream, followed, stays=True)) for _ in range(FOLLOWERS)]
        for number in range(ROUNDS):
            async with asyncio.TaskGroup() as together:
                for each in range(PUSHES):
                    together.create_task(request(url, push(number * PUSHES + each), pushed))
            await asyncio.sleep(RETRY_AFTER_S)  # what an answer 429 asks for
        while followed.total() < FOLLOWERS:  # no follower is cancelled before its answer
            await asyncio.sleep(0)
        for follower in followers:
            follower.cancel()
    return followed, pushed


@pytest.mark.parametrize(
    "settings", ["", "connections_max = 4096\nfollowers_max = 1500\n"], ids=["defaults", "room for all"]
)
def test_figures_are_answered_within_a_second_beside_a_crowd(folder: Path, settings: str) -> None:
    """With the defaults most are refused (429); with room for all of them all are let in."""
    raise_descriptor_limit()
    file = folder / "pipeline.toml"
    file.write_text(file.read_text().replace("port = 0\n", f"port = 0\n{settings}"))
    with serving(folder), get_context("spawn").Pool(1) as pool:
        url = str(json.loads((folder / "data" / "coordinator.json").read_text())["url"])
        pool.apply(len, ([],))  # it has started
        figures = pool.apply_async(asked, (url, folder / "over"))
        followed, pushed = asyncio.run(crowd(url))
        (folder / "over").touch()
        found = figures.get()
        until(lambda: plain_http.ask("GET", f"{url}/v1/status").json()["lag_rows"] == 0, "all is processed")
        status = plain_http.ask("GET", f"{url}/v1/status").json()
    seconds = [each[2] for each in found]
    assert {each[1] for each in found} == {200}
    worst, share = max(seconds), statistics.quantiles(seconds, n=100)[97]
    measured = (
        f"of {len(seconds)}: median {statistics.median(seconds):.3f} s, 98 of 100 {share:.3f} s, worst {worst:.3f} s"
    )
    print(measured, followed, pushed)
    assert set(followed) <= {200, 429}
    assert set(pushed) <= {200, 429}
    if settings:
        assert followed == {200: FOLLOWERS}
        assert set(pushed) == {200}
    assert (status["state"], status["rollbacks"], status["dead_letters"]) == ("Running", 0, 0)
    assert status["rows_in"] == 50 * pushed[200]
    assert share < WITHIN_S, measured
