"""Views as tables in topics: of every key its row now, a tombstone where it has none; killed and rescaled in the midst."""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path
from typing import Any

import confluent_kafka.admin
import pytest

from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import load_config
from dbsp.errors import DbspError
from dbsp.io.kafka import KafkaSettings
from dbsp.io.kafka.client import ensure_topic
from dbsp.io.pushed import Position
from tests.crash.coordinator_child import Child
from tests.kafka.topics import messages, send

pytestmark = [pytest.mark.kafka, pytest.mark.crash]

CIRCUIT = """
create table orders (id bigint primary key, customer bigint, amount bigint);
create table customers (id bigint primary key, city text);
create materialized view priced as
  select o.id as order_id, city, amount from orders o left join customers c on o.customer = c.id;
create materialized view best as
  select customer, id, amount from orders qualify row_number() over (partition by customer order by amount desc, id) = 1;
create materialized view cities as
  select city, amount % 3 as kind, count(*) as n from orders o join customers c on o.customer = c.id group by all;
"""
KEYS = {"priced": ("order_id",), "best": ("customer",), "cities": ("city", "kind")}
POINTS = ["runtime.run_step:after:4", "runtime.copy:after:2", ""]


def settle(
    settings: KafkaSettings, folder: Path, keys: str = 'priced = "order_id", best = "customer", cities = "city, kind"'
) -> Path:
    (folder / "shop.sql").write_text(CIRCUIT)
    name = settings.pipeline
    (folder / "pipeline.toml").write_text(f"""
[pipeline]
name = "{name}"
circuit = "shop.sql"
runtime = "local"
workers = 2
[input]
kind = "kafka"
bootstrap = "{settings.brokers}"
topics = {{ orders = "{name}.orders", customers = "{name}.customers" }}
[output]
kind = "kafka"
bootstrap = "{settings.brokers}"
format = "upsert"
keys = {{ {keys} }}
[checkpoint]
interval_s = 0.5
[http]
port = 0
""")
    for table in ("orders", "customers"):
        ensure_topic(settings, f"{name}.{table}", 1)
    return folder / "pipeline.toml"


class Shop:
    """Sends rows that come, change and go."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings, self.chance, self.sent = settings, random.Random(5), {"orders": 0, "customers": 0}

    def send(self, count: int) -> None:
        for table, keys in (("orders", 60), ("customers", 8)):
            rows = [json.dumps(self._row(table, self.chance.randrange(keys))).encode() for _ in range(count)]
            send(self.settings, f"{self.settings.pipeline}.{table}", rows)
            self.sent[table] += count

    def _row(self, table: str, key: int) -> Any:
        if self.chance.random() < 0.3:
            return {"delete": {"id": key}}
        if table == "customers":
            return {"id": key, "city": self.chance.choice(["Bonn", "Ulm", None])}
        return {"id": key, "customer": self.chance.choice([None, *range(8)]), "amount": self.chance.randrange(9)}

    def wait(self, service: Service) -> None:
        for table, sent in self.sent.items():
            service.wait_until_processed(Position(table=table, partition=0, first=sent - 1, last=sent), 60)


def tables(settings: KafkaSettings, view: str) -> dict[Any, Any]:
    """What a consumer holds who keeps the newest value of each key."""
    held: dict[Any, Any] = {}
    steps: dict[Any, int] = {}
    for message in messages(settings, f"{settings.pipeline}.{view}"):
        key, step = json.loads(message.key()), int(dict(message.headers())["step"])
        key = tuple(key.values()) if isinstance(key, dict) else (key,)
        assert steps.get(key, -1) < step, "a key is told once in a step"
        steps[key] = step
        if message.value() is None:
            del held[key]  # there is one: a tombstone is told of a key that was there
        else:
            held[key] = json.loads(message.value())
    return held


def compare(settings: KafkaSettings, service: Service) -> None:
    for view, keys in KEYS.items():
        rows = service.read_view(view, 60).table.to_pylist()
        assert tables(settings, view) == {
            tuple(row[key] for key in keys): {name: value for name, value in row.items() if name != "weight"}
            for row in rows
        }, view


def test_the_newest_value_of_each_key_is_the_view(settings: KafkaSettings, tmp_path: Path) -> None:
    path = settle(settings, tmp_path)
    shop = Shop(settings)
    for point in POINTS:
        if point:
            process = Child(path, point, tmp_path / "out")
            try:
                while process.poll() is None:
                    shop.send(20)
                assert process.poll() == -signal.SIGKILL, (tmp_path / "out").read_text()[-2000:]
            finally:
                process.kill()
                process.wait()
    with Service(load_config(path, overrides=["http.enabled=false"], environment={})) as service:
        shop.send(30)
        shop.wait(service)
        compare(settings, service)
        for workers in (3, 1):
            service.rescale(workers)
            for _ in range(3):
                shop.send(10)
                shop.wait(service)
            compare(settings, service)
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": settings.brokers})
    resource = confluent_kafka.admin.ConfigResource("topic", f"{settings.pipeline}.best")
    assert admin.describe_configs([resource])[resource].result(30)["cleanup.policy"].value == "compact"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ('priced = "order_id", best = "customer"', "a view without a key: output.format=upsert view=cities"),
        (
            'priced = "city", best = "customer", cities = "city, kind"',
            "two rows of the view may have one key: view=priced",
        ),
        (
            'priced = "order", best = "customer", cities = "city, kind"',
            "no such column: output.keys names priced.order",
        ),
    ],
)
def test_views_that_are_no_tables_are_refused(settings: KafkaSettings, tmp_path: Path, keys: str, message: str) -> None:
    with pytest.raises(DbspError, match=message):
        Service(load_config(settle(settings, tmp_path, keys), environment={}))
