"""Topics copied into the embedded input: every message once, in its order, whoever is killed; topics keep nothing for it."""

from __future__ import annotations

import json
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest

from dbsp.algebra.table import Table
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import load_config
from dbsp.errors import ConfigError, OverloadedError, PositionError, UnavailableError
from dbsp.io.embedded_input import EmbeddedInputLog
from dbsp.io.kafka import KafkaSettings, KafkaSource
from dbsp.io.kafka.client import Trimmer, ensure_topic
from dbsp.io.kafka.copying import TopicCopy
from dbsp.io.pushed import Incoming, Position, Producer
from dbsp.logs import Range
from dbsp.zset.schema import INT64, STRING, Schema, decimal
from tests.coordinator.metric_samples import samples
from tests.crash.coordinator_child import Child
from tests.kafka.topics import send

pytestmark = [pytest.mark.kafka]

CIRCUIT = """
create table orders (id bigint primary key, item varchar, amount bigint);
create table items (item varchar primary key, kind varchar);
create materialized view held as select * from orders;
create materialized view paid as
  select kind, count(*) as orders, sum(amount) as amount from orders join items using (item) group by kind;
"""
PARTITIONS = 3


def settle(settings: KafkaSettings, folder: Path, more: str = "", topics: Sequence[str] = ("orders",)) -> Path:
    (folder / "shop.sql").write_text(CIRCUIT)
    name = settings.pipeline
    named = ", ".join(f'{topic} = "{name}.{topic}"' for topic in topics)
    (folder / "pipeline.toml").write_text(f"""
[pipeline]
name = "{name}"
circuit = "shop.sql"
runtime = "local"
workers = 2
[input]
bootstrap = "{settings.brokers}"
topics = {{ {named} }}
format = "upsert"
partitions = 2
{more}
[checkpoint]
interval_s = 0.3
[http]
port = 0
""")
    return folder / "pipeline.toml"


class Orders:
    """Sends orders that come, change and go, and knows which there are."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings, self._chance = settings, random.Random(3)
        self.held: dict[int, tuple[Any, ...]] = {}
        self.sent = 0

    def send(self, count: int, commit: bool | None = None) -> None:
        for partition in range(PARTITIONS):
            ids = [self._chance.randrange(20) * PARTITIONS + partition for _ in range(count)]
            rows = [self._row(key) for key in ids]
            values = [None if row is None else json.dumps(row).encode() for row in rows]
            send(
                self._settings, f"{self._settings.pipeline}.orders", values, keys=[b"%d" % key for key in ids],
                partition=partition, commit=commit,
            )  # fmt: skip
            if commit is not False:
                self.sent += count
                for key, row in zip(ids, rows, strict=True):
                    self.held.pop(key, None)
                    if row is not None:
                        self.held[key] = (*row.values(), 1)

    def _row(self, key: int) -> dict[str, Any] | None:
        if self._chance.random() < 0.3:
            return None
        return {"id": key, "item": self._chance.choice(["tea", "kite"]), "amount": self._chance.randrange(9)}


def waiting(service: Service, fits: Callable[[], bool]) -> None:
    """Until it is so, asked after each step and each round of the copies."""
    pause = threading.Event()
    for _ in range(1200):
        if fits():
            return
        pause.wait(0.05)
    raise AssertionError(service.status())


def rows_in(service: Service, table: str) -> int:
    ends = service.built.parts.inputs.ends()
    return sum(end for (name, _), end in ends.items() if name == table)


def view(service: Service, name: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in service.read_view(name, 60).table.to_pylist())


@pytest.mark.crash
def test_every_message_once_whoever_is_killed(settings: KafkaSettings, tmp_path: Path) -> None:
    """A compacted topic of three partitions, with transactions that are committed and aborted; what was copied is deleted."""
    topic = f"{settings.pipeline}.orders"
    ensure_topic(settings, topic, PARTITIONS, {"cleanup.policy": "compact,delete"})
    path = settle(settings, tmp_path)
    orders, chance = Orders(settings), random.Random(4)
    for point in (
        "inputs.append_many:before:3",
        "inputs.append_many:after:2",
        "runtime.run_step:after:3",
        "inputs.append_many:after:1",
    ):
        process = Child(path, point, tmp_path / "out")
        try:
            while process.poll() is None:
                orders.send(7, commit=chance.choice([None, True, False]))
            assert process.poll() == -signal.SIGKILL, (tmp_path / "out").read_text()[-2000:]
        finally:
            process.kill()
            process.wait()
    with Service(load_config(path, environment={})) as service:
        service.push("items", pa.table({"item": ["tea", "kite"], "kind": ["food", "toy"]}))
        waiting(service, lambda: rows_in(service, "orders") == orders.sent)
        waiting(service, lambda: view(service, "held") == sorted(orders.held.values()))
        service.rescale(3)
        waiting(service, lambda: service.status()["copies"][0]["behind_messages"] == 0)
    for partition in range(PARTITIONS):
        Trimmer(settings).delete_below(topic, partition, -1)
    with Service(load_config(path, environment={})) as service:
        orders.send(5)
        waiting(service, lambda: view(service, "held") == sorted(orders.held.values()))
        assert rows_in(service, "orders") == orders.sent
        assert {row[0] for row in view(service, "paid")} == {"food", "toy"}
        (copy,) = service.status()["copies"]
        assert copy == {
            "table": "orders", "topic": topic, "messages": 5 * PARTITIONS, "behind_messages": 0, "error": None,
            "since_s": None,
        }  # fmt: skip
        assert (
            'dbsp_copy_failing{table="orders"} 0.0'
            in service.metrics.text(service.snapshot, copies=service.copies.status).decode()
        )


def test_messages_that_went_before_they_were_copied_are_named(settings: KafkaSettings, tmp_path: Path) -> None:
    """The pipeline goes on without them only when somebody says so, by an empty push in the name of the copy."""
    topic = f"{settings.pipeline}.orders"
    ensure_topic(settings, topic, PARTITIONS)
    path = settle(settings, tmp_path)
    orders = Orders(settings)
    orders.send(5)
    with Service(load_config(path, environment={})) as service:
        waiting(service, lambda: rows_in(service, "orders") == orders.sent)
    before = orders.sent
    orders.send(4)
    Trimmer(settings).delete_below(topic, 1, 7)
    with Service(load_config(path, environment={})) as service:
        waiting(service, lambda: service.status()["copies"][0]["error"] is not None)
        error = service.status()["copies"][0]["error"]
        assert f"input offsets are missing from Kafka: topic={topic} partition=1 first=5 kept=7..9" in error
        service.push("items", pa.table({"item": ["tea"], "kind": ["food"]}))
        assert rows_in(service, "orders") == before
        service.push(
            "orders", pa.table({"id": [], "item": [], "amount": []}, schema=pa.schema(ORDERS.schema.to_arrow())),
            producer=Producer(id=f"kafka:{topic}:1", sequence=6),
        )  # fmt: skip
        waiting(service, lambda: rows_in(service, "orders") == orders.sent - 2)
        waiting(service, lambda: service.status()["copies"][0]["error"] is None)


def test_a_topic_that_is_not_there_and_brokers_that_are_away(settings: KafkaSettings, tmp_path: Path) -> None:
    """A wrong name is refused; brokers may come later, and rows of other tables are taken meanwhile."""
    path = settle(settings, tmp_path)
    service = Service(load_config(path, environment={}))
    with pytest.raises(ConfigError, match="no such topic: topic="):
        service.start()
    service.stop(quiet=True)
    ensure_topic(settings, f"{settings.pipeline}.orders", 1)
    away = ["input.bootstrap=127.0.0.1:9"]
    with Service(load_config(path, overrides=away, environment={})) as service:
        service.wait_until_processed(service.push("items", pa.table({"item": ["tea"], "kind": ["food"]})), 60)
        assert "Kafka does not answer" in service.status()["copies"][0]["error"]


def test_partitions_that_are_added_are_met(settings: KafkaSettings, tmp_path: Path) -> None:
    topic = f"{settings.pipeline}.orders"
    ensure_topic(settings, topic, 1)
    with Service(load_config(settle(settings, tmp_path), environment={})) as service:
        ensure_topic(settings, topic, PARTITIONS)
        orders = Orders(settings)
        orders.send(3)
        waiting(service, lambda: view(service, "held") == sorted(orders.held.values()))


CLICKS = """
create table clicks (id bigint, ts timestamp) with (watermark = 'ts 10 seconds');
create materialized view counted as select count(*) as clicks from clicks;
"""


@pytest.mark.parametrize("kind", ["embedded", "kafka"])
def test_a_backlog_of_uneven_partitions_has_no_late_rows(settings: KafkaSettings, tmp_path: Path, kind: str) -> None:
    """A topic that is copied, into an input of one partition, and one that is read: one partition is fast where another is slow.

    A third one is empty, and holds the waterline back until it is idle. The messages are an hour old, so that long they took.
    """
    sent_s, sent_bytes = time.time() - 3600, 0
    topic, ends = f"{settings.pipeline}.clicks", [*range(2000)]
    ensure_topic(settings, topic, PARTITIONS)
    times = [sorted(ends + 2 * ends[:1000]), sorted(ends + 2 * ends[1000:])]
    for partition, seconds in enumerate(times):
        rows = [
            {"id": second, "ts": f"2024-01-01T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"}
            for second in seconds
        ]
        values = [json.dumps(row).encode() for row in rows]
        send(settings, topic, values, partition=partition, sent_s=sent_s)
        sent_bytes += sum(map(len, values))
    path = settle(settings, tmp_path, f'kind = "{kind}"\nidle_s = 1', ["clicks"])
    path.write_text(path.read_text().replace("partitions = 2", "partitions = 1").replace('"upsert"', '"json"'))
    (tmp_path / "shop.sql").write_text(CLICKS)
    with Service(load_config(path, overrides=["step.max_rows_per_step=700"], environment={})) as service:
        waiting(service, lambda: service.snapshot.rows_in + service.snapshot.dead >= 8000)
        assert view(service, "counted") == [(8000, 1)]
        assert service.snapshot.dead == 0
        assert service.snapshot.step > 8, "it was cut"
        waiting(service, lambda: 2 in service.status()["waterlines"][0]["idle"])
        waiting(service, lambda: service.status()["waterlines"][0]["waterline"] == "2024-01-01T00:33:09.000000")
        assert service.status()["waterlines"][0]["partitions"] == PARTITIONS
        found = samples(service.metrics.text(service.snapshot).decode())
        assert (found["dbsp_table_bytes_total", ("clicks",)] == sent_bytes) == (kind == "kafka")
        times = [found[f"dbsp_arrival_to_output_seconds_{name}", ("clicks",)] for name in ("count", "sum")]
        assert times[0] > 1
        assert 3600 <= times[1] / times[0] < 3600 + 120


@pytest.mark.parametrize(
    ("more", "topics", "message"),
    [
        ("", ("order",), "no such table: input.topics names order"),
        ('formats = { items = "json" }', ("orders",), "a format of a table without a topic: input.formats names items"),
        ('kind = "files"\ndirectory = "x"', ("orders",), "an input of files has no topics"),
    ],
)
def test_wrong_settings_are_refused(
    settings: KafkaSettings, tmp_path: Path, more: str, topics: Sequence[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Service(load_config(settle(settings, tmp_path, more, topics), environment={}))


def test_topics_need_brokers(settings: KafkaSettings, tmp_path: Path) -> None:
    path = settle(settings, tmp_path)
    path.write_text(path.read_text().replace("bootstrap", "# bootstrap"))
    with pytest.raises(ConfigError, match="topics need the addresses of brokers"):
        load_config(path, environment={})


def test_skip_makes_a_message_of_a_copied_topic_a_dead_letter(settings: KafkaSettings, tmp_path: Path) -> None:
    topic = f"{settings.pipeline}.orders"
    ensure_topic(settings, topic, 1)
    path = settle(settings, tmp_path)
    path.write_text(path.read_text().replace('"upsert"', '"debezium"'))
    (tmp_path / "shop.sql").write_text("""
create table orders (id bigint, price decimal(8, 2));
create materialized view held as select * from orders;
""")
    rows = [{"id": number, "price": "2.50" if number == 1 else None} for number in range(3)]
    send(settings, topic, [json.dumps({"op": "c", "before": None, "after": row}).encode() for row in rows])
    with Service(load_config(path, environment={})) as service:
        waiting(service, lambda: service.status()["copies"][0]["error"] is not None)
        error = service.status()["copies"][0]["error"]
        assert f"topic={topic} partition=0 offset=1" in error
        assert "`coordinator skip`" in error
        (alarm,) = [each for each in service.watch.look().alarms if each.kind == "input-waits"]
        assert "offset=1" in alarm.text
        found = service.skip(timeout_s=60)
        assert [(row.table, row.partition, row.offset) for row in found.dropped] == [("orders", 0, 1)]
        waiting(service, lambda: [row[0] for row in view(service, "held")] == [0, 2])
        waiting(service, lambda: service.status()["copies"][0]["error"] is None)
        assert service.status()["dead_letters"] == 1
        with pytest.raises(ConfigError, match="nothing to skip"):
            service.skip(timeout_s=60)


# ---- copies that fail anywhere, and two at once: by a topic and a log that are told when to fail ----

ORDERS = Table(name="orders", schema=Schema.of({"id": INT64, "item": STRING, "amount": INT64}), primary_key=("id",))


class Topic:
    """Two partitions in memory, with gaps between offsets."""

    def __init__(self, chance: random.Random) -> None:
        self.messages: list[list[Any]] = [[], []]
        self._chance, self.ends = chance, [0, 0]

    def grow(self) -> None:
        partition = self._chance.randrange(2)
        offset = self.ends[partition] + self._chance.choice([0, 0, 2])
        self.ends[partition] = offset + 1 + self._chance.choice([0, 0, 1])
        row = {"id": partition, "amount": offset}
        value = self._chance.choice([json.dumps(row), json.dumps([row, row]), "no row"]).encode()
        self.messages[partition].append(
            confluent_kafka.Message(topic="orders", partition=partition, offset=offset, key=None, value=value)
        )


class Following:
    """A follower of it, that may fail."""

    def __init__(self, topic: Topic, chance: random.Random) -> None:
        self._topic, self._chance = topic, chance
        self.close()

    def partitions(self) -> int:
        self._due = False
        return 2

    def is_due(self) -> bool:
        return self._due or self._chance.random() < 0.1

    def follow(self, positions: dict[int, int | None]) -> None:
        self._next |= {partition: position or 0 for partition, position in positions.items()}

    def take(self, wait_s: float) -> dict[int, list[Any]]:
        if self._chance.random() < 0.1:
            raise UnavailableError("Kafka does not answer")
        found = {}
        for partition, first in self._next.items():
            left = [each for each in self._topic.messages[partition] if each.offset() >= first]
            some = left[: self._chance.randrange(4)]
            if some:
                found[partition] = some
                self._next[partition] = some[-1].offset() + 1
        return found

    @property
    def next(self) -> dict[int, int]:
        """Behind the gap, if there is one, where all was taken."""
        left = {p for p, first in self._next.items() if any(m.offset() >= first for m in self._topic.messages[p])}
        return {p: first if p in left else self._topic.ends[p] for p, first in self._next.items()}

    def ends(self) -> dict[int, int]:
        return {partition: self._topic.ends[partition] for partition in self._next}

    def behind(self) -> int:
        return 0

    def close(self) -> None:
        self._next: dict[int, int] = {}
        self._due = True


class Pushing:
    """The log, that may be full, or fail before or after it has appended."""

    def __init__(self, log: EmbeddedInputLog, chance: random.Random) -> None:
        self._log, self._chance = log, chance
        self.overtaken = 0

    def push_many(self, incoming: Sequence[Incoming]) -> list[Position]:
        fate = self._chance.random()
        if fate < 0.1:
            raise OverloadedError("too many rows wait")
        if fate < 0.2:
            raise UnavailableError("failed before")
        try:
            found = self._log.append_many(incoming)
        except PositionError:
            self.overtaken += 1
            raise
        if fate < 0.3:
            raise UnavailableError("failed after")
        return found

    def last_sequence(self, table: str, producer: str) -> int | None:
        return self._log.last_sequence(table, producer)


class NoWait(threading.Event):
    """Nobody has to wait for room."""

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set()


def test_two_copies_of_a_topic_that_fail_anywhere_copy_it_once(tmp_path: Path) -> None:
    overtaken = 0
    for seed in range(12):
        chance = random.Random(seed)
        topic = Topic(chance)
        log = EmbeddedInputLog(tmp_path / str(seed), [ORDERS], create=True)
        pushing = Pushing(log, chance)
        source = KafkaSource(table=ORDERS, topic="orders", format="json")
        notes: list[str] = []
        copies = [
            TopicCopy(
                source,
                Following(topic, chance),
                log,
                pushing,
                lambda kind, _, notes=notes: notes.append(kind),
                NoWait(),
            )  # type: ignore[arg-type]
            for _ in range(2)
        ]
        for _ in range(150):
            for _ in range(chance.randrange(3)):
                topic.grow()
            chance.choice(copies).round()
        for _ in range(1000):
            copies[0].round()
        for partition, messages in enumerate(topic.messages):
            wanted = [row for message in messages for row in rows_of(message)]
            (span,) = log.read(Range(table="orders", partition=partition, first=0, last=len(wanted)), 0)
            good = [row[2] for row, _ in span.batch.to_rows()]
            assert good == [row for row in wanted if row is not None], (seed, partition)
            assert log.ends()["orders", partition] == len(wanted)
        assert {"copy-failed", "copy-works"} <= set(notes)
        overtaken += pushing.overtaken
        log.close()
    assert overtaken > 20, "one of the two often knew less than the log"


PRICES = Table(name="orders", schema=Schema.of({"id": INT64, "price": decimal(8, 2)}), primary_key=())


class Changing(Topic):
    """Messages of Debezium: some without a price, some with one that no setting explains, some that are none."""

    KINDS = ("priced", "plain", "plain", "plain", "wrong")

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self.kinds: list[list[str]] = [[], []]

    def grow(self) -> None:
        partition, kind = self._chance.randrange(2), self._chance.choice(self.KINDS)
        offset = self.ends[partition]
        self.ends[partition] += 1
        row = {"id": offset, "price": "2.50" if kind == "priced" else None}
        value = b"{" if kind == "wrong" else json.dumps({"op": "c", "before": None, "after": row}).encode()
        self.kinds[partition].append(kind)
        self.messages[partition].append(
            confluent_kafka.Message(topic="orders", partition=partition, offset=offset, key=None, value=value)
        )


@pytest.mark.parametrize("skips", [True, False])
def test_a_message_that_no_setting_explains_stops_its_partition_until_it_is_skipped(
    tmp_path: Path, skips: bool
) -> None:
    """The copies fail anywhere meanwhile, and are begun anew, as after a crash; each message comes once, in its order."""
    stopped = 0
    for seed in range(4):
        chance = random.Random(seed)
        topic, notes = Changing(chance), list[tuple[str, Any]]()
        log = EmbeddedInputLog(tmp_path / str(seed), [PRICES], create=True)
        source = KafkaSource(table=PRICES, topic="orders", format="debezium")

        def begun() -> TopicCopy:
            note = lambda kind, fields: notes.append((kind, fields))  # noqa: B023, E731 - used up within the loop
            following, pushing = Following(topic, chance), Pushing(log, chance)  # noqa: B023 - as above
            return TopicCopy(source, following, log, pushing, note, NoWait())  # type: ignore[arg-type]  # noqa: B023

        copy = begun()
        for number in range(900):
            if number < 150:
                topic.grow()
                copy = begun() if chance.random() < 0.05 else copy
            copy.round()
            if skips and copy.refused and chance.random() < 0.4:
                stopped += 1
                for row in copy.skip_refused():
                    assert topic.kinds[row.partition][row.offset] == "priced"
                    assert f"topic=orders partition={row.partition} offset={row.offset}" in row.reason
                    assert '"price": "2.50"' in row.payload
        for partition, kinds in enumerate(topic.kinds):
            end = log.ends()["orders", partition]
            assert end == (len(kinds) if skips else kinds.index("priced")), (seed, partition, copy.shown["error"])
            spans = log.read(Range(table="orders", partition=partition, first=0, last=end), 0) if end else ()
            dead = [letter for span in spans for letter in span.dead]
            good = [row[0] for span in spans for row, _ in span.batch.to_rows()]
            assert good == [n for n in range(end) if kinds[n] == "plain"]
            assert [letter.offset for letter in dead] == [n for n in range(end) if kinds[n] != "plain"]
            assert all(("decimal128(8, 2)" in each.reason) == (kinds[each.offset] == "priced") for each in dead)
        if not skips:
            assert "`coordinator skip`" in copy.shown["error"]
            assert len(copy.refused) == 2
        log.close()
    assert stopped > 10 or not skips


def rows_of(message: Any) -> list[int | None]:
    value = message.value().decode()
    return [None] if value == "no row" else [message.offset()] * value.count("amount")
