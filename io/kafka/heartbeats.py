"""Heartbeats on Kafka: a topic of one partition, to which the coordinator writes while it runs and standbys listen.

All writers see the records in the topic's order. So if several standbys write at the same time, all agree on the first
one. Source: docs/design/0057-lease.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from dbsp.errors import AwayError
from dbsp.io.kafka.client import KafkaSettings, TopicReader, ensure_topic, kafka, make_plain_producer, translate
from dbsp.io.kafka.own_client import OwnClient
from dbsp.io.topic_names import HEARTBEATS
from dbsp.logs import Heartbeat

AN_HOUR_MS = str(3_600_000)
_KEPT = {"cleanup.policy": "delete", "retention.ms": AN_HOUR_MS, "segment.ms": AN_HOUR_MS}


def _decoded(value: Mapping[str, Any]) -> Heartbeat:
    return Heartbeat(
        of=value["of"], stopped=value["stopped"], pause_s=value["pause_s"], application=value["application"]
    )  # fmt: skip


class KafkaHeartbeats:
    """The heartbeats of one pipeline; see `dbsp.logs.Heartbeats`."""

    def __init__(self, settings: KafkaSettings) -> None:
        """Make the topic if it is absent.

        **Errors** `AwayError` if no broker answers, `ConfigError` without the right to make the topic.
        """
        self._settings, self._topic = settings, settings.topic(HEARTBEATS)
        self._reader = TopicReader(settings)
        self._producer = OwnClient(settings.properties, partial(make_plain_producer, settings))
        ensure_topic(settings, self._topic, 1, _KEPT)
        self._reader.partitions(self._topic)

    def beat(self, beat: Heartbeat, timeout_s: float) -> int:
        """Write a heartbeat; return its place once the brokers have it.

        **Errors** `AwayError` if they do not have it after `timeout_s`; it is not written later.
        """
        self._producer.renew()
        producer, delivered = self._producer.current(), list[tuple[Any, Any]]()
        value = json.dumps(asdict(beat)).encode()
        producer.produce(
            self._topic, value, partition=0, on_delivery=lambda error, message: delivered.append((error, message))
        )
        producer.flush(timeout_s)
        if not delivered:
            producer.purge()
            raise AwayError(f"a heartbeat was not written in time: topic={self._topic} seconds={timeout_s:g}")
        error, message = delivered[0]
        if error is not None:
            doing = f"writing a heartbeat: topic={self._topic}"
            raise translate(kafka().KafkaException(error), doing, self._settings.brokers)
        return int(message.offset())

    def end(self) -> int:
        """Return the place of the next heartbeat; it grows with each one."""
        return self._reader.bounds(self._topic, 0)[1]

    def read(self, first: int) -> Mapping[int, Heartbeat]:
        """Return the heartbeats from a place on by their places, as far as they are kept."""
        low, high = self._reader.bounds(self._topic, 0)
        messages = self._reader.read(self._topic, 0, max(low, first), high)
        return {message.offset(): _decoded(json.loads(message.value())) for message in messages}

    def close(self) -> None:
        """Drop the clients."""
        self._producer.close()
        self._reader.close()
