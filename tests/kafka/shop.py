"""A shop on Kafka and Spark as a process of its own, to be killed part by part; and what a stranger can say of its results.

Input comes from a plain producer, results are read by a plain `read_committed` consumer: neither is ours. Every process of
the pipeline carries a mark in its environment, so that coordinator, JVM and Python workers are found and nothing else is.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import duckdb
import httpx
import pyarrow as pa

from dbsp.circuit.names import DEAD_LETTERS
from dbsp.coordinator.address import read_address
from dbsp.coordinator.build import load_plan
from dbsp.coordinator.settings.config import load_config
from dbsp.io.formats import json_lines
from dbsp.io.kafka import KafkaInputLog, KafkaSettings, KafkaSource, KafkaStepLog
from dbsp.io.output_part import with_dead_letters
from dbsp.layout import initial
from dbsp.runtime.inprocess import InProcessRuntime
from dbsp.runtime.session import MemoryResources
from dbsp.runtime.work import Work
from dbsp.store import CheckpointId
from tests import plain_http
from tests.kafka.topics import messages

ROOT = Path(__file__).parents[2]
WORKERS = 2
PARTITIONS = 2
CIRCUIT = """
import dbsp
from dbsp import count
from dbsp import sum as total

orders = dbsp.table("orders", {"id": dbsp.INT64, "customer": dbsp.STRING, "amount": dbsp.INT64}, primary_key=["id"])
per_customer = orders.group_by("customer").aggregate(orders=count(), amount=total("amount"))
pipeline = dbsp.circuit("shop", {"per_customer": per_customer})
"""
SETTINGS = """
[pipeline]
name = "{name}"
circuit = "{circuit}"
runtime = "{runtime}"
workers = {workers}
{spark}
[input]
kind = "kafka"
bootstrap = "{brokers}"
topics = {{ orders = "{name}.in" }}
[output]
kind = "kafka"
bootstrap = "{brokers}"
[checkpoint]
interval_s = 1
retention_s = 100000
[layout]
keys_per_step = 100
{hosts}
[http]
port = 0
"""
PACE_S = 0.3
"""The pace of the producer, and of what waits: each look reads the environment of every process, each push makes a step."""
LOCAL = '[spark]\nmaster = "local[2]"'
PER_CUSTOMER = "SELECT customer, count(*), sum(amount)::BIGINT FROM orders GROUP BY customer"
Part = tuple[str, int, int]


class Shop:
    """The pipeline's folder and process, and the orders that were sent to it."""

    def __init__(
        self, folder: Path, brokers: str, seed: int, runtime: str = "spark", *, spark: str = LOCAL, hosts: str = "",
        sql: str = "",
    ) -> None:  # fmt: skip
        self.folder, self.brokers = folder, brokers
        self.data, self.token = folder / "data", ""
        """Where the data folder of the living coordinator is seen here, and what it wants to be shown."""
        self.options: tuple[str, ...] = ()
        """With which every process of the service is started, also after a kill."""
        self.name = f"shop{uuid.uuid4().hex[:8]}"
        self.random = random.Random(seed)
        self.process: subprocess.Popen[bytes] | None = None
        self.orders: list[tuple[int, int, str | None, int | None]] = []
        self.sent = 0
        self._mark = f"DBSP_SHOP={self.name}"
        circuit = "circuit.sql" if sql else "circuit.py"
        (folder / circuit).write_text(sql or CIRCUIT)
        settings = SETTINGS.format(
            name=self.name, workers=WORKERS, brokers=brokers, runtime=runtime, spark=spark, hosts=hosts,
            circuit=circuit if sql else f"{circuit}:pipeline",
        )  # fmt: skip
        (folder / "pipeline.toml").write_text(settings)
        topic = confluent_kafka.admin.NewTopic(f"{self.name}.in", PARTITIONS, 1)
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": brokers})
        admin.create_topics([topic])[topic.topic].result(30)
        once = {"enable.idempotence": True, "linger.ms": 1}
        self._producer = confluent_kafka.Producer({"bootstrap.servers": brokers, **once})

    # --- the process --------------------------------------------------------------------------------------------

    def start(self, *options: str) -> None:
        """Start the service; from now on this is the process that is meant, whatever another one does."""
        self.process = self.another(*self.options, *options)

    def another(self, *options: str, before: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """Start one more process of the service's command; `before` it come words that put it on another host."""
        name, _, value = self._mark.partition("=")
        command = [sys.executable, "-m", "dbsp.coordinator.serve", str(self.folder / "pipeline.toml"), "--no-progress"]
        with (self.folder / "out").open("ab") as out:
            return subprocess.Popen(
                [*before, *command, *options], cwd=ROOT, env={**os.environ, name: value}, stdout=out, stderr=out,
                start_new_session=True,
            )  # fmt: skip

    def running(self) -> subprocess.Popen[bytes]:
        assert self.process is not None
        return self.process

    def said(self) -> str:
        return (self.folder / "out").read_text()[-3000:]

    def marked(self, wanted: Callable[[Path, bytes], bool] = lambda _folder, _command: True) -> list[int]:
        """Living processes of the pipeline of which `wanted(/proc folder, command line)` holds."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                mine = self._mark.encode() in (folder / "environ").read_bytes().split(b"\0")
                alive = mine and (folder / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
                if alive and wanted(folder, (folder / "cmdline").read_bytes()):
                    found.append(int(folder.name))
            except OSError:
                continue
        return found

    def jvm(self) -> list[int]:
        return self.marked(lambda _, command: b"org.apache.spark.deploy.SparkSubmit" in command)

    def python_workers(self) -> list[int]:
        """Children of PySpark's daemon."""
        daemons = self.marked(lambda folder, command: b"pyspark" in command and _parent(folder) in self.jvm())
        return self.marked(lambda folder, _: _parent(folder) in daemons)

    def status(self) -> dict[str, Any] | None:
        """What the living process says, if it answers."""
        found = read_address(self.data)
        if self.process is None or "pid" not in found:
            return None
        folder = Path(f"/proc/{found['pid']}")
        is_successor = (
            folder.is_dir() and _parent(folder) == self.process.pid
        )  # after an upgrade beside the old version
        if found["pid"] != self.process.pid and not is_successor:
            return None
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        try:
            answer = plain_http.ask("GET", found["url"] + "/v1/status", headers=headers)
        except httpx.HTTPError:
            return None
        return answer.json() if answer.is_success else None

    def processed(self) -> int:
        """How many messages are processed, as far as it says."""
        status = self.status()
        if status is None or status["state"] != "Running":
            return -1
        return sum(place["offset"] for place in status["processed"])

    def until(self, there: Callable[[], Any], what: str, limit_s: float = 120, *, restart: bool = False) -> Any:
        """Send orders until it is there; `restart` it as a supervisor does, if it ended because it could not go on."""
        limit = time.monotonic() + limit_s
        while not (found := there()):
            assert time.monotonic() < limit, f"waited in vain: {what}: {self.said()}"
            if restart and (code := self.running().poll()) is not None:
                assert code == 4, f"exit code {code}: {self.said()}"
                self.start()
            self.send(20)
            time.sleep(PACE_S)
        return found

    def kill(self, victim: str) -> None:
        """SIGKILL to one part of the living pipeline; afterwards a process runs that goes on."""
        process = self.running()
        reached = self.sent
        if victim in ("coordinator", "group"):
            (os.kill if victim == "coordinator" else os.killpg)(process.pid, signal.SIGKILL)
            assert process.wait(30) == -signal.SIGKILL, self.said()
            self.until(lambda: not self.marked(), "nothing of it is left", 30)
            self.start()
        else:
            seek = self.jvm if victim == "jvm" else self.python_workers
            pid = self.random.choice(self.until(seek, f"there is a {victim}"))
            os.kill(pid, signal.SIGKILL)
            self.until(lambda: pid not in self.marked(), f"the {victim} is gone", 30)
        self.until(lambda: self.processed() >= reached, f"it goes on after the {victim} was killed", 300, restart=True)

    def ask_rescale(self, workers: int, strategy: str, hosts: Sequence[str] | None = None) -> threading.Thread:
        """Ask the living process; nobody cares what it answers, or whether it lives to."""
        asked = {
            "workers": workers,
            "strategy": strategy,
            "hosts": None if hosts is None else dict.fromkeys(hosts, 1.0),
        }

        def ask() -> None:
            with suppress(httpx.HTTPError, OSError, KeyError):
                url = read_address(self.folder / "data")["url"]
                plain_http.post(url + "/v1/rescale", json=asked, timeout_s=None)

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        return asking

    def stop(self) -> None:
        """Wait until everything sent is processed, and stop as asked."""
        self._producer.flush(30)
        limit = time.monotonic() + 120
        while self.processed() != self.sent:
            assert time.monotonic() < limit, f"not everything was processed: {self.said()}"
            time.sleep(0.05)
        self.running().send_signal(signal.SIGTERM)
        assert self.running().wait(60) == 0, self.said()

    def end(self) -> None:
        """Leave nothing behind, whatever happened."""
        for pid in self.marked():
            os.kill(pid, signal.SIGKILL)
        if self.process is not None:
            self.process.wait(30)

    # --- rows in ------------------------------------------------------------------------------------------------

    def send(self, count: int) -> None:
        """Produce some orders: new, changed, deleted, and now and then one that cannot be read."""
        for _ in range(count):
            key = self.random.randrange(2000)
            chance = self.random.random()
            if chance < 0.01:
                value: Any = {"insert": {"id": key, "customer": "c", "amount": "many"}}
            elif chance < 0.2:
                self.orders.append((self.sent, key, None, None))
                value = {"delete": {"id": key}}
            else:
                customer, amount = f"c{self.random.randrange(40)}", self.random.randrange(1000)
                self.orders.append((self.sent, key, customer, amount))
                value = {"insert": {"id": key, "customer": customer, "amount": amount}}
            self._producer.produce(f"{self.name}.in", json.dumps(value).encode(), partition=key % PARTITIONS)
            self.sent += 1
        self._producer.poll(0)

    def expected(self, view: str = PER_CUSTOMER) -> Counter[tuple[Any, ...]]:
        """The rows of a view, by DuckDB's own answer to its query over the orders that were sent."""
        columns = zip(*self.orders, strict=True)
        sent = pa.table(dict(zip(("place", "id", "customer", "amount"), map(list, columns), strict=True)))
        with closing(duckdb.connect()) as database:
            database.register("sent", sent)
            database.execute(
                "CREATE VIEW orders AS SELECT id, customer, amount FROM"
                " (SELECT * FROM sent QUALIFY row_number() OVER (PARTITION BY id ORDER BY place DESC) = 1)"
                " WHERE customer IS NOT NULL"
            )
            return Counter(database.execute(view).fetchall())

    # --- results out --------------------------------------------------------------------------------------------

    def consumed(self, *views: str) -> dict[Part, list[bytes]]:
        """(view or dead letters, step, worker) -> values, as a plain `read_committed` consumer gets them."""
        settings = KafkaSettings(brokers=self.brokers, pipeline=self.name)
        found: dict[Part, list[bytes]] = defaultdict(list)
        for view in (*(views or ("per_customer",)), DEAD_LETTERS):
            for message in messages(settings, settings.topic(view)):
                headers = dict(message.headers())
                found[view, int(headers["step"]), int(headers["worker"])].append(message.value())
        return found

    def replayed(self, workers: int = WORKERS) -> tuple[int, dict[Part, list[bytes]]]:
        """How many steps are logged, and the same as `consumed` from a replay of them all in memory, without faults.

        It is by so many workers all the time: what the steps were commanded to move is left out.
        """
        plan = load_plan(load_config(self.folder / "pipeline.toml", environment={}))
        settings = KafkaSettings(brokers=self.brokers, pipeline=self.name)
        sources = [KafkaSource(table=table, topic=f"{self.name}.in") for table in plan.tables]
        with closing(KafkaStepLog(settings)) as steps, closing(KafkaInputLog(settings, sources)) as inputs:
            records = steps.read(0)
            resources = MemoryResources(inputs)  # type: ignore[arg-type]
            runtime = InProcessRuntime(Work(resources=resources, plan=plan, run="golden"), encode_parcels=False)
            layout = initial(workers)
            start = CheckpointId(run="golden", epoch=1, step=0, layout_version=0, fingerprint=plan.fingerprint)
            runtime.create(layout.workers, start)
            runtime.fence(1, layout.workers)
            runtime.open(0, 1, layout)
            for record in records:
                runtime.run_step(replace(record, commands=()), layout)
        assert [record.step for record in records] == list(range(len(records)))
        found: dict[Part, list[bytes]] = {}
        for worker, log in resources.outputs.items():
            for step, parts in log.parts.items():
                for view, batch in with_dead_letters(parts, log.dead[step]).items():
                    if len(batch):
                        found[view, step, worker] = [text.encode() for text in json_lines(batch).to_pylist()]
        return len(records), found


def summed(parts: dict[Part, list[bytes]], view: str) -> Counter[tuple[Any, ...]]:
    """The integral of a view's changes, without zeros."""
    total: Counter[tuple[Any, ...]] = Counter()
    for (name, _, _), values in parts.items():
        for value in map(json.loads, values) if name == view else ():
            operation = "insert" if "insert" in value else "delete"
            total[tuple(value[operation].values())] += value.get("weight", 1) * (1 if operation == "insert" else -1)
    return Counter({row: weight for row, weight in total.items() if weight})


def by_step(parts: dict[Part, list[bytes]]) -> dict[tuple[str, int], Counter[str]]:
    """(view, step) -> what it changed, whichever worker wrote it."""
    found: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    for (view, step, _), values in parts.items():
        for value in map(json.loads, values):
            operation = "insert" if "insert" in value else "delete"
            weight = value.get("weight", 1) * (1 if operation == "insert" else -1)
            found[view, step][json.dumps(value[operation])] += weight
    netted = (
        (place, Counter({row: weight for row, weight in rows.items() if weight})) for place, rows in found.items()
    )
    return {place: rows for place, rows in netted if rows}


def _parent(folder: Path) -> int:
    return int((folder / "stat").read_text().rpartition(")")[2].split()[1])
