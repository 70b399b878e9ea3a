"""Kafka topics as the input log: one topic per table, with Kafka's own offsets.

Invariants:

- A range is half open in Kafka offsets, with gaps at transaction markers and at aborted records. Its end never passes
  the last stable offset.
- A second read of a range gives the same changes and the same dead letters, because each message is decoded by itself
  (10).
- Partitions that are added later are read too.
- Offsets that are gone are an error that names them; compacted topics are refused.
- A table waits, and delays no other table, while its topic, leader, brokers or registry are away. The same holds for
  a table with a message that no setting explains.

A message holds no row, one row or several, in the table's format (`dbsp.io.kafka.messages`); all rows of a message
have its offset. The log writes nothing to the topics, and `trim` does nothing: the owner of a topic sets its
retention. Source: docs/concepts/logs.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dbsp.algebra.table import Table
from dbsp.errors import AwayError, ConfigError, RowsError, UnavailableError
from dbsp.io.changes import changes_of
from dbsp.io.formats.avro.registry import SchemasAtHand
from dbsp.io.formats.json_rows import text_of
from dbsp.io.formats.runs import Decoded
from dbsp.io.kafka.client import SETTLE_S, KafkaSettings, TopicReader, kafka, refuse_compaction
from dbsp.io.kafka.messages import MessageReader, MessageReading, reader_of
from dbsp.io.kafka.topic_ids import TopicIds
from dbsp.io.pushed import PAYLOAD_CHARS_MAX
from dbsp.io.waits import AGAIN_S, Waits
from dbsp.logs import Changes, Range, Waiting
from dbsp.logs.sizes import Sizes, even
from dbsp.logs.step_commands import DroppedRow, unreadable

BYTES_PER_ROW_UNKNOWN = 128.0
GROWTH_CHECK_S = 10.0
"""Seconds until partitions that were added to a topic are noticed."""
ASK_S, LOOK_S = 5.0, 1.0
"""In seconds: the coordinator's longest wait for one answer, and for any answer of brokers that were away.

Both are short, because no other input is read during the wait.
"""
WEIGHED_FROM = 1_000
"""Rows are sampled for their size only if at least this many wait: fewer rows are small even in Kafka's largest messages."""
WEIGHED_ROWS = 50
"""The number of sampled messages, both from the start and from the middle of the backlog."""
WEIGH_EVERY_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSource:
    """The topic of a table, and the format of its messages."""

    table: Table
    topic: str
    format: str = "json"
    reading: MessageReading = field(default_factory=MessageReading)

    def reader(self) -> MessageReader:
        """Return the decoder of the topic's messages; raise a `ConfigError` for an unknown format."""
        return reader_of(self.format, self.table, self.reading)


class KafkaInputLog:
    """The input log of one pipeline on Kafka; see `dbsp.logs.InputLog`.

    **State** the number of partitions of each topic, the ends that `ends` last returned, and the waiting tables with
    their reasons.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        sources: Sequence[KafkaSource],
        *,
        check_topics: bool = True,
        growth_check_s: float = GROWTH_CHECK_S,
        again_s: float = AGAIN_S,
    ) -> None:
        """Store the settings; unless `check_topics` is set, the first request connects.

        `check_topics` refuses compacted topics at once; workers leave this check to the coordinator. `ends` looks for
        added partitions at most every `growth_check_s`. A table whose broker, leader, topic or registry is away
        waits, and is asked for again every `again_s`.
        """
        asks = replace(settings, timeout_s=min(ASK_S, settings.timeout_s))
        self._sources = {source.table.name: source for source in sources}
        self._reader, self._asker = TopicReader(settings), TopicReader(asks)
        self._readers = {source.table.name: source.reader() for source in sources}
        self._partitions: dict[str, int] = {}
        self._growth_check_s = growth_check_s
        self._counted_at: dict[str, float] = {}
        self._weights: dict[str, float] = {}
        self._weighed_at: dict[str, float] = {}
        self._waits, self._brokers_away = Waits(again_s), False
        self._ids = TopicIds(asks, [source.topic for source in sources])
        self._schemas = {
            source.table.name: SchemasAtHand(source.reading.registry)
            for source in sources
            if source.reading.registry is not None and source.format.endswith("avro")
        }
        self._told: dict[tuple[str, int], int] = {}
        if check_topics:
            for source in sources:
                self._reader.partitions(source.topic)
                self._ids.has_changed(source.topic)  # notes the topic's id; it cannot differ yet
                refuse_compaction(settings, source.topic)

    def partitions(self, table: str) -> int:
        """Return the number of partitions of the table's topic, as of the last count."""
        if table not in self._partitions:
            self._partitions[table] = self._asker.partitions(self._source(table).topic)
            self._counted_at[table] = time.monotonic()
        return self._partitions[table]

    def ends(self) -> Mapping[tuple[str, int], int]:
        """Return the last stable offset per (table, partition), without the tables that wait."""
        return self._asked(self._ends_of)

    def floors(self) -> Mapping[tuple[str, int], int]:
        """Return the first offset that Kafka still keeps per (table, partition), without the tables that wait."""
        return self._asked(lambda table: self._bounds(table, 0))

    def waits(self) -> Sequence[Waiting]:
        """Return the tables that wait; see `dbsp.logs.TellsWaits`."""
        return self._waits.all()

    def hold(self, table: str, reason: str) -> None:
        """Make a table wait, for this reason."""
        self._waits.note(table, self._place(table), reason)

    def refuse(self, table: str, reason: str) -> None:
        """Make a table wait for a user's decision; see `dbsp.logs.RefusesRows`."""
        self._waits.refuse(table, self._place(table), reason)

    def release(self, table: str) -> None:
        """End a table's wait for a decision."""
        self._waits.release(table)

    def _asked(self, ask: Callable[[str], dict[tuple[str, int], int]]) -> dict[tuple[str, int], int]:
        """Ask for each table that does not wait, and return all results together.

        A broker that fails one request may serve others, so each table is asked for separately. Only if no broker
        answers any request do all tables wait.
        """
        found: dict[tuple[str, int], int] = {}
        for table in self._sources:
            if self._waits.rests(table) or (self._brokers_away and not self._brokers_answer()):
                continue
            self._asker.settle_s = 0.0 if self._waits.waits(table) else SETTLE_S
            try:
                found |= ask(table)
            except AwayError as error:
                self.hold(table, error.message)
                self._counted_at.pop(
                    table, None
                )  # count again next time: the topic may be gone, and that error says more
                self._brokers_answer()
            except (UnavailableError, ConfigError) as error:
                self.hold(table, error.message)
            else:
                self._waits.clear(table)
        return found

    def _brokers_answer(self) -> bool:
        """Return whether any broker answers; if none does, make all tables wait."""
        try:
            self._asker.look(LOOK_S)
        except UnavailableError as error:
            self._brokers_away = True
            for table in self._sources:
                self.hold(table, error.message)
            return False
        self._brokers_away = False
        return True

    def _ends_of(self, table: str) -> dict[tuple[str, int], int]:
        """Return the ends of a table's partitions.

        **Errors** `UnavailableError` if the topic was deleted and made again, or ends below a known end; `AwayError`
        if the registry does not answer.
        """
        topic = self._source(table).topic
        if topic in self._ids.changed() or (self._waits.waits(table) and self._ids.has_changed(topic)):
            raise UnavailableError(f"the topic was deleted and made again: topic={topic}")
        self._count_again(table)
        found = self._bounds(table, 1)
        for place, end in found.items():
            if end < (known := self._told.get(place, 0)):
                story = f"topic={topic} partition={place[1]} end={end} known_end={known}"
                raise UnavailableError(f"the topic ends below what it had: was it deleted and made again? {story}")
        if table in self._schemas and any(end > self._told.get(place, 0) for place, end in found.items()):
            self._schemas[table].refuse_away()
        self._told |= found
        return found

    def _count_again(self, table: str) -> None:
        """Count the topic's partitions when a count is due; a broker with older metadata never lowers the number."""
        known, now = self.partitions(table), time.monotonic()
        if now - self._counted_at.get(table, -self._growth_check_s) >= self._growth_check_s:
            self._counted_at[table] = now
            self._partitions[table] = max(known, self._asker.partitions(self._source(table).topic))

    def _bounds(self, table: str, side: int) -> dict[tuple[str, int], int]:
        topic = self._source(table).topic
        return {
            (table, partition): self._asker.bounds(topic, partition)[side]
            for partition in range(self.partitions(table))
        }

    def _place(self, table: str) -> str:
        return f"topic={self._source(table).topic}"

    def read(self, range_: Range, step: int) -> Sequence[Changes]:
        """Return the changes of one range as one piece, or none if it has no messages.

        **Errors** `DataError` names the offsets if part of the range is gone; `RowsError` names a message that the
        settings do not explain.
        """
        source = self._source(range_.table)
        try:
            messages = list(self._reader.read(source.topic, range_.partition, range_.first, range_.last, go_on=True))
        except ConfigError as error:  # the step is logged, and only this topic has its rows: wait for it
            raise AwayError(f"rows of a step cannot be read: step={step} {error.message}", error.hint) from error
        if not messages:
            return []
        try:
            push, rows = decoded(self._readers[range_.table], messages)
        except ConfigError as error:
            raise _unreadable(self._readers[range_.table], messages, range_, source.topic, error) from error
        offsets = np.repeat(np.fromiter(map(kafka().Message.offset, messages), np.int64, len(messages)), rows)
        size = sum(map(len, messages))
        return [changes_of(push, range_, step, offsets, stored_bytes=size, arrived_s=sent_s(messages[0]))]

    def sizes(self, waiting: Sequence[Range]) -> Mapping[tuple[str, int], Sizes]:
        """Estimate the bytes of waiting ranges, evenly per offset.

        The estimate is the mean size of the rows that were sampled last. A table that never had many waiting rows
        gets a guess.
        """
        self._weigh_some(waiting)
        return {
            (each.table, each.partition): even(
                each.first, each.last, self._weights.get(each.table, BYTES_PER_ROW_UNKNOWN)
            )
            for each in waiting
        }

    def _weigh_some(self, waiting: Sequence[Range]) -> None:
        """Sample waiting rows of each table that has many, at most every `WEIGH_EVERY_S`.

        Brokers report the number of rows, but not their size. A logged step must read all its rows at every attempt,
        so its size has to be bounded in advance.
        """
        for table in {range_.table for range_ in waiting}:
            mine = [range_ for range_ in waiting if range_.table == table]
            if sum(each.last - each.first for each in mine) < WEIGHED_FROM:
                continue
            now = time.monotonic()
            if now - self._weighed_at.get(table, -WEIGH_EVERY_S) >= WEIGH_EVERY_S:
                self._weighed_at[table] = now
                try:
                    self._weights[table] = self._weigh(max(mine, key=lambda each: each.last - each.first))
                except UnavailableError as error:
                    self.hold(table, error.message)

    def _weigh(self, range_: Range) -> float:
        """Return the mean bytes per offset of some rows of one partition, from its beginning and its middle."""
        topic, middle = self._source(range_.table).topic, (range_.first + range_.last) // 2
        size = rows = 0
        for first in (range_.first, middle):
            last = min(first + WEIGHED_ROWS, range_.last)
            size += sum(map(len, self._reader.read(topic, range_.partition, first, last)))
            rows += last - first
        return max(size / rows, 1.0)

    def trim(self, positions: Mapping[tuple[str, int], int]) -> None:
        """Do nothing: the owner of a topic sets its retention."""

    def close(self) -> None:
        """Close all clients."""
        self._reader.close()
        self._asker.close()
        self._ids.close()
        for schemas in self._schemas.values():
            schemas.close()

    def _source(self, table: str) -> KafkaSource:
        if table not in self._sources:
            raise ConfigError(f"no such table: table={table} tables={sorted(self._sources)}")
        return self._sources[table]


def _unreadable(
    reader: MessageReader, messages: Sequence[Any], range_: Range, topic: str, error: ConfigError
) -> RowsError:
    """Return the error that halts before the step of these messages; it names the first refused message."""
    message, payload = first_refused(reader, messages)
    place = f"table={range_.table} topic={topic} partition={range_.partition} offset={message.offset()}"
    row = DroppedRow(table=range_.table, partition=range_.partition, offset=message.offset(), payload=payload)
    return unreadable(f"{error.message} {place}", error.hint, row)


def first_refused(reader: MessageReader, messages: Sequence[Any]) -> tuple[Any, str]:
    """Return the first message that the settings do not explain, and its payload as text."""
    message = next((each for each in messages if _refused(reader, each)), messages[0])
    return message, text_of(message.value() or b"")[:PAYLOAD_CHARS_MAX]


def _refused(reader: MessageReader, message: Any) -> bool:
    try:
        decoded(reader, [message])
    except ConfigError:
        return True
    return False


def sent_s(message: Any) -> float | None:
    """Return a message's timestamp in seconds since 1970, as its producer or the broker set it; None if it has none."""
    kind, milliseconds = message.timestamp()
    return None if kind == kafka().TIMESTAMP_NOT_AVAILABLE else milliseconds / 1000


def decoded(reader: MessageReader, messages: Sequence[Any]) -> Decoded:
    """Return the rows of Kafka messages, and each message's number of rows."""
    message = kafka().Message
    keys = list(map(message.key, messages)) if reader.reads_keys else None
    return reader.decode(list(map(message.value, messages)), keys)
