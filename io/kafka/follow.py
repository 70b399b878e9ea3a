"""Following a topic: read the committed messages of all its partitions as they arrive, each from a given offset.

`Reader` reads ranges that a step record names. A follower does not know the next offsets: compacted topics and
markers leave gaps. The caller notes which messages it has taken. An offset that is gone, or never existed, is an
error.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from operator import methodcaller
from typing import Any

from dbsp.errors import ConfigError, DataError
from dbsp.io.kafka.client import FETCH_MESSAGES, KafkaSettings, kafka, make_consumer, translate, watermarks
from dbsp.io.kafka.own_client import OwnClient

GROWTH_CHECK_S = 10.0
"""Seconds between two counts of the partitions: added partitions, and a missing broker, are noticed then."""


class TopicFollower:
    """A follower of one topic, with a consumer of its own."""

    def __init__(self, settings: KafkaSettings, topic: str) -> None:
        """Store the settings; the first request connects."""
        self._settings, self.topic = settings, topic
        self._client = OwnClient(
            settings.properties, partial(make_consumer, settings, tells_ends=True), methodcaller("close")
        )
        self._next: dict[int, int] = {}
        """The next offset of each followed partition."""
        self._counted_at = 0.0

    def partitions(self) -> int:
        """Return the topic's current number of partitions; raise a `ConfigError` if the topic does not exist."""
        consumer = self._made()
        try:
            found = consumer.list_topics(self.topic, timeout=self._settings.timeout_s).topics.get(self.topic)
        except kafka().KafkaException as error:
            raise translate(error, f"asking for topic={self.topic}", self._settings.brokers) from error
        if found is None or found.error is not None or not found.partitions:
            raise ConfigError(f"no such topic: topic={self.topic}", "create it, or correct its name")
        self._counted_at = time.monotonic()
        return len(found.partitions)

    def is_due(self) -> bool:
        """Return whether no partition is followed yet, or `GROWTH_CHECK_S` have passed since the last count."""
        return not self._next or time.monotonic() - self._counted_at >= GROWTH_CHECK_S

    def follow(self, positions: Mapping[int, int | None]) -> None:
        """Follow these partitions too, each from its offset; None means the oldest message.

        **Errors** `DataError` if an offset is gone or does not exist yet.
        """
        consumer = self._made()
        for partition, position in positions.items():
            low, high = watermarks(self._settings, consumer, self.topic, partition)
            if position is not None and not low <= position <= high:
                raise DataError(
                    f"input offsets are missing from Kafka: topic={self.topic} partition={partition} first={position}"
                    f" kept={low}..{high}",
                    "restore the topic, or go on without them as docs/operations.md says",
                )
            self._next[partition] = low if position is None else position
        self._assign(consumer)

    def take(self, wait_s: float) -> dict[int, list[Any]]:
        """Return the messages that have arrived, per partition in order; wait at most `wait_s` for the first one."""
        consumer = self._made()
        first = consumer.poll(wait_s)
        events = [] if first is None else [first, *consumer.consume(FETCH_MESSAGES, timeout=0)]
        found: dict[int, list[Any]] = {}
        for event in events:
            error = event.error()
            if error is None:
                found.setdefault(event.partition(), []).append(event)
                self._next[event.partition()] = event.offset() + 1
            elif error.code() == kafka().KafkaError._PARTITION_EOF:
                self._next[event.partition()] = event.offset()
            elif not _passes(error):
                doing = f"following topic={self.topic} partition={event.partition()}"
                raise translate(error, doing, self._settings.brokers)
        return found

    def ends(self) -> dict[int, int]:
        """Ask the brokers for the current end of the committed messages, per followed partition."""
        return {
            partition: watermarks(self._settings, self._made(), self.topic, partition)[1] for partition in self._next
        }

    @property
    def next(self) -> Mapping[int, int]:
        """Return the next offset per followed partition: after the taken messages and the markers that follow them."""
        return dict(self._next)

    def behind(self) -> int:
        """Return the number of offsets that are not taken yet, according to the client's cached ends."""
        module, consumer = kafka(), self._made()
        total = 0
        for partition, position in self._next.items():
            bounds = consumer.get_watermark_offsets(module.TopicPartition(self.topic, partition), cached=True)
            total += max(0, bounds[1] - position) if bounds is not None else 0
        return total

    def _made(self) -> Any:
        """Return the consumer; a new one continues at the offsets of the previous one."""
        self._client.renew()
        made, consumer = self._client.made, self._client.current()
        if not made:
            self._assign(consumer)
        return consumer

    def _assign(self, consumer: Any) -> None:
        consumer.assign([kafka().TopicPartition(self.topic, *place) for place in self._next.items()])

    def close(self) -> None:
        """Close the consumer; the next call starts again with no followed partition."""
        self._client.close()
        self._next, self._counted_at = {}, 0.0


def _passes(error: Any) -> bool:
    """Return whether the client recovers by itself; the next count of partitions notices a broker that stays away."""
    return error.retriable() or error.code() in (kafka().KafkaError._TRANSPORT, kafka().KafkaError._ALL_BROKERS_DOWN)
