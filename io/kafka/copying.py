"""Copying one topic into one table's input, as pushes of one producer per partition. The service runs it in a thread.

**Law** For every partition, the rows of each committed message are copied once and in order, whatever process is
killed when. The number of a push is the offset of its last message. The transaction that writes the rows also writes
this number, which says where to continue. Of two processes that copy one topic, only one can continue
(`Producer.after`).

A message that the settings do not explain stops its partition; the other partitions continue. `skip_refused` turns
the message into a bad row of the input, and so into a dead letter. The push that contains the row makes this decision
durable; if the process ends before, the partition stops at the message again.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from typing import Any, Protocol, TypeAlias

import numpy as np

from dbsp.errors import ConfigError, DbspError, OverloadedError, UnavailableError
from dbsp.io.formats.runs import Decoded, joined, no_rows
from dbsp.io.kafka.follow import TopicFollower
from dbsp.io.kafka.input import KafkaSource, decoded, first_refused, sent_s
from dbsp.io.pushed import BadRow, Incoming, Position, Producer, Push
from dbsp.logs.step_commands import DroppedRow, with_way_past

WAIT_S = 0.2
AGAIN_S = 1.0
Note: TypeAlias = Callable[[str, dict[str, Any]], None]


class Pushing(Protocol):
    """The destination of pushes: the service."""

    def push_many(self, incoming: Sequence[Incoming]) -> list[Position]:
        """Append pushes durably, all or none, and return their positions."""
        ...

    def last_sequence(self, table: str, producer: str) -> int | None:
        """Return the newest number of a producer; None if it has pushed nothing."""
        ...


class Partitioned(Protocol):
    """The input that receives the rows."""

    def partitions(self, table: str) -> int:
        """Return the number of partitions of the table's input."""
        ...

    def widen(self, table: str, partitions: int) -> None:
        """Give the table's input at least `partitions` partitions."""
        ...

    def partition_of(self, table: str, producer: str) -> int | None:
        """Return the partition of a producer's newest push; None if its rows are trimmed, or there are none."""
        ...


class TopicCopy:
    """The copy of one topic into one table.

    Each partition of the topic maps to the input partition of the same number. So readers of the copy see each
    partition's order and how far its time has advanced. If the rows of a partition are in another input partition,
    the copy continues there. A later start that finds these rows trimmed moves to the equal number, because a key's
    changes have an order only within a partition. (Copies of 0.1.0 shared the partitions that `[input]` names.)
    """

    def __init__(
        self,
        source: KafkaSource,
        follower: TopicFollower,
        inputs: Partitioned,
        pushing: Pushing,
        note: Note,
        ending: threading.Event,
    ) -> None:
        """Store the parts; `look` or `run` sends the first request."""
        self.table = source.table.name
        self._source, self._follower, self._reader = source, follower, source.reader()
        self._inputs, self._pushing, self._note, self._ending = inputs, pushing, note, ending
        self._places: dict[int, int] = {}
        """The input partition of each followed partition of the topic."""
        self._settled_s: Mapping[int, float] = {}
        """Per partition of the topic, when the brokers last confirmed that all of it is copied."""
        self._newest: dict[int, int] = {}
        """Per followed partition, the offset of the last pushed message; -1 for none."""
        self._passed: Mapping[int, int] = {}
        """Per followed partition, the offset after all pushed messages, and after the markers that follow them."""
        self._messages = self._behind = 0
        self._error: str | None = None
        self._since_s: float | None = None
        self._moved = threading.Condition()
        self._refused: dict[int, DroppedRow] = {}
        """Per stopped partition, the message at which it stops: one that the settings do not explain."""
        self._skipped: dict[tuple[int, int], DroppedRow] = {}
        """The messages to copy as bad rows, by partition and offset of the topic."""

    @property
    def refused(self) -> tuple[DroppedRow, ...]:
        """Return the messages at which partitions of the topic stop; any thread may call it."""
        with self._moved:
            return tuple(row for _, row in sorted(self._refused.items()))

    def skip_refused(self) -> tuple[DroppedRow, ...]:
        """Make the next rounds copy the refused messages as bad rows, and return these messages."""
        with self._moved:
            rows = self.refused
            self._skipped |= {(row.partition, row.offset): row for row in rows}
            self._refused = {}
            return rows

    def wait_for(self, rows: Sequence[DroppedRow], timeout_s: float) -> bool:
        """Wait until the skipped messages are in the input; return whether they are within `timeout_s`."""
        places = {(row.partition, row.offset) for row in rows}
        with self._moved:
            return self._moved.wait_for(lambda: not places & self._skipped.keys(), timeout_s)

    @property
    def shown(self) -> dict[str, Any]:
        """Return the state of the copy for users and monitors."""
        return {
            "table": self.table, "topic": self._source.topic, "messages": self._messages,
            "behind_messages": self._behind, "error": self._error, "since_s": self._since_s,
        }  # fmt: skip

    def settled_s(self) -> Mapping[int, float | None]:
        """Return, per input partition, the monotonic time at which the brokers last confirmed a complete copy.

        None where they have not confirmed it. If several topic partitions share an input partition, the oldest time
        counts.
        """
        known, places = self._settled_s, dict(self._places)
        if not places:
            return dict.fromkeys(range(self._inputs.partitions(self.table)))
        said: dict[int, float | None] = {}
        for partition, place in places.items():
            times = (known.get(partition), said.get(place, float("inf")))
            said[place] = None if None in times else min(time for time in times if time is not None)
        return said

    def look(self) -> None:
        """Raise a `ConfigError` if the topic does not exist; only note the failure if no broker answers."""
        try:
            self._follower.partitions()
        except UnavailableError as error:
            self._failed(error)
            self._follower.close()

    def run(self) -> None:
        """Copy until the ending event is set."""
        while not self._ending.is_set():
            if not self.round():
                self._ending.wait(AGAIN_S)
        with suppress(DbspError):  # at shutdown there is time for one attempt only
            self._pass_markers()
        self._follower.close()

    def round(self) -> bool:
        """Copy the messages that have arrived; return False if an error prevented it."""
        try:
            self._copy()
        except Exception as error:  # noqa: BLE001 - no error of the copy may stop the pipeline
            self._failed(error)
            self._newest, self._passed = {}, {}  # the log knows what was pushed and where to continue
            self._settled_s = {}
            self._follower.close()
            return False
        return True

    def _copy(self) -> None:
        """Copy the messages that have arrived; every `GROWTH_CHECK_S` also look for new partitions."""
        ends, asked_s = dict[int, int](), time.monotonic()
        if self._follower.is_due():
            self._pass_markers()
            self._meet(self._follower.partitions())
            ends = self._follower.ends()
            self._works()
        taken = self._follower.take(WAIT_S)
        if taken and not self._push(taken):
            return
        if taken:
            self._works()
        self._passed, self._behind = self._follower.next, self._follower.behind()
        settled = {partition for partition, end in ends.items() if self._passed[partition] >= end}
        self._settled_s = {**self._settled_s, **dict.fromkeys(settled, asked_s)}

    def _pass_markers(self) -> None:
        """Push an empty part where a partition ends in markers or aborted messages, to note that position.

        A topic may delete them later. Without the noted position, the offsets would then look like lost messages.
        """
        for partition, position in self._passed.items():
            if position - 1 > self._newest[partition]:
                push, _ = no_rows(self._source.table, 0)
                self._pushing.push_many([self._incoming(partition, push, position - 1)])
                self._newest[partition] = position - 1

    def _meet(self, partitions: int) -> None:
        """Follow the partitions that are not followed yet, each from the message after its producer's last push."""
        fresh = [partition for partition in range(partitions) if partition not in self._newest]
        found = {partition: self._pushing.last_sequence(self.table, self._producer(partition)) for partition in fresh}
        self._inputs.widen(self.table, partitions)
        for partition in fresh:
            held = self._inputs.partition_of(self.table, self._producer(partition))
            self._places[partition] = partition if held is None else held
        if found:
            self._follower.follow({partition: None if last is None else last + 1 for partition, last in found.items()})
            self._newest |= {partition: -1 if last is None else last for partition, last in found.items()}

    def _push(self, taken: dict[int, list[Any]]) -> bool:
        """Push all messages in one transaction once there is room; return False if the end arrives first.

        **Errors** `ConfigError` for the first message that the settings do not explain, after all messages before it
        are pushed.
        """
        readable = {partition: self._readable(partition, messages) for partition, messages in taken.items()}
        pushed = {partition: messages for partition, (messages, _, _) in readable.items() if messages}
        incoming = [
            self._incoming(partition, readable[partition][1], messages[-1].offset(), sent_s(messages[0]))
            for partition, messages in pushed.items()
        ]
        if not self._appended(incoming):
            return False
        self._newest |= {partition: messages[-1].offset() for partition, messages in pushed.items()}
        self._messages += sum(map(len, pushed.values()))
        with self._moved:
            held = self._newest
            self._skipped = {(p, offset): row for (p, offset), row in self._skipped.items() if offset > held.get(p, -1)}
            self._refused = {p: row for p, row in self._refused.items() if row.offset > held.get(p, -1)}
            self._moved.notify_all()
        for _, _, error in readable.values():
            if error is not None:
                raise error
        return True

    def _appended(self, incoming: Sequence[Incoming]) -> bool:
        while incoming and not self._ending.is_set():
            try:
                self._pushing.push_many(incoming)
            except OverloadedError:
                self._ending.wait(WAIT_S)
            else:
                return True
        return not incoming

    def _readable(self, partition: int, messages: list[Any]) -> tuple[list[Any], Push, ConfigError | None]:
        """Return the messages before the first refused one, their rows, and the error that names the refused one."""
        with self._moved:
            skipped = {offset: row for (each, offset), row in self._skipped.items() if each == partition}
        try:
            return messages, self._decoded(messages, skipped), None
        except ConfigError as error:
            message, payload = first_refused(self._reader, [each for each in messages if each.offset() not in skipped])
            before = [each for each in messages if each.offset() < message.offset()]
            place = f"table={self.table} topic={self._source.topic} partition={partition} offset={message.offset()}"
            row = DroppedRow(
                table=self.table,
                partition=partition,
                offset=message.offset(),
                payload=payload,
                reason=f"{error.message} {place}",
            )
            with self._moved:
                self._refused[partition] = row
            named = ConfigError(f"{row.reason} payload={payload}", with_way_past(error.hint))
            return before, self._decoded(before, skipped), named

    def _decoded(self, messages: Sequence[Any], skipped: Mapping[int, DroppedRow]) -> Push:
        """Return the rows of messages; a skipped message becomes a bad row."""
        pieces: list[Decoded] = []
        for row, run in groupby(messages, lambda message: skipped.get(message.offset())):
            pieces.append(decoded(self._reader, list(run)) if row is None else self._dropped(row))
        return joined(pieces, self._source.table)[0]

    def _dropped(self, row: DroppedRow) -> Decoded:
        nothing, _ = no_rows(self._source.table, 0)
        bad = BadRow(index=0, reason=row.reason, payload=row.payload)
        return replace(nothing, bad=(bad,)), np.ones(1, np.int64)

    def _incoming(self, partition: int, push: Push, last: int, arrived_s: float | None = None) -> Incoming:
        return Incoming(
            table=self.table,
            push=push,
            producer=Producer(id=self._producer(partition), sequence=last, after=self._newest[partition]),
            partition=self._places[partition],
            arrived_s=arrived_s,
        )

    def _producer(self, partition: int) -> str:
        return f"kafka:{self._source.topic}:{partition}"

    def _works(self) -> None:
        if self._error is not None:
            self._error = self._since_s = None
            self._note("copy-works", {"table": self.table, "topic": self._source.topic})

    def _failed(self, error: Exception) -> None:
        """Note a failure and report it, unless the same failure is already reported."""
        story = str(error) if isinstance(error, DbspError) else "".join(traceback.format_exception(error))
        self._since_s = self._since_s or time.time()
        if story != self._error:
            self._error = story
            self._note("copy-failed", {"table": self.table, "topic": self._source.topic, "error": story})
