"""A pipeline from Parquet files to Parquet files: killed while they come, started again, its answers are DuckDB's over all."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbsp.coordinator.address import read_address
from dbsp.coordinator.service import Service
from dbsp.errors import ConfigError
from tests import duck, plain_http
from tests.coordinator.shop import ORDERS, killable, settings, settings_text
from tests.spark.waiting import until

FILES = """
[input]
kind = "files"
directory = "landing"
[output]
kind = "files"
directory = "results"
format = "parquet"
[checkpoint]
interval_s = 0.05
"""


def land(folder: Path, name: str, orders: pa.Table) -> None:
    place = folder / "landing" / "orders"
    place.mkdir(parents=True, exist_ok=True)
    pq.write_table(orders, place / f".{name}")
    (place / f".{name}").rename(place / name)


def some_orders(chance: random.Random, count: int) -> pa.Table:
    """Orders of few ids, so that later files replace rows of earlier ones."""
    return pa.table(
        {
            "id": [chance.randrange(200) for _ in range(count)],
            "customer": [chance.choice("abcdef") for _ in range(count)],
            "amount": pa.array([chance.randrange(1000) for _ in range(count)], pa.int32()),
        }
    )


def by_duckdb(orders: list[pa.Table]) -> Counter[tuple[Any, ...]]:
    placed = pa.concat_tables(orders).append_column("place", pa.array(range(sum(len(table) for table in orders))))
    with duck.connect() as connection:
        connection.register("placed", placed)
        newest = "SELECT * FROM placed QUALIFY row_number() OVER (PARTITION BY id ORDER BY place DESC) = 1"
        return Counter(
            connection.sql(
                f"SELECT customer, count(*), sum(amount)::BIGINT FROM ({newest}) GROUP BY customer"
            ).fetchall()
        )


def processed(folder: Path) -> int:
    """How many rows the living process has done, as far as it says."""
    url = read_address(folder / "data")["url"]
    status = plain_http.ask("GET", f"{url}/v1/status").json()
    return sum(place["offset"] for place in status["processed"]) if status["state"] == "Running" else 0


def folded(results: Path) -> Counter[tuple[Any, ...]]:
    """The changes of all steps, added up."""
    with duckdb.connect() as connection:
        query = f"SELECT customer, orders, amount, weight FROM '{results}/*.parquet'"
        total: Counter[tuple[Any, ...]] = Counter()
        for *row, weight in connection.sql(query).fetchall():
            total[tuple(row)] += weight
    return Counter({row: weight for row, weight in total.items() if weight})


def test_kills_while_files_come_lose_and_double_nothing(folder: Path) -> None:
    (folder / "pipeline.toml").write_text(settings_text(FILES, step="max_rows_per_step = 700"))
    chance, orders, reached = random.Random(7), [], 0
    for round_ in range(4):
        with killable(folder):  # killed at its end, wherever it is
            for number in range(5):
                orders.append(some_orders(chance, chance.randrange(1, 900)))
                land(folder, f"{round_}-{number}.parquet", orders[-1])
            if round_ % 2:
                until(lambda before=reached: processed(folder) > before, "it has taken a step")
            reached = max(reached, processed(folder))
    with Service(settings(folder)) as service:
        total = sum(len(table) for table in orders)
        assert service.live_status.wait_for(lambda now: sum(now.processed.values()) == total, 60)
        view = service.read_view("per_customer").table
    found = Counter((row["customer"], row["orders"], row["amount"]) for row in view.to_pylist())
    assert found == by_duckdb(orders) == folded(folder / "results" / "per_customer")


def test_files_whose_names_are_no_utf_8_stop_nothing(folder: Path) -> None:
    """One of an ending that is not read is a dead letter; the rows of another are taken."""
    (folder / "pipeline.toml").write_text(settings_text(FILES))
    strange = os.fsdecode(b"\xff")
    with Service(settings(folder)) as service:
        place = folder / "landing" / "orders"
        (place / f"{strange}.pdf").write_bytes(b"%PDF")
        pq.write_table(some_orders(random.Random(1), 10), place / ".1")
        (place / ".1").rename(place / f"{strange}.parquet")
        assert service.live_status.wait_for(lambda now: sum(now.processed.values()) == 11, 30)
        assert (service.snapshot.dead, service.snapshot.rollbacks) == (1, 0)


def test_what_a_pipeline_of_files_refuses(folder: Path) -> None:
    (folder / "pipeline.toml").write_text(settings_text(FILES))
    with (
        Service(settings(folder)) as service,
        pytest.raises(ConfigError, match="cannot be pushed to this input") as caught,
    ):
        service.push("orders", ORDERS)
    assert "put a file into the table's folder" in str(caught.value)
    with pytest.raises(ConfigError, match="another kind"):
        Service(settings(folder, "input.kind=embedded")).close()
    with pytest.raises(ConfigError, match="needs a folder"):
        settings(folder, "input.directory=")
