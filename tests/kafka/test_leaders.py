"""Fault row 44: leaders move to another broker, and a broker is replaced by one under a new address."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ElectionType, TopicPartition

from dbsp.io.kafka import KafkaSettings
from dbsp.io.kafka.client import ensure_topic
from tests.kafka.broker import Broker
from tests.kafka.test_inputs_wait import count, order, processed, running, settle
from tests.spark.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.soak, pytest.mark.timeout(600)]


PARTITIONS = 4


@pytest.fixture
def first() -> Iterator[Broker]:
    with closing(Broker(copies=2).start()) as made:
        yield made


def joined(first: Broker) -> Broker:
    """The second broker of the cluster, with nothing on its disk and a new address."""
    return Broker(joins=first, node=2).start()


def partitions(first: Broker, topic: str) -> dict[int, Any]:
    return dict(first.admin().list_topics(topic, timeout=30).topics[topic].partitions)


def leaders(first: Broker, topic: str) -> set[int]:
    return {each.leader for each in partitions(first, topic).values()}


def test_leaders_move_and_a_broker_is_replaced(first: Broker, tmp_path: Path) -> None:
    with closing(joined(first)) as second:
        mine = KafkaSettings(
            brokers=f"{first.brokers},{second.brokers}", pipeline=f"p{uuid.uuid4().hex[:8]}", replication_factor=2
        )
        path, topic = settle(mine, tmp_path), f"{mine.pipeline}.orders"
        ensure_topic(mine, topic, PARTITIONS)
        until(lambda: leaders(first, topic) == {1, 2}, "each broker leads a partition")
        with running(path) as service:
            for partition in range(PARTITIONS):
                order(mine, partition, partition=partition)
                processed(service, "orders", partition, 1)
            second.kill()
            until(lambda: leaders(first, topic) == {1}, "the leaders have moved")
            for partition in range(PARTITIONS):
                order(mine, PARTITIONS + partition, partition=partition)
                processed(service, "orders", partition, 2)
            with closing(joined(first)) as instead:
                assert instead.brokers != second.brokers
                until(
                    lambda: all(len(each.isrs) == 2 for each in partitions(first, topic).values()),
                    "its copies are whole",
                )
                both = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
                admin = first.admin()
                admin.elect_leaders(ElectionType.PREFERRED, both).result(60)
                until(lambda: leaders(first, topic) == {1, 2}, "the new broker leads a partition")
                for partition in range(PARTITIONS):
                    order(mine, 2 * PARTITIONS + partition, partition=partition)
                    processed(service, "orders", partition, 3)
                assert count(service, "ordered") == 3 * PARTITIONS
                assert service.snapshot.last_error is None
