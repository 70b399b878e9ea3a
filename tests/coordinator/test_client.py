"""`dbsp.Client` and `dbsp.AsyncClient` against a running service: rows in, rows out, changes, decisions."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import pyarrow as pa
import pytest

import dbsp
from dbsp.coordinator.client.client import Change
from dbsp.errors import ConfigError, DataError, UnavailableError

ROWS = [{"id": 1, "customer": "a", "amount": 700}, {"id": 2, "customer": "b", "amount": 1}]


@pytest.fixture
def asking(client: httpx.Client) -> dbsp.Client:
    """A client of the service that answers as long as the fixture `client` lasts."""
    return dbsp.Client(url=str(client.base_url))


def test_rows_go_in_as_dicts_frames_arrow_and_bytes(asking: dbsp.Client) -> None:
    pushed = asking.push("orders", ROWS, wait_s=60)
    assert (pushed.first, pushed.end, pushed.processed, pushed.repeated) == (0, 2, True, False)
    asking.push("orders", pa.table({"id": [3], "customer": ["c"], "amount": [2]}))
    asking.push("orders", pd.DataFrame({"id": [4], "customer": ["c"], "amount": [3]}))
    assert asking.push("orders", b'{"id": 5, "customer": "c", "amount": 4}\n', wait_s=60).first == 4
    together = asking.transaction({"orders": [{"id": 6, "customer": "d", "amount": 9}]}, wait_s=60)
    assert (together.processed, [each.first for each in together.tables]) == (True, [5])
    found = asking.query("SELECT customer, amount FROM per_customer ORDER BY customer")
    assert list(found) == [
        {"customer": "a", "amount": 700}, {"customer": "b", "amount": 1}, {"customer": "c", "amount": 9},
        {"customer": "d", "amount": 9},
    ]  # fmt: skip
    assert found.to_pandas()["amount"].sum() == 719
    assert pa.table(found).num_rows == len(found) == 4
    large = asking.view("large")
    assert large.to_pylist() == [{**ROWS[0], "weight": 1}]
    assert large.step == found.step


def test_a_repeated_push_adds_nothing_and_bad_rows_are_told(asking: dbsp.Client) -> None:
    first, second = (asking.push("orders", ROWS, producer="me", sequence=1) for _ in range(2))
    assert (first.repeated, second.repeated, second.first) == (False, True, 0)
    bad = asking.push("orders", [*ROWS, {"id": "x"}])
    assert (bad.bad_rows, bad.bad[0]["row"]) == (1, 2)
    with pytest.raises(ConfigError, match="a producer and its number"):
        asking.push("orders", ROWS, producer="me")
    with pytest.raises(ConfigError, match="no such table"):
        asking.push("nothing", ROWS)


def test_changes_go_on_from_the_position_of_each(asking: dbsp.Client) -> None:
    for row in ROWS:
        asking.push("orders", [row], wait_s=60)
    asking.push("orders", [{**ROWS[0], "amount": 10}], wait_s=60)
    whole = list(asking.changes("large"))
    assert [list(change) for change in whole] == [[(ROWS[0], 1)], [(ROWS[0], -1)]]
    for change in whole:
        assert list(asking.changes("large", first=change.next)) == [each for each in whole if each.step > change.step]
    followed = asking.changes("large", follow=True, first=whole[0].next, wait_s=5)
    assert next(followed) == whole[1]
    with pytest.raises(DataError):
        list(asking.changes("large", first=10**6))


def test_decisions_and_figures(asking: dbsp.Client) -> None:
    asking.push("orders", ROWS, wait_s=60)
    assert asking.views() == ["large", "per_customer"] or set(asking.views()) == {"large", "per_customer"}
    assert asking.pause()["state"] == "Paused"
    assert asking.status()["state"] == "Paused"
    assert asking.resume()["state"] == "Running"
    assert asking.checkpoint()["version"] >= 1
    seen: list[dict[str, Any]] = []
    assert asking.rescale(3, dry_run=True)["workers"] == 3
    asking.rescale(3, strategy="cold", progress=seen.append)
    assert len(asking.layout()["workers"]) == 3
    assert "dbsp_" in asking.metrics()
    assert "per_customer" in asking.explain()


def test_async_methods_leave_the_loop_free(asking: dbsp.Client) -> None:
    async def use() -> list[Change]:
        client = dbsp.AsyncClient(url=asking.connection.url)
        pushed = await client.push("orders", ROWS, wait_s=60)
        assert pushed.processed
        found, status = await asyncio.gather(client.query("SELECT count(*) AS n FROM large"), client.status())
        assert found.to_pylist() == [{"n": 1}]
        assert status["state"] == "Running"
        return [change async for change in client.changes("large")]

    assert asyncio.run(use()) == list(asking.changes("large"))


def test_without_a_service_it_says_what_to_do(folder: Path) -> None:
    asking = dbsp.Client(folder / "pipeline.toml")
    with pytest.raises(UnavailableError, match="not running") as caught:
        asking.status()
    assert "dbsp-coordinator" in str(caught.value.hint)
    with pytest.raises(ConfigError, match="one service"):
        dbsp.Client(folder / "pipeline.toml", url="http://127.0.0.1:1")
    assert repr(dbsp.Client(url="http://127.0.0.1:1", token="secret")) == "Client('http://127.0.0.1:1')"


def test_an_address_is_given_by_its_name() -> None:
    with pytest.raises(ConfigError, match="in the place of a settings file: https://h:1/x") as refused:
        dbsp.Client("https://h:1/x")
    assert refused.value.hint == 'write Client(url="https://h:1/x"), or `coordinator --url https://h:1/x`'


def test_it_loads_no_engine() -> None:
    engine = {"numpy", "numba", "pyarrow", "pyspark", "duckdb"}
    said = f"import sys, dbsp; dbsp.Client; print(sorted({engine} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_client_for_asyncio_has_the_same_methods(asking: dbsp.Client) -> None:
    def methods(of: type[Any]) -> set[str]:
        return {name for name in dir(of) if not name.startswith("_")}

    assert methods(dbsp.Client) - {"ask", "pages"} == methods(dbsp.AsyncClient)

    async def use() -> list[dict[str, Any]]:
        client = dbsp.AsyncClient(url=asking.connection.url)
        await client.push("orders", [*ROWS, {"id": "x"}], wait_s=60)
        assert sorted(await client.views()) == ["large", "per_customer"]
        assert (await client.pause())["state"] == "Paused"
        assert (await client.resume())["state"] == "Running"
        assert (await client.replay_dead_letters(dry_run=True))["matched"] == 1
        return [letter async for letter in client.dead_letters(table="orders")]

    assert [letter["code"] for letter in asyncio.run(use())] == ["unreadable"]
