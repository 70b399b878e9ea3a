"""A transactional producer that recovers from its own failures: each transaction is known to be committed or not.

librdkafka lacks KIP-890: a commit that timed out may still be applied later, into the next transaction of the same
producer. So after any error the writer drops the producer and makes a new one with the same transactional id. The
broker then aborts or finishes the old transaction, and refuses the old producer. The end of the log shows which of
the two happened.

Kafka fences the producer that began earlier, not the one of the older epoch: a log's `settle` checks its epoch before
and after the take-over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any

from dbsp.errors import AwayError, CapacityError, FencedError, InternalError, UnavailableError
from dbsp.io.kafka.client import KafkaSettings, kafka, make_producer, translate
from dbsp.io.kafka.own_client import OwnClient

ATTEMPTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionRecords:
    """Messages of one topic, equal in all but value and key; with `partition` None the keys choose the partition."""

    topic: str
    values: Sequence[bytes | None]
    partition: int | None = None
    keys: Sequence[bytes] | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


class TransactionalWriter:
    """A writer of sets of records, each set in one transaction."""

    def __init__(self, settings: KafkaSettings, transactional_id: str, *, tells_offsets: bool = False) -> None:
        """Store the settings; the first take-over connects.

        With `tells_offsets` every write returns its offsets, which costs a call per message.
        """
        self._settings, self._tells_offsets = settings, tells_offsets
        self._id = transactional_id
        self._client = OwnClient(settings.properties, self._taken_over, _purge)

    @property
    def ready(self) -> bool:
        """Return whether this process has a producer that has taken over, has not failed since, and is not to be renewed."""
        self._client.renew()
        return self._client.made

    def take_over(self) -> None:
        """Take over the transactional id: fence older producers and abort an open transaction."""
        self._client.close()
        self._client.current()

    def _taken_over(self) -> Any:
        producer = make_producer(self._settings, self._id, failures_only=not self._tells_offsets)
        try:
            producer.init_transactions(self._settings.timeout_s)
        except kafka().KafkaException as error:
            raise translate(error, f"taking over transactional.id={self._id}", self._settings.brokers) from error
        return producer

    def write(self, records: Sequence[TransactionRecords], settle: Callable[[], bool]) -> list[int] | None:
        """Write all records in one transaction, committed on return.

        Return the offsets (an empty list without `tells_offsets`), or None if `settle` found the records in the log.

        `settle` is called after a failure. It takes over again, so that no later effect of the failed attempt is
        possible. It checks the owner, with a `FencedError` for a newer one, and returns whether the records are in
        the log.

        **Errors** `UnavailableError` after `ATTEMPTS` failures; `CapacityError` at once for a message that is too
        large.
        """
        if not self._client.made:
            raise InternalError(f"a write before the take-over: transactional.id={self._id}")
        failure: Exception | None = None
        for _ in range(ATTEMPTS):
            try:
                return self._attempt(records)
            except CapacityError:
                self.discard()
                raise
            except (UnavailableError, FencedError) as error:
                failure = error
                self.discard()
                if settle():
                    return None
        kind = AwayError if isinstance(failure, AwayError) else UnavailableError
        raise kind(
            f"a Kafka transaction failed again and again: transactional.id={self._id} attempts={ATTEMPTS} last={failure}",
            "look at the brokers; where a step's changes take longer to send than `transaction.timeout.ms` (60,000), raise it in"
            " the `properties` of [output], up to the brokers' `transaction.max.timeout.ms`",
        ) from failure

    def _attempt(self, records: Sequence[TransactionRecords]) -> list[int]:
        errors: list[Any] = []
        offsets: list[int] = []

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                errors.append(error)
            else:
                offsets.append(message.offset())

        try:
            self._client.current().begin_transaction()
            for alike in records:
                self._produce(alike, delivered)
            self._client.current().commit_transaction(self._settings.timeout_s)
        except kafka().KafkaException as error:
            cause = errors[0] if errors else error
            raise translate(cause, f"transactional.id={self._id}", self._settings.brokers) from error
        return offsets

    def _produce(self, records: TransactionRecords, delivered: Callable[[Any, Any], None]) -> None:
        """Queue the messages; wait while the queue is full."""
        alike: dict[str, Any] = {"headers": list(records.headers), "on_delivery": delivered}
        if records.partition is not None:
            alike["partition"] = records.partition
        produce = partial(self._client.current().produce, records.topic, **alike)
        keys = repeat(None, len(records.values)) if records.keys is None else records.keys
        for value, key in zip(records.values, keys, strict=True):
            try:
                produce(value, key)
            except BufferError:
                self._produce_when_there_is_room(records.topic, partial(produce, value, key))

    def _produce_when_there_is_room(self, topic: str, produce: Callable[[], None]) -> None:
        waited = 0.0
        while True:
            self._client.current().poll(0.1)
            waited += 0.1
            try:
                return produce()
            except BufferError as error:
                if waited > self._settings.timeout_s:
                    raise UnavailableError(f"Kafka takes no more messages: topic={topic}") from error

    def discard(self) -> None:
        """Drop the producer; the next take-over, or the broker's timeout, ends its open transaction."""
        self._client.close()


def _purge(producer: Any) -> None:
    """Forget the messages that a producer has not sent."""
    if hasattr(producer, "purge"):
        producer.purge()
