"""How long one changed row takes from Kafka to Kafka, exactly once: from its message to the changes that a consumer sees.

`python -m benchmarks.kafka_latency [--rows 1000000] [--changes 300] [--runtime local spark]`. A real broker on this machine;
count per key with so many keys, loaded from the topic; then one message of a key that is there, and another when a plain
`read_committed` consumer has seen both its changes (the old count goes, the new one comes). The coordinator's service as a
user runs it, without its HTTP interface, one worker in process, and two on Spark; a checkpoint every ten seconds. Its
`max_step_delay_ms`, for which a first row waits for others, is 0 here (`--delay-ms`; its default is 20).

Beside it, with the same client: a bare loop that answers each message with two in a transaction (which also commits where it
read), and one that answers at once, with no guarantee. Milliseconds by the clock, on the consumer's side; median and 99th
percentile. Needs Java; the broker's jars are fetched once (`tests/kafka/broker.py`).
"""

from __future__ import annotations

import importlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import numpy as np

from benchmarks import report
from benchmarks.count_per_key import circuit
from benchmarks.kafka import create, fill
from benchmarks.latency import milliseconds
from dbsp.coordinator.build import build
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import Config, PipelineSection, SparkSection, StepSection
from dbsp.io.connectors.kafka import KafkaInput, KafkaOutput
from dbsp.plan.planner import plan as make_plan

WARM_UP = 30
CHANGES_PER_ROW = 2
WORKERS = {"local": 1, "spark": 2}


def message(key: int) -> bytes:
    """A row, as JSON."""
    return f'{{"k":{key}}}'.encode()


@contextmanager
def ours(brokers: str, folder: Path, runtime: str, delay_ms: int, source: str, target: str) -> Iterator[None]:
    """The service, when it has counted all that lies in `source`."""
    config = Config(
        pipeline=PipelineSection(
            name=runtime, circuit="the one that is given", workers=WORKERS[runtime], runtime=runtime
        ),
        folder=folder, step=StepSection(max_step_delay_ms=delay_ms),
        spark=SparkSection(master=f"local[{WORKERS['spark']}]"),
        input=KafkaInput(bootstrap=brokers, topics={"t": source}),
        output=KafkaOutput(bootstrap=brokers, topics={"counts": target}),
    )  # fmt: skip
    with Service(config, build(config, plan=make_plan(circuit()))) as service:
        if not service.live_status.wait_for(lambda now: now.step > 0 and not now.lag_rows, None):
            service.stop()  # raises what ended it
        service.checkpoint()
        yield


@contextmanager
def bare(brokers: str, source: str, target: str, *, transactions: bool) -> Iterator[None]:
    """A thread that answers every new message."""
    ended, ready = threading.Event(), threading.Event()

    def loop() -> None:
        consumer = _reader(brokers, source)
        ready.set()
        own = {"transactional.id": target} if transactions else {}
        producer: Any = confluent_kafka.Producer({"bootstrap.servers": brokers, "linger.ms": 0, **own})
        if transactions:
            producer.init_transactions(60)
        while not ended.is_set():
            found = consumer.poll(0.1)
            if found is not None and found.error() is None:
                if transactions:
                    producer.begin_transaction()
                for _ in range(CHANGES_PER_ROW):
                    producer.produce(target, found.value(), partition=0)
                if transactions:
                    place = [confluent_kafka.TopicPartition(source, 0, found.offset() + 1)]
                    producer.send_offsets_to_transaction(place, consumer.consumer_group_metadata())
                    producer.commit_transaction(60)
                else:
                    producer.poll(0)
        producer.flush(60)
        consumer.close()

    thread = threading.Thread(target=loop)
    thread.start()
    ready.wait(60)
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _reader(brokers: str, topic: str) -> Any:
    """A plain consumer of what comes from now on."""
    options = {"bootstrap.servers": brokers, "group.id": f"reader-{topic}", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer(options | {"isolation.level": "read_committed"})
    _, end = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), timeout=60)
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, end)])
    return consumer


def latencies(brokers: str, source: str, target: str, keys: list[int]) -> list[float]:
    """Seconds from each message until both its changes were read."""
    producer = confluent_kafka.Producer({"bootstrap.servers": brokers, "linger.ms": 0})
    consumer, found = _reader(brokers, target), list[float]()
    for key in keys:
        started, seen = time.perf_counter(), 0
        producer.produce(source, message(key), partition=0)
        producer.flush(60)
        while seen < CHANGES_PER_ROW:
            read = consumer.poll(60)
            if read is None or read.error() is not None:
                raise SystemExit(f"no answer to a message: topic={target} key={key} error={read and read.error()}")
            seen += 1
        found.append(time.perf_counter() - started)
    consumer.close()
    return found[WARM_UP:]


def main() -> None:
    """Measure, print, keep."""
    parser = report.parser(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=300)
    parser.add_argument("--delay-ms", type=int, default=0)
    parser.add_argument("--runtime", nargs="*", choices=list(WORKERS), default=list(WORKERS))
    arguments = parser.parse_args()
    keys = np.random.default_rng(6).integers(0, arguments.rows, arguments.changes + WARM_UP).tolist()
    broker: Any = importlib.import_module("tests.kafka.broker").Broker().start()
    figures: dict[str, object] = {"rows": arguments.rows, "delay_ms": arguments.delay_ms}

    def measure(name: str, answers: Callable[[str, str], Any], rows: int) -> None:
        source, target = f"{name}-in", f"{name}-out"
        fill(broker.brokers, source, map(message, range(rows)))
        create(broker.brokers, target)
        with answers(source, target):
            median, p99 = milliseconds(latencies(broker.brokers, source, target, keys))
        figures.update({f"{name}_median_ms": median, f"{name}_p99_by_median": p99 / median})

    try:
        with tempfile.TemporaryDirectory(prefix="kafka-latency-") as box:
            for runtime in arguments.runtime:
                folder = Path(box) / runtime
                folder.mkdir()
                given = (broker.brokers, folder, runtime, arguments.delay_ms)
                measure(runtime, lambda *topics, given=given: ours(*given, *topics), arguments.rows)
        measure("bare_transactions", lambda *topics: bare(broker.brokers, *topics, transactions=True), 1)
        measure("bare", lambda *topics: bare(broker.brokers, *topics, transactions=False), 1)
    finally:
        broker.close()
    report.keep("kafka_latency", figures)


if __name__ == "__main__":
    main()
