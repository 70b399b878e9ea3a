"""Topics that strangers write: Debezium's changes in JSON, Avro by Confluent's own serializer, JSON rows with more in them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import load_config
from dbsp.errors import ConfigError, DbspError
from dbsp.io.connectors.messages import MESSAGE_FORMATS
from dbsp.io.kafka import KafkaSettings
from dbsp.io.kafka.client import ensure_topic
from dbsp.io.kafka.messages import FORMATS
from dbsp.io.pushed import Position
from tests.io.registry import registry
from tests.kafka.topics import messages, send, weighted
from tests.spark.waiting import until

pytestmark = [pytest.mark.kafka]

CIRCUIT = """
import dbsp

orders = dbsp.table("orders", {"id": dbsp.INT64, "item": dbsp.STRING, "paid": dbsp.decimal(8, 2)}, primary_key="id")
items = dbsp.table("items", {"item": dbsp.STRING, "kind": dbsp.STRING}, primary_key="item")
visits = dbsp.table("visits", {"item": dbsp.STRING})
pipeline = dbsp.circuit("shop", {
    "paid": orders.join(items, on="item").group_by("kind").aggregate(orders=dbsp.count(), paid=dbsp.sum("paid")),
    "seen": visits.group_by("item").aggregate(visits=dbsp.count()),
})
"""
ITEM = {"type": "record", "name": "Item", "namespace": "shop", "fields": [
    {"name": "weight", "type": ["null", "double"], "default": None},
    {"name": "item", "type": "string"},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["FOOD", "TOY"]}},
]}  # fmt: skip


def settle(settings: KafkaSettings, folder: Path, more: str) -> Path:
    (folder / "circuit.py").write_text(CIRCUIT)
    name = settings.pipeline
    (folder / "pipeline.toml").write_text(f"""
[pipeline]
name = "{name}"
circuit = "circuit.py:pipeline"
runtime = "local"
workers = 2
[input]
kind = "kafka"
bootstrap = "{settings.brokers}"
topics = {{ orders = "{name}.orders", items = "{name}.items", visits = "{name}.visits" }}
formats = {{ orders = "debezium", items = "avro" }}
{more}
[output]
kind = "kafka"
bootstrap = "{settings.brokers}"
[checkpoint]
interval_s = 1000
[step]
failures_max = 0
[http]
enabled = false
""")
    for table in ("orders", "items", "visits"):
        ensure_topic(settings, f"{name}.{table}", 1)
    return folder / "pipeline.toml"


@contextmanager
def running(path: Path) -> Iterator[Service]:
    with Service(load_config(path, environment={})) as service:
        yield service


def wait(service: Service, table: str, offset: int) -> None:
    service.wait_until_processed(Position(table=table, partition=0, first=offset - 1, last=offset), 60)


def send_items(settings: KafkaSettings, url: str, rows: list[dict[str, Any]]) -> None:
    """By Confluent's client, which registers the schema."""
    topic = f"{settings.pipeline}.items"
    serializer = AvroSerializer(SchemaRegistryClient({"url": url}), json.dumps(ITEM))
    producer = confluent_kafka.Producer({"bootstrap.servers": settings.brokers})
    for row in rows:
        producer.produce(topic, serializer(row, SerializationContext(topic, MessageField.VALUE)))
    assert producer.flush(30) == 0


def change(op: str, before: Any, after: Any) -> bytes:
    def row(values: Any) -> Any:
        return None if values is None else dict(zip(("id", "item", "paid", "note"), values, strict=True))

    return json.dumps({"before": row(before), "after": row(after), "source": {"lsn": 1}, "op": op, "ts_ms": 5}).encode()


def view(service: Service, name: str) -> set[tuple[Any, ...]]:
    return {tuple(row.values()) for row in service.read_view(name, 60).table.to_pylist()}


def test_three_formats_and_a_kill_between(settings: KafkaSettings, tmp_path: Path) -> None:
    name = settings.pipeline
    with registry() as held:
        path = settle(settings, tmp_path, f'registry = "{held.url}"\nunknown_columns = "ignore"\ndecimals = "text"\n')
        send_items(
            settings, held.url, [{"item": "tea", "kind": "FOOD", "weight": 0.5}, {"item": "kite", "kind": "TOY"}]
        )
        send(settings, f"{name}.items", [b"\0\0\0", None, None], keys=[None, None, b"kite"])
        send(settings, f"{name}.orders", [
            change("r", None, (1, "tea", "2.50", "x")),
            change("c", None, (2, "kite", "30.00", None)),
            change("u", None, (1, "tea", "3.50", "x")),
            change("u", (2, "kite", "30.00", None), (3, "kite", "31.00", None)),
            change("u", None, (4, "tea", "1.005", None)),
            None,
        ])  # fmt: skip
        send(
            settings,
            f"{name}.visits",
            [b'{"item": "tea", "page": {"insert": 1}}', b'{"insert": {"item": "tea", "at": 5}}', b"[]"],
        )
        with running(path) as service:
            for table, offset in (("items", 5), ("orders", 6), ("visits", 3)):
                wait(service, table, offset)
            assert [tuple(map(str, row)) for row in view(service, "paid")] == [("FOOD", "1", "3.50", "1")]
            assert view(service, "seen") == {("tea", 2, 1)}
        send(
            settings,
            f"{name}.orders",
            [change("d", (3, None, None, None), None), change("c", None, (5, "tea", "1.00", ""))],
        )
        with running(path) as service:
            wait(service, "orders", 8)
            assert [tuple(map(str, row)) for row in view(service, "paid")] == [("FOOD", "2", "4.50", "1")]
    dead = {(row[1], row[3]): row[4] for _, (row, _) in map(weighted, messages(settings, f"{name}.dead_letters"))}
    assert dead == {
        ("items", 2): "not Avro with the number of its schema in front",
        ("items", 3): "a message without a value and without a key",
        ("orders", 4): "column paid: not a valid decimal128(8, 2): 1.005",
        ("visits", 2): "a message without rows",
    }


def test_a_registry_that_is_away_is_waited_for(settings: KafkaSettings, tmp_path: Path) -> None:
    """Its table waits by name and the others go on; when it is back nothing was lost, and no step was rolled back."""
    with registry() as held:
        path = settle(settings, tmp_path, f'registry = "{held.url}"\ndecimals = "text"\n')
        send_items(settings, held.url, [{"item": "tea", "kind": "FOOD"}])
    with running(path) as service:
        until(service.built.parts.inputs.waits, "the look for the registry")
        assert service.built.parts.inputs.waits()[0].table == "items"
        send(settings, f"{settings.pipeline}.orders", [change("c", None, (1, "tea", "2.50", None))])
        wait(service, "orders", 1)

        def inputs() -> dict[str, Any]:
            return {each["table"]: each for each in service.status()["inputs"]}

        until(lambda: inputs()["items"]["away"], "the status to name what is away")
        shown = inputs()
        assert f"the schema registry does not answer: registry={held.url}" in shown["items"]["away"]
        assert shown["items"]["place"] == f"topic={settings.pipeline}.items"
        assert shown["orders"]["away"] is None
        assert service.snapshot.processed.get(("items", 0), 0) == 0
        with registry(held, port=int(held.url.rpartition(":")[2])):
            wait(service, "items", 1)
            assert [tuple(map(str, row)) for row in view(service, "paid")] == [("FOOD", "1", "2.50", "1")]
        assert service.snapshot.rollbacks == 0


def away_of(service: Service, table: str) -> str | None:
    """Why a table's input waits, as the status has it."""
    (found,) = [each["away"] for each in service.status()["inputs"] if each["table"] == table]
    return found


def test_decimals_without_a_schema_ask_what_they_are(settings: KafkaSettings, tmp_path: Path) -> None:
    """Their table waits, and the others go on; `skip` drops one, and a start with the setting explains all that follow."""
    name = settings.pipeline
    path = settle(settings, tmp_path, 'registry = "http://127.0.0.1:9"\n')
    send(settings, f"{name}.orders", [None, change("c", None, (1, "tea", "2.50", None))])
    with running(path) as service:
        until(service.built.parts.inputs.waits, "the wait for a decision")  # type: ignore[attr-defined]
        until(lambda: service.snapshot.processed.get(("orders", 0)) == 1, "the step without the message")
        until(lambda: away_of(service, "orders"), "the status that names it")
        shown = away_of(service, "orders") or ""
        assert "messages without a schema do not say what decimal128(8, 2) is" in shown
        assert f"table=orders topic={name}.orders partition=0 offset=1" in shown
        assert "`coordinator skip`" in shown
        assert '"item": "tea"' in shown
        for _ in range(2):
            send(settings, f"{name}.visits", [b'{"item": "tea"}'])
        wait(service, "visits", 2)
        assert service.status()["halt"] is None
        found = service.skip(timeout_s=60)
        assert [(row.table, row.partition, row.offset) for row in found.dropped] == [("orders", 0, 1)]
        assert service.snapshot.processed["orders", 0] == 2
        send(settings, f"{name}.orders", [change("c", None, (2, "tea", "3.50", None))])
        until(service.built.parts.inputs.waits, "the wait for the next one")  # type: ignore[attr-defined]
        send(settings, f"{name}.visits", [b'{"item": "kite"}'])
        wait(service, "visits", 3)
        assert service.snapshot.processed["orders", 0] == 2
    path.write_text(path.read_text().replace("[output]", 'decimals = "text"\n[output]'))
    with running(path) as service:
        wait(service, "orders", 3)
        assert view(service, "seen") == {("tea", 2, 1), ("kite", 1, 1)}
    dead = {(row[1], row[3]): row[4] for _, (row, _) in map(weighted, messages(settings, f"{name}.dead_letters"))}
    assert set(dead) == {("orders", 1)}
    assert "messages without a schema do not say what decimal128(8, 2) is" in dead["orders", 1]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("", "Avro needs its schemas"),
        ('registry = "http://x"\nunknown_columns = "keep"', "unknown_columns"),
        ('registry = "http://x"\ndecimals = "double"', "decimals"),
        ('registry = "http://x"\nformat = "protobuf"', "protobuf"),
    ],
)
def test_wrong_settings_are_refused(settings: KafkaSettings, tmp_path: Path, more: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(settle(settings, tmp_path, more), environment={})


def test_the_settings_know_every_format() -> None:
    assert MESSAGE_FORMATS == FORMATS


def test_a_format_for_a_table_that_is_not_there(settings: KafkaSettings, tmp_path: Path) -> None:
    path = settle(settings, tmp_path, 'registry = "http://x"')
    path.write_text(path.read_text().replace('items = "avro"', 'item = "avro"'))
    with pytest.raises(DbspError, match=r"input.formats names item"):
        Service(load_config(path, environment={}))
