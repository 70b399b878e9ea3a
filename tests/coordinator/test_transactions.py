"""Rows of several tables that one step takes together, or none, however few rows a step may take."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import Config, load_config
from dbsp.errors import DataError
from dbsp.io.embedded_output import read_outputs
from dbsp.io.pushed import Producer
from tests.coordinator.shop import answering, script
from tests.pace import rotating

pytestmark = pytest.mark.timeout(300)

CIRCUIT = """
create table paid (account bigint, amount bigint);
create table got (account bigint, amount bigint);
create table noise (id bigint primary key, amount bigint);
create materialized view balance as
  select sum(amount) as balance, count(*) as n from
    (select amount from got union all select -amount from paid) group by all;
create materialized view accounts as
  select account, sum(amount) as balance from
    (select account, amount from got union all select account, -amount as amount from paid) group by account;
create materialized view noises as select count(*) as n from noise;
"""
ROWS = pa.schema({"account": pa.int64(), "amount": pa.int64()})


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "bank.sql").write_text(CIRCUIT)
    (tmp_path / "pipeline.toml").write_text("""
[pipeline]
circuit = "bank.sql"
runtime = "local"
workers = 2
[input]
partitions = 2
[step]
max_rows_per_step = 7
max_step_delay_ms = 0
[http]
port = 0
""")
    return load_config(tmp_path / "pipeline.toml", environment={})


@pytest.fixture
def client(config: Config) -> Iterator[httpx.Client]:
    with Service(config) as service, answering(service) as made:
        yield made


def transfer(draw: random.Random) -> dict[str, pa.Table]:
    """What some accounts pay others, in all as much as they get; more rows than a step may take, now and then."""
    paid = [(draw.randrange(5), draw.randrange(1, 100)) for _ in range(draw.choice([1, 1, 2, 6, 20]))]
    total, got = sum(amount for _, amount in paid), []
    while total:
        amount = draw.randint(1, total) if len(got) < 10 else total
        got.append((draw.randrange(5), amount))
        total -= amount
    return {name: pa.table(list(zip(*rows, strict=True)), schema=ROWS) for name, rows in (("paid", paid), ("got", got))}


def balances(config: Config, view: str) -> list[tuple[int, dict[str, Any]]]:
    """Each row that came to a view, with its step."""
    return [
        (step, row)
        for step, _, table in read_outputs(config.data_dir, view)
        for row in table.to_pylist()
        if row["weight"] > 0
    ]


@pytest.mark.parametrize("seed", rotating(range(3), 3))
def test_every_step_sees_whole_transactions(config: Config, seed: int) -> None:
    """The accounts together have nothing after each step, though steps take seven rows and more wait all the time."""
    draw, sent = random.Random(seed), 0
    for start in range(3):
        with Service(config) as service:
            service.pause()
            for number in range(12):
                pushed = transfer(draw)
                positions = service.push_together(
                    pushed, partition=draw.randrange(2), producer=Producer(id="bank", sequence=100 * start + number)
                )
                sent += sum(len(table) for table in pushed.values())
                if draw.random() < 0.5:
                    ids = [1000 * start + 10 * number + each for each in range(draw.randrange(1, 9))]
                    service.push("noise", pa.table({"id": ids, "amount": ids}))
            service.resume()
            if start == 1:
                service.rescale(3, 60)
            if start == 2:
                for position in positions:
                    service.wait_until_processed(position, 60)
                rows = service.read_view("balance", 60).table.to_pylist()
                assert [(row["balance"], row["n"]) for row in rows] == [(0, sent)]
            else:
                service.stop(now=True)
    told = balances(config, "balance")
    assert [(step, row) for step, row in told if row["balance"]] == []
    assert len(told) > 12, "the rows came in many steps"


def test_all_or_nothing(client: httpx.Client) -> None:
    def ends() -> dict[str, Any]:
        return {each["table"]: each["offset"] for each in client.get("/v1/status").json()["processed"]}

    def post(body: Any, **headers: str) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return client.post("/v1/transactions?wait=true", content=content, headers=headers)

    both = {"paid": [{"account": 1, "amount": 5}], "got": [{"account": 2, "amount": 5}]}
    named = {"Dbsp-Producer": "p", "Dbsp-Sequence": "3"}
    for repeated in (False, True):
        answer = post(both, **named)
        assert answer.status_code == 200, answer.text
        assert [(each["table"], each["last"], each["repeated"]) for each in answer.json()["tables"]] == [
            ("paid", 1, repeated),
            ("got", 1, repeated),
        ]
    more = {**both, "noise": [{"id": 1, "amount": 2}]}
    bad = {**both, "noise": [{"id": 1, "amount": 2}, {"id": "x"}]}
    for body, headers, status, story in (
        (more, named, 422, "a part of this transaction was pushed before: tables=paid,got"),
        (bad, {}, 422, "table=noise row=1 reason=column id: expected int64, found a string"),
        ({"nothing": []}, {}, 404, "no such table"),
        ([{"id": 1}], {}, 422, "not rows of several tables: expected { at character 0"),
        (b'{"paid": [], "paid": []}', {}, 422, "a table is there twice: table=paid"),
        (b'{"paid": []} 1', {}, 422, "there is text after the object"),
        (b'{"paid": {}}', {}, 422, "a table's name and its array are wanted"),
        (b'{"paid": [', {}, 422, "not rows of several tables"),
        (b"\xff", {}, 422, "not rows of several tables"),
    ):
        answer = post(body, **headers)
        assert (answer.status_code, story in answer.text) == (status, True), answer.text
    assert ends() == {"paid": 1, "got": 1}
    assert post({"paid": [], "got": []}).json()["tables"][0]["last"] == 1
    exact = b' { "noise" : [ {"id": 9007199254740993, "amount": -9223372036854775808} ] } '
    assert post(exact).status_code == 200
    assert ends()["noise"] == 1


def test_by_the_command_line(client: httpx.Client) -> None:
    rows = '{"paid": [{"account": 1, "amount": 5}], "got": [{"account": 2, "amount": 5}]}'
    found = script("cli", "--url", str(client.base_url), "transaction", given=rows)
    assert found.stdout.splitlines() == ["rows 0 to 0 of paid are durable", "rows 0 to 0 of got are durable"]


def test_deletes_of_an_append_only_table_take_nothing(tmp_path: Path) -> None:
    (tmp_path / "log.sql").write_text("""
create table events (id bigint) with (append_only = true);
create table others (id bigint primary key);
create materialized view n as select count(*) as n from others;
create materialized view m as select count(*) as n from events;
""")
    (tmp_path / "pipeline.toml").write_text("""
[pipeline]
circuit = "log.sql"
runtime = "local"
[http]
port = 0
""")
    with Service(load_config(tmp_path / "pipeline.toml", environment={})) as service:
        from dbsp.io.formats import decode_json  # noqa: PLC0415 - here alone

        bad = decode_json(b'[{"delete": {"id": 1}}]', service.table("events"))
        with pytest.raises(DataError, match="a delete in an append-only table"):
            service.push_together({"others": pa.table({"id": [1]}), "events": bad})
        service.wait_until_processed(service.push("events", pa.table({"id": [1]})), 60)
        assert service.read_view("n", 60).table.to_pylist() == [{"n": 0, "weight": 1}]
