"""A pipeline between topics goes on with a changed circuit: every change of every view once, whoever is killed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dbsp.coordinator.build import build, load_plan, surveyed
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import Config, load_config
from dbsp.errors import CircuitError, ConfigError
from dbsp.io.kafka import KafkaSettings
from dbsp.io.kafka.client import TopicReader, Trimmer, ensure_topic
from dbsp.io.pushed import Position
from tests.coordinator.copies import prints
from tests.crash.coordinator_child import changed_by_who_dies
from tests.kafka.topics import messages, send, weighted
from tests.pace import rotating

pytestmark = [pytest.mark.kafka, pytest.mark.crash, pytest.mark.timeout(300)]

ORDERS = "create table orders (id bigint primary key, customer text, amount bigint);"
NAMES = "create table names (customer text primary key, name text);"
PER_CUSTOMER = """create materialized view per_customer as
  select customer, count(*) as n, sum(amount) as amount from orders group by customer;"""
LARGE = "create view large as select id, amount from orders where amount > 50;"
BEST = "create materialized view best as select customer, max(amount) as best from orders group by customer;"
NAMED = """create materialized view named as
  select p.customer, name, n from per_customer p left join names on p.customer = names.customer;"""

BUSY = "create materialized view busy as select customer, {columns} from orders {where} group by customer;"
"""A view that is edited under its name: its columns change, and it loses a row. Old rows are retracted with old columns."""
BUSY_BEFORE = BUSY.format(columns="count(*) as n", where="")
BUSY_AFTER = BUSY.format(columns="sum(amount) as paid, count(*) as n", where="where customer <> 'a'")

BEFORE = "\n".join([ORDERS, PER_CUSTOMER, LARGE])
AFTER = "\n".join([ORDERS, NAMES, PER_CUSTOMER, BEST, NAMED])
FIRST = {1: ("a", 10), 2: ("b", 60), 3: ("b", 1)}
SECOND = {2: ("b", 70), 4: ("a", 5)}
CALLED = {"a": "Ann", "b": "Bob"}
EXPECTED = {
    "per_customer": {("a", 2, 15): 1, ("b", 2, 71): 1},
    "best": {("a", 10): 1, ("b", 70): 1},
    "named": {("a", "Ann", 2): 1, ("b", "Bob", 2): 1},
}
EDITED = EXPECTED | {"busy": {("b", 71, 2): 1}}
KEYS = 'keys = { per_customer = "customer", best = "customer", named = "customer", busy = "customer", large = "id" }'
UPSERT = f'{KEYS}\nformat = "upsert"'


class Shop:
    """A pipeline with its topics."""

    def __init__(self, kafka: KafkaSettings, folder: Path, output: str = "", *, edits: bool = False) -> None:
        self.kafka, self.folder, self.output = kafka, folder, output
        self.expected = EDITED if edits else EXPECTED
        self.before = f"{BEFORE}\n{BUSY_BEFORE}" if edits else BEFORE
        self.after = f"{AFTER}\n{BUSY_AFTER}" if edits else AFTER
        self.sent: Counter[str] = Counter()
        ensure_topic(kafka, self.topic("orders"), 1)

    def topic(self, table: str) -> str:
        return f"{self.kafka.pipeline}.in.{table}"

    def with_circuit(self, script: str, more: str = "") -> Config:
        """The settings of the pipeline with this circuit; those of views that it has not are left out."""
        (self.folder / "shop.sql").write_text(script)
        tables = [table for table in ("orders", "names", "visits") if f"table {table} " in script]
        topics = ", ".join(f'{table} = "{self.topic(table)}"' for table in tables)
        output = self.output
        for view in ("best", "named", "busy", "large"):
            if f"view {view} " not in script:
                output = output.replace(f', {view} = "customer"', "").replace(f', {view} = "id"', "")
        (self.folder / "pipeline.toml").write_text(f"""
[pipeline]
name = "{self.kafka.pipeline}"
circuit = "shop.sql"
runtime = "local"
workers = 2
[input]
kind = "kafka"
bootstrap = "{self.kafka.brokers}"
topics = {{ {topics} }}
[output]
kind = "kafka"
bootstrap = "{self.kafka.brokers}"
{output}
[http]
port = 0
{more}
""")
        return load_config(self.folder / "pipeline.toml", environment={})

    def send(self, table: str, rows: list[Mapping[str, Any]]) -> None:
        send(self.kafka, self.topic(table), [json.dumps(row).encode() for row in rows])
        self.sent[table] += len(rows)

    def order(self, rows: Mapping[int, tuple[str, int]]) -> None:
        self.send("orders", [{"id": key, "customer": name, "amount": amount} for key, (name, amount) in rows.items()])

    def name(self) -> None:
        """Names come to a topic of which the pipeline knows nothing yet."""
        ensure_topic(self.kafka, self.topic("names"), 1)
        self.send("names", [{"customer": customer, "name": name} for customer, name in CALLED.items()])

    def wait(self, service: Service, *tables: str) -> None:
        for table in tables:
            sent = self.sent[table]
            service.wait_until_processed(Position(table=table, partition=0, first=sent - 1, last=sent), 60)

    def ran(self) -> None:
        """The old circuit has taken the first orders and was stopped as it should be."""
        self.order(FIRST)
        with Service(self.with_circuit(self.before)) as service:
            self.wait(service, "orders")
            assert content(service, "per_customer") == {("a", 1, 10): 1, ("b", 2, 61): 1}

    def goes_on(self, service: Service) -> None:
        """The new circuit takes the rest, and its views are right."""
        self.order(SECOND)
        with service:
            self.wait(service, "orders", "names")
            assert {view: content(service, view) for view in self.expected} == self.expected

    def told(self, view: str) -> dict[Any, int]:
        """The sum of what a consumer reads of a view; no change is told and taken back within a step."""
        total: Counter[Any] = Counter()
        seen: Counter[Any] = Counter()
        for message in messages(self.kafka, f"{self.kafka.pipeline}.{view}"):
            step, (row, weight) = weighted(message)
            total[row] += weight
            seen[step, row] += 1
        assert set(seen.values()) <= {1}
        return {row: weight for row, weight in total.items() if weight}

    def first_told(self, view: str) -> tuple[int, int]:
        """The first and the last step of which a view's topic has rows."""
        steps = [weighted(message)[0] for message in messages(self.kafka, f"{self.kafka.pipeline}.{view}")]
        return min(steps), max(steps)


def changed(config: Config) -> Service:
    return Service(config, build(config, evolve=True))


def content(service: Service, view: str) -> dict[tuple[Any, ...], int]:
    rows = service.read_view(view, 60).table.to_pylist()
    return {tuple(row.values())[:-1]: row["weight"] for row in rows}


def ends(kafka: KafkaSettings) -> dict[str, Any]:
    """Where the pipeline's own topics end."""
    with closing(TopicReader(kafka)) as reader:
        return {topic: reader.bounds(kafka.topic(topic), 0) for topic in ("steps", "progress", "per_customer", "large")}


def check_topics(shop: Shop) -> None:
    assert {view: shop.told(view) for view in shop.expected} == shop.expected
    assert shop.told("large") == {(2, 60): 1}, "what a dropped view has told stays as it was"


def test_views_and_tables_come_and_go(settings: KafkaSettings, tmp_path: Path) -> None:
    shop = Shop(settings, tmp_path)
    shop.ran()
    shop.name()
    before, files = ends(settings), prints(tmp_path / "data")
    config = shop.with_circuit(AFTER)
    evolution = surveyed(config, load_plan(config))
    assert evolution is not None
    assert evolution.change.views_dropped == ("large",)
    assert (ends(settings), prints(tmp_path / "data")) == (before, files), "a look ahead writes nothing"
    filled = evolution.saved.checkpoint.step
    shop.goes_on(changed(config))
    check_topics(shop)
    assert shop.first_told("best")[0] == filled
    with Service(shop.with_circuit(AFTER)) as service:
        assert {view: content(service, view) for view in EXPECTED} == EXPECTED
    with changed(shop.with_circuit("\n".join([ORDERS, PER_CUSTOMER, BEST]))) as service:
        assert content(service, "best") == EXPECTED["best"]
    with pytest.raises(CircuitError, match=r"rows arrived in a new table before the circuit had it.*table=names"):
        changed(shop.with_circuit(AFTER.replace("view named", "view named_2")))


def test_a_topic_that_is_not_there_is_told_before_anything_is_changed(settings: KafkaSettings, tmp_path: Path) -> None:
    shop = Shop(settings, tmp_path)
    shop.ran()
    before, files = ends(settings), prints(tmp_path / "data")
    with pytest.raises(ConfigError, match=f"topic={shop.topic('names')}"):
        changed(shop.with_circuit(AFTER))
    assert (ends(settings), prints(tmp_path / "data")) == (before, files)
    shop.name()
    shop.goes_on(changed(shop.with_circuit(AFTER)))


def test_steps_above_the_checkpoint_belong_to_the_old_circuit(settings: KafkaSettings, tmp_path: Path) -> None:
    shop = Shop(settings, tmp_path)
    shop.ran()
    shop.order(SECOND)
    with Service(shop.with_circuit(BEFORE, "[checkpoint]\ninterval_s = 1000")) as service:
        shop.wait(service, "orders")
        service.stop(now=True)
    shop.name()
    with pytest.raises(CircuitError, match="steps wait above the checkpoint"):
        changed(shop.with_circuit(AFTER))


@pytest.mark.parametrize("keyed", ["upsert", "keys"])
def test_views_with_keys(settings: KafkaSettings, tmp_path: Path, keyed: str) -> None:
    shop = Shop(settings, tmp_path, UPSERT if keyed == "upsert" else KEYS, edits=True)
    shop.ran()
    shop.name()
    shop.goes_on(changed(shop.with_circuit(shop.after)))
    (check_tables if keyed == "upsert" else check_topics)(shop)
    if keyed == "upsert":
        shop.output = UPSERT.replace('per_customer = "customer"', 'per_customer = "customer, n"')
        config = shop.with_circuit(shop.after)
        with pytest.raises(CircuitError, match="because the key of its messages changed: view=per_customer"):
            surveyed(config, load_plan(config))


def check_tables(shop: Shop) -> None:
    """The newest message of every key is its row."""
    for view, expected in shop.expected.items():
        read = messages(shop.kafka, f"{shop.kafka.pipeline}.{view}")
        rows = {message.key(): message.value() for message in read}
        assert {tuple(json.loads(value).values()): 1 for value in rows.values() if value} == expected


POINTS = [
    "steps.claim:after:1",
    "control.change:before:2",
    "control.change:after:2",
    "runtime.run_step:before:1",
    "runtime.run_step:after:1",
]


@pytest.mark.parametrize(
    ("point", "output"), rotating([(point, output) for output in ("", UPSERT) for point in POINTS], 10)
)
def test_killed_while_it_is_changed(settings: KafkaSettings, tmp_path: Path, point: str, output: str) -> None:
    """Before the switch the change is made again, behind it the new circuit goes on: `evolve` says either."""
    shop = Shop(settings, tmp_path, output, edits=True)
    shop.ran()
    shop.name()
    shop.with_circuit(shop.after, "[checkpoint]\ninterval_s = 0.1")
    changed_by_who_dies(tmp_path, point)
    shop.goes_on(changed(shop.with_circuit(shop.after)))
    (check_tables if output else check_topics)(shop)


VISITS = "create table visits (page text, who text);"
PER_PAGE = "create materialized view per_page as select page, count(*) as n from visits group by page;"
PER_WHO = "create materialized view per_who as select who, count(*) as n from visits group by who;"


class WorkerResources(Shop):
    """A pipeline whose table has no key, out of two partitions; messages that were never committed lie between its rows."""

    def __init__(self, kafka: KafkaSettings, folder: Path) -> None:
        super().__init__(kafka, folder)
        ensure_topic(kafka, self.topic("visits"), 2)

    def with_views(self, *views: str, more: str = "") -> Config:
        return self.with_circuit("\n".join([VISITS, *views]), more)

    def visit(self, partition: int, *visits: tuple[str, str], commit: bool = True) -> None:
        rows = [json.dumps({"page": page, "who": who}).encode() for page, who in visits]
        send(self.kafka, self.topic("visits"), rows, commit=commit, partition=partition)

    def ran(self) -> None:
        self.visit(0, ("/", "ann"), ("/", "bob"))
        self.visit(0, ("/never", "nobody"), commit=False)
        self.visit(1, ("/a", "ann"))
        with Service(self.with_views(PER_PAGE)) as service:
            self.read(service)
            assert content(service, "per_page") == {("/", 2): 1, ("/a", 1): 1}

    def read(self, service: Service) -> None:
        """Wait until all that was sent is processed."""
        with closing(TopicReader(self.kafka)) as reader:
            for partition in range(2):
                first, last = reader.bounds(self.topic("visits"), partition)
                service.wait_until_processed(Position(table="visits", partition=partition, first=first, last=last), 60)

    def goes_on(self, service: Service) -> None:
        self.visit(1, ("/a", "bob"))
        with service:
            self.read(service)
            assert content(service, "per_page") == {("/", 2): 1, ("/a", 2): 1}
            assert content(service, "per_who") == {("ann", 2): 1, ("bob", 2): 1}


def test_a_new_view_of_rows_that_only_their_topic_has_kept(settings: KafkaSettings, tmp_path: Path) -> None:
    resources = WorkerResources(settings, tmp_path)
    resources.ran()
    config = resources.with_views(PER_PAGE, PER_WHO)
    evolution = surveyed(config, load_plan(config))
    assert evolution is not None
    assert "filled from the input log of: visits" in evolution.as_text("web")
    resources.goes_on(changed(config))
    assert resources.told("per_who") == {("ann", 2): 1, ("bob", 2): 1}
    assert resources.told("per_page") == {("/", 2): 1, ("/a", 2): 1}


READING = ["steps.append:after:1", "runtime.run_step:after:1", "control.change:after:3"]


@pytest.mark.parametrize("point", rotating(READING, 3))
def test_killed_while_a_topic_is_read_again(settings: KafkaSettings, tmp_path: Path, point: str) -> None:
    resources = WorkerResources(settings, tmp_path)
    resources.ran()
    resources.with_views(PER_PAGE, PER_WHO, more="[checkpoint]\ninterval_s = 0.1")
    changed_by_who_dies(tmp_path, point)
    resources.goes_on(Service(resources.with_views(PER_PAGE, PER_WHO)))
    assert resources.told("per_who") == {("ann", 2): 1, ("bob", 2): 1}


def test_a_topic_that_has_lost_its_oldest_rows_is_not_read_again(settings: KafkaSettings, tmp_path: Path) -> None:
    resources = WorkerResources(settings, tmp_path)
    resources.ran()
    Trimmer(settings).delete_below(resources.topic("visits"), 0, 1)
    before = prints(tmp_path / "data")
    with pytest.raises(
        CircuitError,
        match="a new view needs all earlier rows of a table, and they are not kept: table=visits views=per_who",
    ):
        changed(resources.with_views(PER_PAGE, PER_WHO))
    assert prints(tmp_path / "data") == before
