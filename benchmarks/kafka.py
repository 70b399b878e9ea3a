"""From Kafka to Kafka, exactly once, beside a bare loop that consumes, decodes, encodes and produces with the same client.

`python -m benchmarks.kafka [--events 1000000] [--step 100000]`. A real broker on this machine; Nexmark's bids as JSON, one per
message, one partition. Ours, in process, one worker: q0 (no state) and q17 (counts and prices per auction and day) in steps
of so many messages, each step's rows and progress in one transaction. The bare loop does the work of q0 with no guarantee at
all: it decodes and encodes with our column-wise JSON, which is the faster bare loop; what `json` from the standard library
makes, a row at a time, stands beside it. Processor seconds of this process, which hold the client's threads, and rows by the
clock; the broker's time is not counted. The target is 80 % of the bare loop, for q0.

Needs Java; the broker's jars are fetched once (`tests/kafka/broker.py`).
"""

from __future__ import annotations

import importlib
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin

import dbsp
from benchmarks import report
from benchmarks.durable import DurablePipeline
from benchmarks.nexmark.generator import Generator
from benchmarks.nexmark.queries import QUERIES
from dbsp.io.connectors.kafka import KafkaInput, KafkaOutput
from dbsp.io.formats import json_lines
from dbsp.io.formats.json_rows import decode_json_lines
from dbsp.runtime.inprocess import InProcessRuntime
from dbsp.zset.batch import Batch

WANTED = 0.8
FETCH, FLUSHED = 10_000, 100_000
BIDS = dbsp.circuit("bids", {"v": QUERIES["q0"].build()}).tables[0]
KEPT = ("auction", "bidder", "price", "ts", "extra")


@dataclass(frozen=True, slots=True)
class Speed:
    """Rows per processor second of this process, and by the clock."""

    per_cpu_s: float
    per_s: float

    @classmethod
    @contextmanager
    def of(cls, rows: int) -> Iterator[list[Speed]]:
        """Measures what happens inside."""
        found: list[Speed] = []
        cpu, clock = time.process_time(), time.perf_counter()
        yield found
        found.append(cls(rows / (time.process_time() - cpu), rows / (time.perf_counter() - clock)))


def fill(brokers: str, topic: str, messages: Iterable[bytes]) -> int:
    """Produce messages to a new topic; how many there were."""
    create(brokers, topic)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": brokers, "linger.ms": 20, "queue.buffering.max.messages": 10**6}
    )
    sent = 0
    for sent, message in enumerate(messages, 1):
        producer.produce(topic, message, partition=0)
        if sent % FLUSHED == 0:
            producer.flush(120)
    producer.flush(120)
    return sent


def bids(events: int) -> Iterator[bytes]:
    """The bids of so many events, as JSON."""
    for step in Generator().batches(events, 100_000):
        for line in json_lines(Batch.from_arrow(step["bid"], BIDS.schema)).to_pylist():
            yield line.encode()


def create(brokers: str, topic: str) -> None:
    """A topic of one partition."""
    module: Any = confluent_kafka.admin
    admin = module.AdminClient({"bootstrap.servers": brokers})
    admin.create_topics([module.NewTopic(topic, 1, 1)])[topic].result(30)


def ours(brokers: str, name: str, rows: int, step: int) -> Speed:
    """The pipeline."""
    circuit = dbsp.circuit(name, {"v": QUERIES[name].build()}, materialize=False)
    source = KafkaInput(bootstrap=brokers, topics={"bid": "bids"})
    target = KafkaOutput(bootstrap=brokers, topics={"v": f"{name}-{rows}-ours"})
    with tempfile.TemporaryDirectory(prefix="kafka-") as folder:
        pipeline = DurablePipeline(Path(folder) / "state", circuit, 1, InProcessRuntime, source, target, name)
        try:
            pipeline.step({("bid", 0): min(1000, rows)})  # makes clients and topics, compiles
            with Speed.of(rows - min(1000, rows)) as found:
                for last in range(step, rows + step, step):
                    pipeline.step({("bid", 0): min(last, rows)})
        finally:
            pipeline.close()
    return found[0]


def bare(brokers: str, name: str, rows: int, convert: Callable[[list[Any]], list[bytes]]) -> Speed:
    """The loop."""
    create(brokers, f"bare-{name}")
    options = {"bootstrap.servers": brokers, "group.id": "bare", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer(options | {"queued.max.messages.kbytes": 65536})
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": brokers, "linger.ms": 5, "queue.buffering.max.messages": 10**6}
    )
    consumer.assign([confluent_kafka.TopicPartition("bids", 0, 0)])
    seen = 0
    with Speed.of(rows) as found:
        while seen < rows:
            messages = consumer.consume(FETCH, 1.0)
            for value in convert(messages) if messages else ():
                producer.produce(f"bare-{name}", value, partition=0)
            seen += len(messages)
            producer.poll(0)
            while len(producer) > 500_000:
                producer.poll(0.1)
        producer.flush(120)
    consumer.close()
    return found[0]


def by_columns(messages: list[Any]) -> list[bytes]:
    """Decode and encode whole batches."""
    push = decode_json_lines(b"\n".join(message.value() for message in messages), BIDS)
    return [text.encode() for text in json_lines(push.batch.project(KEPT)).to_pylist()]


def by_rows(messages: list[Any]) -> list[bytes]:
    """Decode and encode with the standard library."""
    found = []
    for message in messages:
        row = json.loads(message.value())["insert"]
        found.append(json.dumps({"insert": {name: row[name] for name in KEPT}}).encode())
    return found


def answer(brokers: str, topic: str) -> int:
    """How many rows a plain `read_committed` consumer finds in a topic of insertions."""
    options = {"bootstrap.servers": brokers, "group.id": "count", "enable.partition.eof": True}
    consumer = confluent_kafka.Consumer(options | {"isolation.level": "read_committed"})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    seen = 0
    while True:
        for message in consumer.consume(FETCH, 10):
            if message.error() is not None:
                consumer.close()
                return seen
            seen += 1


def main() -> None:
    """Measure, print, keep."""
    parser = report.parser(__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--step", type=int, default=100_000, help="messages of a step")
    arguments = parser.parse_args()
    broker: Any = importlib.import_module("tests.kafka.broker").Broker().start()
    try:
        rows = fill(broker.brokers, "bids", bids(arguments.events))
        found = {
            "bare": bare(broker.brokers, "columns", rows, by_columns),
            "bare_json_module": bare(broker.brokers, "rows", rows, by_rows),
            "q0": ours(broker.brokers, "q0", rows, arguments.step),
            "q17": ours(broker.brokers, "q17", rows, arguments.step),
        }
        out = answer(broker.brokers, f"q0-{rows}-ours")
        if out != rows:
            raise SystemExit(f"q0 lost or repeated rows: found={out} expected={rows}")
    finally:
        broker.close()
    figures: dict[str, object] = {"messages": rows, "step": arguments.step}
    for name, speed in found.items():
        figures |= {f"{name}_rows_per_cpu_s": round(speed.per_cpu_s), f"{name}_rows_per_s": round(speed.per_s)}
    targets = {}
    for name in ("q0", "q17"):
        figures[f"{name}_ratio_to_bare_loop_cpu"] = found[name].per_cpu_s / found["bare"].per_cpu_s
        figures[f"{name}_ratio_to_bare_loop_clock"] = found[name].per_s / found["bare"].per_s
    targets = {f"q0_ratio_to_bare_loop_{kind}": report.at_least(WANTED) for kind in ("cpu", "clock")}
    report.keep("kafka", figures, targets)


if __name__ == "__main__":
    main()
