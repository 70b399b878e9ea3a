"""Dead letters of topics, replayed after a fix: from the letter's text, or from the message while the topic has it."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from dbsp.coordinator.build import build
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import load_config
from dbsp.errors import DbspError
from dbsp.io.kafka import KafkaSettings
from dbsp.io.kafka.client import Trimmer, ensure_topic
from dbsp.logs.step_commands import REPLAY
from tests.coordinator.shop import answering
from tests.coordinator.test_letter_steps import CIRCUIT
from tests.coordinator.test_letters import counts, killed_at, letters, replay
from tests.kafka.topics import messages, send, weighted
from tests.pace import rotating
from tests.spark.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.crash, pytest.mark.timeout(300)]

IGNORE = "input.unknown_columns=ignore"
DEBEZIUM = "input.format=debezium"
NOTE = {"note": "x"}


def write(settings: KafkaSettings, folder: Path) -> None:
    (folder / "circuit.py").write_text(CIRCUIT)
    (folder / "pipeline.toml").write_text(f"""
[pipeline]
name = "{settings.pipeline}"
circuit = "circuit.py:pipeline"
runtime = "local"
workers = 2
[input]
kind = "kafka"
bootstrap = "{settings.brokers}"
topics = {{ orders = "{settings.pipeline}.orders", visits = "{settings.pipeline}.visits" }}
[output]
kind = "kafka"
bootstrap = "{settings.brokers}"
[checkpoint]
interval_s = 3600
[http]
port = 0
""")
    for table in ("orders", "visits"):
        ensure_topic(settings, topic(settings, table), 2)


def topic(settings: KafkaSettings, table: str) -> str:
    return f"{settings.pipeline}.{table}"


@contextmanager
def running(folder: Path, *overrides: str, evolve: bool = False) -> Iterator[tuple[Service, httpx.Client]]:
    config = load_config(folder / "pipeline.toml", overrides=overrides, environment={})
    service = Service(config, build(config, evolve=evolve))
    try:
        service.start(timeout_s=60)
        with answering(service) as client:
            yield service, client
    finally:
        service.stop(now=True, quiet=True)


def sent(settings: KafkaSettings, table: str, *contents: Any, partition: int = 0) -> None:
    """Send messages; a list is one message with several rows."""
    values = ["\n".join(map(json.dumps, each)) if isinstance(each, list) else json.dumps(each) for each in contents]
    send(settings, topic(settings, table), [value.encode() for value in values], partition=partition)


def rows_of(client: httpx.Client, view: str) -> dict[str, tuple[Any, ...]]:
    return {row.pop("customer"): tuple(row.values()) for row in client.get(f"/v1/views/{view}").json()["rows"]}


def written(settings: KafkaSettings, view: str) -> dict[tuple[Any, ...], int]:
    """The sum of all changes in a view's topic."""
    total: Counter[tuple[Any, ...]] = Counter()
    for _, (row, weight) in map(weighted, messages(settings, topic(settings, view))):
        total[row] += weight
    return {row: weight for row, weight in total.items() if weight}


def test_letters_of_topics_are_replayed_once(settings: KafkaSettings, tmp_path: Path) -> None:
    """Rows of a message of their own and of several rows; the topics stay as they are, and the output has each change once."""
    write(settings, tmp_path)
    visit = {"customer": "a", "pages": 2}
    with running(tmp_path) as (service, client):
        sent(settings, "visits", visit, {**visit, **NOTE}, [visit, {**visit, **NOTE}, {**visit, **NOTE}])
        sent(settings, "visits", {**visit, "customer": "b", **NOTE}, "no row", partition=1)
        until(lambda: len(letters(client)) == 4, "all are read")
        assert counts(replay(client)) == (0, 4, 0, 0)
        service.stop()
    with running(tmp_path, IGNORE) as (service, client):
        service.rescale(3)
        found = replay(client)
        assert (counts(found), found["processed"]) == ((3, 1, 0, 0), True)
        assert rows_of(client, "seen") == {"a": (5, 10), "b": (1, 2)}
        assert counts(replay(client)) == (0, 1, 3, 0), "two equal rows of a message are one letter"
    with running(tmp_path, IGNORE) as (service, client):
        assert counts(replay(client)) == (0, 1, 3, 0)
        assert rows_of(client, "seen") == {"a": (5, 10), "b": (1, 2)}
        ends = {place[1]: end for place, end in service.built.parts.inputs.ends().items() if place[0] == "visits"}
    assert ends == {0: 3, 1: 2}, "nothing was sent to the topic"
    assert written(settings, "seen") == {("a", 5, 10): 1, ("b", 1, 2): 1}


def test_a_message_is_read_again_in_the_format_of_today(settings: KafkaSettings, tmp_path: Path) -> None:
    """Changes of a database were taken for plain rows. One of them has left the topic before the replay."""
    write(settings, tmp_path)
    rows = [{"id": number, "customer": "a", "amount": number} for number in range(4)]
    events = [{"before": None, "after": row, "op": "c"} for row in rows]
    changed = {"before": rows[3], "after": {**rows[3], "amount": 100}, "op": "u"}
    with running(tmp_path) as (service, client):
        sent(settings, "orders", *events, changed)
        until(lambda: len(letters(client)) == 5, "all are read")
        service.stop()
    Trimmer(settings).delete_below(topic(settings, "orders"), 0, 1)
    with running(tmp_path, DEBEZIUM) as (_, client):
        found = replay(client)
        assert counts(found) == (4, 0, 0, 1)
        (why,) = found["not_replayable"]
        assert why.startswith("its message cannot be read again (input offsets are missing from Kafka")
        assert why.endswith(
            f"and its text is not enough: send a corrected message to topic {topic(settings, 'orders')}"
        )
        assert rows_of(client, "per_customer") == {"a": (3, 1 + 2 + 100)}


def test_the_text_of_a_row_outlives_its_message(settings: KafkaSettings, tmp_path: Path) -> None:
    write(settings, tmp_path)
    long = {"customer": "l", "pages": 1, "note": "x" * 20_000}
    with running(tmp_path) as (service, client):
        sent(settings, "visits", {"customer": "a", "pages": 2, **NOTE}, long, [long, {"customer": "c", "pages": 3}])
        until(lambda: len(letters(client)) == 3, "all are read")
        service.stop()
    with running(tmp_path, IGNORE) as (service, client):
        found = replay(client, dry_run=True)
        assert counts(found) == (2, 0, 0, 1), "a long row alone in its message is read there; of two nobody knows which"
        assert next(iter(found["not_replayable"])).startswith(
            "its message has several rows, and the letter does not say"
        )
        Trimmer(settings).delete_below(topic(settings, "visits"), 0, 3)
        found = replay(client)
        assert counts(found) == (1, 0, 0, 2)
        assert rows_of(client, "seen") == {"a": (1, 2), "c": (1, 3)}


def test_a_changed_circuit_that_read_the_topic_again_has_the_rows(settings: KafkaSettings, tmp_path: Path) -> None:
    """A letter of before the change would be counted twice in the new view; one that was replayed is in both."""
    write(settings, tmp_path)
    visit = {"customer": "a", "pages": 2, **NOTE}
    with running(tmp_path) as (service, client):
        sent(settings, "visits", visit, {**visit, "customer": "b"})
        until(lambda: len(letters(client)) == 2, "all are read")
        service.stop()
    with running(tmp_path, IGNORE) as (service, client):
        assert counts(replay(client, last="0-0")) == (1, 0, 0, 0)
        service.stop()
    views = CIRCUIT.replace('"seen": seen', '"seen": seen, "all": visits.aggregate(visits=count())')
    (tmp_path / "after.py").write_text(views)
    after = "pipeline.circuit=after.py:pipeline"
    with running(tmp_path, IGNORE, after, evolve=True) as (_, client):
        until(lambda: client.get("/v1/views/all").json()["rows"], "the new view is filled")
        assert client.get("/v1/views/all").json()["rows"] == [{"visits": 2}]
        found = replay(client)
        assert counts(found) == (0, 0, 1, 1)
        assert next(iter(found["not_replayable"])).startswith(
            "a changed circuit has read its table once more, in step "
        )
        assert rows_of(client, "seen") == {"a": (1, 2)}
        sent(settings, "visits", {**visit, "pages": "x"})
        until(lambda: len(letters(client)) == 3, "it is read")
        assert counts(replay(client)) == (0, 1, 1, 1), "later letters are looked at"


def test_a_coordinator_that_was_replaced_replays_no_letter_again(settings: KafkaSettings, tmp_path: Path) -> None:
    """It comes back with the ledger and the letters of before, while another one has replayed them."""
    write(settings, tmp_path)
    visit = {"customer": "a", "pages": 2, **NOTE}
    kept = ("control", "letters")
    with running(tmp_path) as (service, client):
        sent(settings, "visits", visit)
        until(lambda: len(letters(client)) == 1, "it is read")
        service.stop()
    for name in kept:
        shutil.copytree(tmp_path / "data" / name, tmp_path / "before" / name)
    with running(tmp_path, IGNORE) as (service, client):
        assert counts(replay(client)) == (1, 0, 0, 0)
        service.stop()
    for name in kept:
        shutil.rmtree(tmp_path / "data" / name)
        shutil.copytree(tmp_path / "before" / name, tmp_path / "data" / name)
    with running(tmp_path, IGNORE) as (_, client):
        found = replay(client)
        assert counts(found) == (0, 0, 0, 1)
        assert next(iter(found["not_replayable"])).startswith("another coordinator has run the pipeline since")
        assert rows_of(client, "seen") == {"a": (1, 2)}


POINTS = ["steps.append:before:1", "steps.append:after:1", "runtime.run_step:after:1", "letters.keep:after:1"]


@pytest.mark.parametrize("point", rotating(POINTS, 2))
def test_killed_around_a_replay_of_a_topic(settings: KafkaSettings, tmp_path: Path, point: str) -> None:
    write(settings, tmp_path)
    with running(tmp_path) as (service, client):
        sent(settings, "visits", *({"customer": "a", "pages": number, **NOTE} for number in range(5)))
        until(lambda: len(letters(client)) == 5, "all are read")
        service.stop()
    text = (tmp_path / "pipeline.toml").read_text()
    (tmp_path / "pipeline.toml").write_text(text.replace("[input]\n", '[input]\nunknown_columns = "ignore"\n'))
    with killed_at(tmp_path, point) as (client, process):
        with pytest.raises(DbspError):
            client.replay_dead_letters(wait_s=60)
        until(lambda: process.poll() is not None, "it is dead")
    with running(tmp_path) as (service, client):
        again = counts(replay(client))
        assert again[0] + again[2] == 5
        assert rows_of(client, "seen") == {"a": (5, 10)}
        commands = [command for record in service.built.parts.steps.read(1) for command in record.commands]
        assert sum(command.startswith(REPLAY) for command in commands) == 1
    assert written(settings, "seen") == {("a", 5, 10): 1}
