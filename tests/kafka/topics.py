"""What the tests do to topics with plain clients, as a stranger would."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import confluent_kafka

from dbsp.io.kafka import KafkaSettings
from dbsp.io.kafka.client import TopicReader


def send(
    settings: KafkaSettings,
    topic: str,
    values: Sequence[bytes | None],
    *,
    commit: bool | None = None,
    partition: int = 0,
    keys: Sequence[bytes | None] | None = None,
    sent_s: float | None = None,
) -> None:
    """Produce messages to one partition, some with keys; in a transaction that is committed or aborted if `commit` says so.

    `sent_s` is their timestamp, in seconds since 1970; without it they have that of now.
    """
    options: dict[str, Any] = {"bootstrap.servers": settings.brokers, "linger.ms": 5}
    if commit is not None:
        options["transactional.id"] = f"{settings.pipeline}-sender"
    producer = confluent_kafka.Producer(options)
    if commit is not None:
        producer.init_transactions(30)
        producer.begin_transaction()
    for value, key in zip(values, keys or [None] * len(values), strict=True):
        producer.produce(topic, value, key=key, partition=partition, timestamp=int((sent_s or 0.0) * 1000))
    assert producer.flush(30) == 0
    if commit is not None:
        (producer.commit_transaction if commit else producer.abort_transaction)(30)


def messages(settings: KafkaSettings, topic: str) -> Iterator[Any]:
    """All committed messages of a topic, by a plain read_committed consumer of its own.

    A commit is answered before its marker stands in every partition, and until then a partition ends, for who reads what is
    committed, below it. So whoever comes later reads up to where the partition ended for anybody when it was asked.
    """
    partitions = TopicReader(settings).partitions(topic)
    options = {"bootstrap.servers": settings.brokers, "group.id": "stranger", "enable.partition.eof": True}
    consumer = confluent_kafka.Consumer(options | {"isolation.level": "read_committed", "auto.offset.reset": "error"})
    consumer.assign(
        [confluent_kafka.TopicPartition(topic, p, confluent_kafka.OFFSET_BEGINNING) for p in range(partitions)]
    )
    ends = {p: _end(settings, topic, p) for p in range(partitions)}
    while ends:
        message = consumer.poll(30)
        assert message is not None
        if message.error() is None:
            yield message
        else:
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
            if message.offset() >= ends.get(message.partition(), 0):
                ends.pop(message.partition(), None)
    consumer.close()


def _end(settings: KafkaSettings, topic: str, partition: int) -> int:
    """Behind the last message of a partition, committed or not."""
    options = {"bootstrap.servers": settings.brokers, "group.id": "stranger", "isolation.level": "read_uncommitted"}
    consumer = confluent_kafka.Consumer(options)
    _, high = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, partition), timeout=30)
    consumer.close()
    return int(high)


def weighted(message: Any) -> tuple[int, tuple[Any, int]]:
    """(step, (row, weight)) of a JSON output message."""
    value = json.loads(message.value())
    operation = "insert" if "insert" in value else "delete"
    weight = value.get("weight", 1) * (1 if operation == "insert" else -1)
    return int(dict(message.headers())["step"]), (tuple(value[operation].values()), weight)
