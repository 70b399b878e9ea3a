"""`circuit = "shop.sql"`: a pipeline without a line of Python, checked, run, read and started again."""

from __future__ import annotations

from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from dbsp.circuit.load import load_circuit
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import load_config
from tests.coordinator.shop import answering, script, settings, settings_text

SHOP = """
-- what is sold, and to whom
create table orders (id bigint, customer varchar, amount bigint, primary key (id));
create table countries (customer varchar, country varchar) with (append_only = true);

create temp view named as
  select o.customer, amount, country from orders o left join countries c using (customer);
create materialized view per_country as
  select country, count(*) as orders, sum(amount) as amount from named group by country;
create materialized view best as
  select customer, sum(amount) as amount from orders group by customer order by amount desc limit 1;
create view large (id, euros) as select id, amount from orders where amount > 500;
"""
ORDERS = pa.table({"id": [1, 2, 3], "customer": ["a", "b", "b"], "amount": [10, 600, 1]})
COUNTRIES = pa.table({"customer": ["a"], "country": ["UK"]})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.sql").write_text(SHOP)
    (tmp_path / "pipeline.toml").write_text(settings_text().replace("circuit.py:pipeline", "shop.sql"))
    return tmp_path


def test_the_script_is_a_circuit(folder: Path) -> None:
    circuit = load_circuit("shop.sql", folder)
    assert circuit.name == "shop"
    assert [name for name, _ in circuit.views] == ["per_country", "best", "large"]
    assert circuit.materialized == {"per_country", "best"}
    assert {table.name: (table.primary_key, table.append_only) for table in circuit.tables} == {
        "orders": (("id",), False),
        "countries": ((), True),
    }
    assert dict(circuit.views)["large"].schema.names == ("id", "euros")


def test_check_prints_the_plan_and_starts_nothing(folder: Path) -> None:
    done = script("serve", "pipeline.toml", "--check", folder=folder)
    assert done.returncode == 0, done.stderr
    assert "per_country" in done.stdout
    assert not (folder / "data").exists()


def test_a_byte_order_mark_is_no_part_of_script_and_settings(folder: Path) -> None:
    for name in "shop.sql", "pipeline.toml":
        (folder / name).write_bytes(b"\xef\xbb\xbf" + (folder / name).read_bytes())
    assert [name for name, _ in load_circuit("shop.sql", folder).views] == ["per_country", "best", "large"]
    assert load_config(folder / "pipeline.toml", environment={}).pipeline.circuit == "shop.sql"


def test_check_tells_the_line_of_the_script(folder: Path) -> None:
    (folder / "shop.sql").write_text(SHOP.replace("amount > 500", "amout > 500"))
    done = script("serve", "pipeline.toml", "--check", folder=folder)
    assert done.returncode == 2
    assert f"no such column: column=amout text='amout' at={folder}/shop.sql:12:70" in done.stderr.replace("\n", "")
    assert 'did you mean "amount"?' in done.stderr


def rows(service: Service, view: str) -> list[tuple[object, ...]]:
    table = service.read_view(view).table.drop_columns(["weight"])
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True), key=str)


def test_push_query_and_start_again(folder: Path) -> None:
    with Service(settings(folder)) as first:
        first.wait_until_processed(first.push("countries", COUNTRIES), 60)
        first.wait_until_processed(first.push("orders", ORDERS), 60)
        assert rows(first, "per_country") == [("UK", 1, 10), (None, 2, 601)]
        assert rows(first, "best") == [("b", 601)]
        with answering(first) as client:
            assert queried(client, "select sum(amount) as s from per_country") == [[611]]
    with Service(settings(folder)) as second:
        position = second.push("orders", ORDERS.slice(1, 1), delete=True)
        second.wait_until_processed(position, 60)
        assert rows(second, "per_country") == [("UK", 1, 10), (None, 1, 1)]
        assert rows(second, "best") == [("a", 10)]


def queried(client: httpx.Client, sql: str) -> object:
    answer = client.post("/v1/query", json={"sql": sql})
    assert answer.status_code == 200, answer.text
    return answer.json()["rows"]
