"""Kafka clients with the settings that correctness needs, and the reads that the logs are built from.

Every reader assigns partitions to explicit offsets. An offset that is gone is a `DataError` that names the offset.
Readers see only committed records, up to the last stable offset. Transaction markers take offsets too. So offsets
have gaps, and the highest offset is usually no record: a reader finds the end of a partition by the end-of-partition
event.

`confluent_kafka` is imported on first use: the package is optional, and a client must be made in the process that
uses it.
"""

from __future__ import annotations

import importlib
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from operator import methodcaller
from typing import Any

from dbsp.errors import AwayError, CapacityError, ConfigError, DataError, DbspError, FencedError, UnavailableError
from dbsp.io.kafka.own_client import OwnClient
from dbsp.io.topic_names import own_topic

FETCH_MESSAGES = 10_000
TRANSACTION_TIMEOUT, TRANSACTION_TIMEOUT_S = "transaction.timeout.ms", 60.0
SETTLE_S = 2.0
POLL_S = 0.005
WAIT_S = 0.2
TRY_S = 5.0
"""Seconds for which one client is asked for offsets. A client may miss that a broker has returned; a new one does not."""
METADATA_S = 10.0
"""Seconds for which a client uses its metadata of topics and leaders, unless a broker contradicts it."""
_AWAY = (
    "_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_TIMED_OUT_QUEUE", "_MSG_TIMED_OUT", "_RESOLVE", "_SSL", "_AUTHENTICATION",
    "_UNKNOWN_PARTITION", "_LEADER_NOT_AVAILABLE", "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "REQUEST_TIMED_OUT",
    "BROKER_NOT_AVAILABLE", "REPLICA_NOT_AVAILABLE", "NETWORK_EXCEPTION", "COORDINATOR_NOT_AVAILABLE",
    "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "KAFKA_STORAGE_ERROR", "OFFSET_NOT_AVAILABLE", "CONCURRENT_TRANSACTIONS", "_DESTROY_BROKER",
    "PREFERRED_LEADER_NOT_AVAILABLE", "SASL_AUTHENTICATION_FAILED",
)  # fmt: skip
"""Kafka's errors that say that a broker, or the leader of a partition, is away; a login may be renewed while it is.

A client ends its connection to a broker that has left the cluster (`_DESTROY_BROKER`). A transaction whose partition has no
leader can neither end nor be taken over (`CONCURRENT_TRANSACTIONS`).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """The addresses of the brokers, and the prefix of the pipeline's own topics and transactional ids.

    `properties` are further librdkafka settings, such as security; the settings that correctness needs cannot be
    changed. `timeout_s` bounds every wait for a broker: afterwards an `UnavailableError` names the request. New
    topics have `replication_factor` copies; -1 means the cluster's default.
    """

    brokers: str
    pipeline: str
    properties: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 30.0
    replication_factor: int = -1

    def topic(self, name: str) -> str:
        """Return the full name of the pipeline's own topic `name`."""
        return own_topic(self.pipeline, name)


def kafka() -> Any:
    """Return the `confluent_kafka` module; raise a `ConfigError` with the install command if it is absent."""
    try:
        return importlib.import_module("confluent_kafka")
    except ImportError as error:
        raise ConfigError("Kafka needs the package confluent-kafka", "pip install 'dbsp-engine[kafka]'") from error


def translate(error: Any, doing: str, brokers: str) -> DbspError:
    """Translate an error of Kafka into an error of the engine, by what its reader has to do.

    `FencedError`: stop. `CapacityError`: raise a limit. `DataError`: restore data. `ConfigError`: fix a setting.
    `AwayError`: wait. Any other code is an `UnavailableError`: try again.
    """
    module = kafka()
    cause = error.args[0] if isinstance(error, module.KafkaException) else error
    code = cause.code() if isinstance(cause, module.KafkaError) else None
    codes = module.KafkaError
    text = f"{doing} brokers={brokers}: {cause}"
    if code in (codes._FENCED, codes.INVALID_PRODUCER_EPOCH, codes.PRODUCER_FENCED):
        return FencedError(f"another owner has taken over: {text}")
    if code in (codes.MSG_SIZE_TOO_LARGE, codes.RECORD_LIST_TOO_LARGE):
        return CapacityError(f"a message is too large for Kafka: {text}", "raise message.max.bytes of client and topic")
    if code in (codes._AUTO_OFFSET_RESET, codes.OFFSET_OUT_OF_RANGE, codes._BAD_MSG, codes.INVALID_MSG):
        return DataError(f"Kafka does not have the requested records: {text}")
    if code in (codes.TOPIC_AUTHORIZATION_FAILED, codes._UNKNOWN_TOPIC, codes.UNKNOWN_TOPIC_OR_PART):
        return ConfigError(f"no such topic, or no right to it: {text}")
    if code in (codes._INVALID_ARG, codes.TOPIC_EXCEPTION):
        return ConfigError(
            f"Kafka refuses the settings: {text}", "look at `properties`, topics and the pipeline's name"
        )
    if code in {getattr(codes, name) for name in _AWAY if hasattr(codes, name)}:
        return AwayError(f"Kafka does not answer: {text}")
    return UnavailableError(f"Kafka refuses: {text}")


def admin_module() -> Any:
    """Return the `confluent_kafka.admin` module."""
    kafka()
    return importlib.import_module("confluent_kafka.admin")


def make_admin(settings: KafkaSettings) -> Any:
    """Return a new admin client."""
    return admin_module().AdminClient(_base(settings))


def make_consumer(settings: KafkaSettings, *, isolation: str = "read_committed", tells_ends: bool = False) -> Any:
    """Return a consumer without a consumer group: the caller assigns offsets, and the brokers store none.

    An offset that is gone is an error. With `tells_ends` the consumer reports the end of each partition as an event.
    """
    fixed = {
        "group.id": f"{settings.pipeline}-reader",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "isolation.level": isolation,
        "auto.offset.reset": "error",
        "enable.partition.eof": tells_ends,
        "check.crcs": True,
        "fetch.wait.max.ms": 50,
        "fetch.queue.backoff.ms": 10,
    }
    return kafka().Consumer(_base(settings) | fixed)


def make_producer(settings: KafkaSettings, transactional_id: str, *, failures_only: bool = False) -> Any:
    """Return a transactional producer; the caller calls `init_transactions`.

    With `failures_only` the producer reports the messages that failed, and no others. The user may set
    `transaction.timeout.ms`: a transaction that a dead owner left open delays the readers of committed records that
    long.

    **Errors** `ConfigError` if this timeout is not a number.
    """
    given = settings.properties.get(TRANSACTION_TIMEOUT, str(int(1000 * TRANSACTION_TIMEOUT_S)))
    if not given.isdecimal():
        raise ConfigError(f"not a number of milliseconds: {TRANSACTION_TIMEOUT}={given}", "correct it in `properties`")
    limit_ms = int(given)
    fixed = {
        "transactional.id": transactional_id,
        "enable.idempotence": True,
        "acks": "all",
        TRANSACTION_TIMEOUT: limit_ms,
        "message.timeout.ms": min(limit_ms, int(1000 * settings.timeout_s)),
        "linger.ms": 20,  # a commit sends waiting messages at once
        "delivery.report.only.error": failures_only,
    }
    return kafka().Producer(_base(settings) | fixed)


def make_plain_producer(settings: KafkaSettings) -> Any:
    """Return a producer without transactions, whose messages are sent at once and are not sent late."""
    fixed = {"acks": "all", "linger.ms": 0, "message.timeout.ms": int(1000 * settings.timeout_s)}
    return kafka().Producer(_base(settings) | fixed)


def _base(settings: KafkaSettings) -> dict[str, Any]:
    quiet = {"topic.metadata.refresh.interval.ms": int(1000 * METADATA_S)}
    quiet |= {"log_level": 2, "reconnect.backoff.max.ms": 1000, "socket.timeout.ms": int(1000 * settings.timeout_s)}
    return quiet | dict(settings.properties) | {"bootstrap.servers": settings.brokers}


def watermarks(
    settings: KafkaSettings, consumer: Any, topic: str, partition: int, settle_s: float = SETTLE_S,
    timeout_s: float | None = None,
) -> tuple[int, int]:  # fmt: skip
    """Return the first kept offset and the last stable one; for a consumer of uncommitted records the end of the log.

    A broker that does not know the partition (yet, or any more) is asked again for `settle_s`. Before each retry the
    client asks for the leader, because its metadata may be older than the partition.
    """
    place, doing = (
        kafka().TopicPartition(topic, partition),
        f"asking for offsets of topic={topic} partition={partition}",
    )
    deadline = time.monotonic() + settle_s
    pause, pause_s = threading.Event(), POLL_S
    while True:
        try:
            found = consumer.get_watermark_offsets(place, timeout=timeout_s or settings.timeout_s, cached=False)
        except kafka().KafkaException as error:
            if not _settles(error) or time.monotonic() >= deadline:
                raise translate(error, doing, settings.brokers) from error
            pause.wait(pause_s)
            pause_s = min(2 * pause_s, WAIT_S)
            _ask_anew(settings, consumer, topic)
        else:
            if found is None:
                raise AwayError(f"Kafka does not answer: {doing} brokers={settings.brokers}")
            return int(found[0]), int(found[1])


def _ask_anew(settings: KafkaSettings, consumer: Any, topic: str) -> None:
    """Refresh the client's metadata of a topic, for its next request; ignore errors of Kafka."""
    with suppress(kafka().KafkaException):
        consumer.list_topics(topic, timeout=settings.timeout_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A range to read: the offsets of a partition from `first` to before `last`."""

    topic: str
    partition: int
    first: int
    last: int

    def __str__(self) -> str:
        """Return the range as error messages name it."""
        return f"topic={self.topic} partition={self.partition} first={self.first} last={self.last}"


class TopicReader:
    """A reader of committed records in explicit ranges; each process, also a forked one, makes its own consumers."""

    def __init__(self, settings: KafkaSettings) -> None:
        """Store the settings; the first read connects."""
        self._settings = settings
        self._committed, self._uncommitted = (
            OwnClient(
                settings.properties,
                partial(make_consumer, settings, isolation=isolation, tells_ends=True),
                methodcaller("close"),
            )
            for isolation in ("read_committed", "read_uncommitted")
        )
        """The consumers of committed and of all records; the second is asked only for the end of the log."""
        self.settle_s = SETTLE_S
        """Seconds for which a broker that does not know a topic or partition is asked again."""
        self._next: tuple[str, int, int] | None = None
        """The (topic, partition, offset) that the consumer fetches next; None if it is assigned to nothing."""
        self._ahead: list[Any] = []
        """Events from `_next` on that have already arrived."""

    def _consumer(self) -> Any:
        """Return this process's consumer of committed records."""
        if not self._committed.made:
            self._next = None
        return self._committed.current()

    def partitions(self, topic: str, wanted: int = 1) -> int:
        """Return the number of partitions of a topic.

        A broker learns of new topics and partitions with a delay, also after its own start. So the reader waits
        `settle_s` before it returns fewer than `wanted`.

        **Errors** `ConfigError` if the topic is still absent after this time.
        """
        with self._renewed_if_away():
            return self._partitions(topic, wanted)

    def _partitions(self, topic: str, wanted: int) -> int:
        deadline = time.monotonic() + self.settle_s
        pause = threading.Event()
        while True:
            try:
                metadata = self._consumer().list_topics(topic, timeout=self._settings.timeout_s)
            except kafka().KafkaException as error:
                raise translate(error, f"asking for topic={topic}", self._settings.brokers) from error
            found = metadata.topics.get(topic)
            count = 0 if found is None or found.error is not None else len(found.partitions)
            if count >= wanted:
                return count
            if time.monotonic() >= deadline:
                if count:
                    return count
                story = f"topic={topic} brokers={self._settings.brokers}"
                raise ConfigError(f"no such topic: {story}", "create it, or correct its name")
            pause.wait(POLL_S)

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """Return the first kept offset and the last stable offset of a partition."""
        with self._renewed_if_away():
            return self._bounds(topic, partition)

    def _bounds(self, topic: str, partition: int) -> tuple[int, int]:
        return self._asked(self._consumer, topic, partition)

    def _asked(self, client: Callable[[], Any], topic: str, partition: int) -> tuple[int, int]:
        """Return the bounds as a client sees them; make a new client after `TRY_S` without an answer, for `timeout_s` in all."""
        until = time.monotonic() + self._settings.timeout_s
        while True:
            begun, left = time.monotonic(), until - time.monotonic()
            try:
                limit = min(TRY_S, max(left, POLL_S))
                return watermarks(self._settings, client(), topic, partition, self.settle_s, limit)
            except AwayError:
                self.close()
                if time.monotonic() - begun < 0.9 * limit or time.monotonic() >= until:  # it is known to be away
                    raise

    def _renew(self) -> None:
        for client in (self._committed, self._uncommitted):
            client.renew()

    def look(self, timeout_s: float) -> None:
        """Wait until a broker answers.

        **Errors** `AwayError` if none answers within `timeout_s`.
        """
        with self._renewed_if_away():
            try:
                self._consumer().list_topics(timeout=timeout_s)
            except kafka().KafkaException as error:
                raise translate(error, "looking for a broker", self._settings.brokers) from error

    @contextmanager
    def _renewed_if_away(self) -> Iterator[None]:
        """Renew the clients if their certificates were; close them when a broker is away, so that addresses are read again."""
        self._renew()
        try:
            yield
        except AwayError:
            self.close()
            raise

    def settled_bounds(self, topic: str, partition: int, known: int = 0) -> tuple[int, int]:
        """Return the same as `bounds`, after waiting at most `SETTLE_S` for open transactions to end.

        A commit returns before the broker writes its marker, so the last stable offset may lag behind committed
        records. Records below `known` are known to be committed: the reader waits `timeout_s` until the stable offset
        reaches `known`.

        **Law** The returned end is below `known` only if the log itself ends there: records were lost. **Errors**
        `AwayError` if `known` is in the log and not stable after this time.
        """
        begun = time.monotonic()
        pause = threading.Event()
        while True:
            with self._renewed_if_away():
                end = self._asked(self._uncommitted.current, topic, partition)[1]
            low, stable = self.bounds(topic, partition)
            waited = time.monotonic() - begun
            if stable >= end or (waited > SETTLE_S and not stable < known <= end):
                return low, stable
            if waited > max(SETTLE_S, self._settings.timeout_s):
                raise AwayError(
                    f"Kafka has not finished a transaction: topic={topic} partition={partition} known={known} stable={stable}"
                    f" brokers={self._settings.brokers}"
                )
            pause.wait(POLL_S)

    def read(self, topic: str, partition: int, first: int, last: int, *, go_on: bool = False) -> Iterator[Any]:
        """Return the committed messages with `first <= offset < last`.

        `last` is at most the last stable offset. With `go_on` the client fetches past `last`, up to 64 MiB, in
        advance for a read that begins at `last`.

        **Errors** `DataError` names offsets that are gone; `AwayError` if nothing arrives for `timeout_s`.
        """
        return chain.from_iterable(self._read(topic, partition, first, last, go_on))

    def _read(self, topic: str, partition: int, first: int, last: int, go_on: bool) -> Iterator[list[Any]]:
        """Yield the messages of a range in the lists in which they arrive."""
        if first >= last:
            return
        place = _Place(topic=topic, partition=partition, first=first, last=last)
        self._renew()
        consumer = self._consumer()
        if self._next != (topic, partition, first):
            self._refuse_missing(place, *self._bounds(topic, partition))
            consumer = self._consumer()
            consumer.assign([kafka().TopicPartition(topic, partition, first)])
            self._ahead = []
        self._next, whole = None, False
        try:
            yield from self._until(place)
            whole = True
        except kafka().KafkaException as error:
            raise translate(error, f"reading {place}", self._settings.brokers) from error
        finally:
            if whole and go_on:
                self._next = (topic, partition, last)
            elif whole:
                consumer.unassign()
            else:
                self.close()  # the client may hold events of the failed read: the next read makes a new one

    def _refuse_lost(self, place: _Place, begun: bool) -> None:
        """Raise a `DataError` if offsets of a range that is being read are gone; the client stays, as it has the range."""
        bounds = watermarks(self._settings, self._consumer(), place.topic, place.partition, self.settle_s)
        self._refuse_missing(place, *bounds, begun=begun)

    def _refuse_missing(self, place: _Place, low: int, high: int, *, begun: bool = False) -> None:
        """Raise a `DataError` if offsets of a range are not kept; once a read has `begun`, its first ones may be gone."""
        if (place.first < low and not begun) or place.last > high:
            raise DataError(f"input offsets are missing from Kafka: {place} kept={low}..{high}", "restore the topic")

    def _until(self, place: _Place) -> Iterator[list[Any]]:
        """Yield messages up to one at or after `last - 1`, or up to the end of the partition at or after `last`.

        A read that continues at the previous end does not check the bounds first: that request would wait for the
        fetch under way. The messages themselves show that the offsets exist. If no message arrives, records may be
        lost, and the bounds are checked.
        """
        last, deadline, begun = place.last, time.monotonic() + self._settings.timeout_s, False
        while True:
            events = _of_place(self._available(), place.topic, place.partition)
            flawed = any(map(kafka().Message.error, events))
            if flawed:
                events = self._without_ends(events, place, begun)
            inside = bisect_left(events, last, key=kafka().Message.offset)
            messages, self._ahead = events[:inside], events[inside:]
            if flawed:
                messages = [each for each in messages if each.error() is None]
            yield messages
            if self._ahead or (messages and messages[-1].offset() == last - 1):
                return
            if messages:
                deadline, begun = time.monotonic() + self._settings.timeout_s, True
            elif time.monotonic() > deadline:
                raise AwayError(f"Kafka does not answer: reading {place} brokers={self._settings.brokers}")
            elif not events:
                self._refuse_lost(place, begun)

    def _without_ends(self, events: list[Any], place: _Place, begun: bool) -> list[Any]:
        """Return messages and end-of-partition events; drop transient errors and raise all others."""
        try:
            return [each for each in events if each.error() is None or self._ends(each.error(), place)]
        except DataError:
            self._refuse_lost(place, begun)  # its error names the offsets that are kept
            raise

    def _ends(self, error: Any, place: _Place) -> bool:
        """Return True for the end of the partition, False for a transient error; raise any other error."""
        codes = kafka().KafkaError
        if error.code() == codes._PARTITION_EOF:
            return True
        if error.code() == codes._UNKNOWN_PARTITION:
            _ask_anew(self._settings, self._consumer(), place.topic)
            return False
        if error.retriable() or error.code() in (codes._TRANSPORT, codes._ALL_BROKERS_DOWN):
            return False
        raise translate(error, f"reading {place}", self._settings.brokers)

    def _available(self) -> list[Any]:
        """Wait for one event, then add all others that have arrived: `consume` alone would wait for a full set.

        The events may include some of a partition that was read before.
        """
        if self._ahead:
            return self._ahead
        first = self._consumer().poll(WAIT_S)
        return [] if first is None else [first, *self._consumer().consume(FETCH_MESSAGES, timeout=0)]

    def last_message(self, topic: str, partition: int) -> Any:
        """Return the newest committed message of a partition, or None if there is none.

        Transaction markers at the end make a short range empty, so each further range is longer.
        """
        low, high = self.settled_bounds(topic, partition)
        step = 2
        while high > low:
            first = max(low, high - step)
            messages = list(self.read(topic, partition, first, high))
            if messages:
                return messages[-1]
            if first == low:
                return None
            step *= 4
        return None

    def close(self) -> None:
        """Close this process's consumers."""
        for client in (self._committed, self._uncommitted):
            client.close()
        self._next, self._ahead = None, []


def _of_place(events: list[Any], topic: str, partition: int) -> list[Any]:
    """Return the events of one partition; others may be left over from an earlier read."""
    message = kafka().Message
    if set(zip(map(message.topic, events), map(message.partition, events), strict=True)) <= {(topic, partition)}:
        return events
    return [each for each in events if each.partition() == partition and each.topic() == topic]


def _settles(error: Any) -> bool:
    """Return whether the error is transient: the partition is being made, or its leader is changing."""
    codes = kafka().KafkaError
    unsettled = (
        codes.NOT_LEADER_FOR_PARTITION,
        codes.LEADER_NOT_AVAILABLE,
        codes.UNKNOWN_TOPIC_OR_PART,
        codes._UNKNOWN_PARTITION,
    )
    return error.args[0].code() in unsettled


def _answer(asked: Any, settings: KafkaSettings, doing: str) -> Any:
    """Return the brokers' answer to an admin request; raise an `AwayError` if none arrives in time."""
    try:
        return asked.result(timeout=settings.timeout_s)
    except TimeoutError as error:
        raise AwayError(f"Kafka does not answer: {doing} brokers={settings.brokers}") from error


def ensure_topic(settings: KafkaSettings, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
    """Create a topic if it is absent, and add partitions if it has fewer than `partitions`."""
    module = admin_module()
    admin, wait = make_admin(settings), settings.timeout_s
    new = module.NewTopic(topic, partitions, settings.replication_factor, config=dict(config or {}))
    codes = kafka().KafkaError
    try:
        _answer(admin.create_topics([new], operation_timeout=wait)[topic], settings, f"creating topic={topic}")
    except kafka().KafkaException as error:
        if error.args[0].code() != codes.TOPIC_ALREADY_EXISTS:
            raise translate(error, f"creating topic={topic}", settings.brokers) from error
        _widen(settings, admin, module, topic, partitions)


def _widen(settings: KafkaSettings, admin: Any, module: Any, topic: str, partitions: int) -> None:
    wait = settings.timeout_s
    try:
        if len(admin.list_topics(topic, timeout=wait).topics[topic].partitions) < partitions:
            more = module.NewPartitions(topic, partitions)
            made = admin.create_partitions([more], operation_timeout=wait)[topic]
            _answer(made, settings, f"adding partitions to topic={topic}")
    except kafka().KafkaException as error:
        if error.args[0].code() != kafka().KafkaError.INVALID_PARTITIONS:
            raise translate(error, f"adding partitions to topic={topic}", settings.brokers) from error


def topic_config(settings: KafkaSettings, topic: str) -> dict[str, str]:
    """Return the topic's settings on the broker."""
    module = admin_module()
    resource = module.ConfigResource(module.ConfigResource.Type.TOPIC, topic)
    admin = make_admin(settings)  # held: its futures fail when it is collected
    doing = f"asking for the settings of topic={topic}"
    try:
        found = _answer(admin.describe_configs([resource])[resource], settings, doing)
    except kafka().KafkaException as error:
        raise translate(error, doing, settings.brokers) from error
    return {name: entry.value for name, entry in found.items()}


def refuse_compaction(settings: KafkaSettings, topic: str) -> None:
    """Raise a `ConfigError` if the topic is compacted: its records could not all be read again."""
    policy = topic_config(settings, topic).get("cleanup.policy") or ""
    if "compact" in policy:
        hint = 'copy it into an embedded input (kind = "embedded", with `topics`), or set cleanup.policy=delete'
        raise ConfigError(f"a compacted topic cannot be replayed: topic={topic} cleanup.policy={policy}", hint)


class Trimmer:
    """A client that deletes old records of logs, and lives as long as its log.

    A new admin client sometimes waits a second or more until it knows the leader of the partition. Steps would wait
    as long, so one client serves all deletions.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        """Store the settings; the first deletion connects."""
        self._settings = settings
        self._client = OwnClient(settings.properties, lambda: make_admin(settings))

    def delete_below(self, topic: str, partition: int, offset: int) -> None:
        """Delete the records below an offset, or all records if the offset is -1."""
        self._client.renew()
        place = kafka().TopicPartition(topic, partition, offset)
        doing = f"trimming topic={topic} partition={partition} offset={offset}"
        try:
            _answer(self._client.current().delete_records([place])[place], self._settings, doing)
        except kafka().KafkaException as error:
            self._client.close()  # the next client reads addresses again
            raise translate(error, doing, self._settings.brokers) from error
