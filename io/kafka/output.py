"""Outputs on Kafka: one transaction per worker and step, with the rows of all views and a progress record.

A plain `read_committed` consumer of a view's topic sees each step's rows once. Every record has the headers `step`
and `worker`; the user chooses the key. A progress topic has one partition per worker. It holds (epoch, step,
checksum) of every step, also of empty steps. So a worker's `last` and the checksums can be read even after the rows
have been deleted.

Invariants:

- Rows and progress appear together or not at all (invariant 5).
- After every take-over of the producer the log reads the last progress record and compares the epoch (invariant 6). Kafka
  fences the producer that began earlier, not the one of the older epoch.
- After a commit in doubt, the log takes over again and reads the last progress record to learn the result.
- Every dead letter fits in a message, because otherwise one bad row would stop the pipeline for ever (invariant 10). A long
  payload is cut, and its reason says so.

Source: docs/concepts/logs.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dbsp.circuit.names import DEAD_LETTERS
from dbsp.errors import ConfigError, DataError, FencedError
from dbsp.io.formats import encode_arrow, json_lines
from dbsp.io.formats.json_output import key_texts, upsert_messages
from dbsp.io.formats.pieces import for_texts, in_pieces
from dbsp.io.kafka.client import KafkaSettings, TopicReader, Trimmer, ensure_topic
from dbsp.io.kafka.transaction import TransactionalWriter, TransactionRecords
from dbsp.io.output_part import OutputProgress, Verdict, by_view, checksum_of, decide, with_dead_letters
from dbsp.io.step_codec import seal, unseal
from dbsp.io.topic_names import PROGRESS
from dbsp.logs import DeadLetter
from dbsp.zset.batch import Batch

ARROW_BYTES_MAX = 1 << 19
PAYLOAD_CHARS_MAX = 1 << 17
REASON_CHARS_MAX = 1 << 12
"""Longer payloads and reasons of dead letters are cut, so that each letter fits a message of Kafka's default size."""
TRIM_STEPS = 1000
"""Progress records are trimmed once in this many steps; each has some hundred bytes."""
_KEEP_ALL = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


class KafkaOutputLog:
    """The outputs of one worker on Kafka; see `dbsp.logs.OutputLog`.

    `topics` maps views to topics; the default is `<pipeline>.<view>`. `keys` maps views to the columns of the message
    key: the JSON text of one column, or an object of several. Without a key, a worker writes to partition `worker`
    modulo the number of partitions. With the format `upsert`, a message gives the current row of its key
    (`upsert_messages`), in compacted topics.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        worker: int,
        *,
        topics: Mapping[str, str] | None = None,
        keys: Mapping[str, tuple[str, ...]] | None = None,
        format: str = "json",  # noqa: A002  the setting's name
        first_step: int = 0,
        create: bool = False,
        create_views: bool = False,
    ) -> None:
        """Connect and check the progress topic.

        With `create` the progress topic is made, or widened to this worker. With `create` or `create_views`, a view's
        topic is made at its first write.

        **Errors** `ConfigError` for an unknown format, or if the progress topic has no partition for this worker.
        """
        if format not in ("json", "arrow", "upsert"):
            raise ConfigError(f"unknown output format: format={format}", "use json, arrow or upsert")
        self._settings, self._worker, self._format = settings, worker, format
        self._create_views = create or create_views
        self._topics, self._keys = dict(topics or {}), dict(keys or {})
        self._first_step = first_step
        self._reader = TopicReader(settings)
        self._writer = TransactionalWriter(settings, f"{settings.pipeline}-output-{worker}")
        self._trimmer = Trimmer(settings)
        self._trimmed: int | None = None
        self._progress_topic = settings.topic(PROGRESS)
        self._widths: dict[str, int] = {}
        self._checksums: dict[int, int] | None = None
        self._progress: OutputProgress | None = None
        if create:
            ensure_topic(settings, self._progress_topic, worker + 1, _KEEP_ALL)
        if self._reader.partitions(self._progress_topic, worker + 1) <= worker:
            raise ConfigError(
                f"the progress topic has no partition for this worker: topic={self._progress_topic} worker={worker}"
            )

    @property
    def place(self) -> str:
        """Return the worker's partition of the progress topic, as messages name it."""
        return f"topic={self._progress_topic} partition={self._worker}"

    def bounds(self) -> tuple[int, int]:
        """Return (first, last) of the progress topic; a commit in doubt is settled only by the next write."""
        progress = self._read_progress()
        return progress.first, progress.last

    def write(self, epoch: int, step: int, parts: Mapping[str, Batch], dead: Sequence[DeadLetter]) -> None:
        """Write one step's part in one transaction; see `dbsp.logs.OutputLog.write`."""
        full = with_dead_letters(parts, dead)
        checksum = checksum_of(full)
        progress = self._own(epoch)
        if step > progress.last:  # another process of this worker may have written since: read the progress again
            self._progress = None
            progress = self._own(epoch)
        stored = self.checksum(step) if progress.first <= step < progress.last else None
        if decide(progress, epoch, step, checksum, stored) is Verdict.DISCARD:
            return
        first = progress.first
        mark = seal(
            {"epoch": epoch, "step": step, "checksum": f"{checksum:016x}", "first": first, "worker": self._worker}
        )
        records = [self._records(view, batch, step) for view, parts in by_view(full).items() for batch in parts]
        progressed = TransactionRecords(topic=self._progress_topic, partition=self._worker, values=[mark])
        self._writer.write([*records, progressed], lambda: self._settle(epoch, step, checksum))
        self._progress = OutputProgress(first=first, last=step + 1, epoch=epoch)
        if self._checksums is not None:
            self._checksums[step] = checksum

    def _own(self, epoch: int) -> OutputProgress:
        """Take over the producer, unless it is taken over for this epoch, and return the progress.

        The epoch is compared before and after the take-over: only the second comparison excludes a newer writer in
        between.

        **Errors** `FencedError` if a newer epoch writes these outputs.
        """
        if self._progress is not None and self._writer.ready and epoch == self._progress.epoch:
            return self._progress
        if self._progress is not None and epoch < self._progress.epoch:
            raise FencedError(f"a newer epoch writes these outputs: epoch={epoch} newest={self._progress.epoch}")
        self._refuse_newer(epoch)
        self._writer.take_over()
        self._checksums = None
        found = self._refuse_newer(epoch)
        self._progress = OutputProgress(first=found.first, last=found.last, epoch=epoch)
        return self._progress

    def _refuse_newer(self, epoch: int) -> OutputProgress:
        progress = self._read_progress()
        if progress.epoch > epoch:
            raise FencedError(f"a newer epoch writes these outputs: epoch={epoch} newest={progress.epoch}")
        return progress

    def _settle(self, epoch: int, step: int, checksum: int) -> bool:
        """Take over after a failed transaction, and return whether the step is in the log.

        **Errors** `FencedError` if a newer epoch, or another writer, has written.
        """
        self._refuse_newer(epoch)
        self._writer.take_over()
        progress = self._refuse_newer(epoch)
        if progress.last == step:
            return False
        self._checksums = None
        if progress.last != step + 1 or self.checksum(step) != checksum:
            raise FencedError(
                f"another writer wrote this worker's outputs: worker={self._worker} step={step} last={progress.last}"
            )
        return True

    def _read_progress(self) -> OutputProgress:
        """Return the newest progress of this worker's partition; without a record, start at the first step.

        **Errors** `DataError` if the partition had records and all are gone.
        """
        message = self._reader.last_message(self._progress_topic, self._worker)
        if message is None:
            if self._reader.bounds(self._progress_topic, self._worker)[0] > 0:
                raise DataError(
                    f"the progress of a worker is lost: topic={self._progress_topic} partition={self._worker}"
                )
            return OutputProgress(first=self._first_step, last=self._first_step)
        mark = self._mark(message)
        last = mark["step"] + 1
        return OutputProgress(first=mark["first"], last=max(last, self._first_step), epoch=mark["epoch"])

    def checksum(self, step: int) -> int | None:
        """Return the stored checksum of a step, or None; see `dbsp.logs.TellsChecksums`.

        The partition is read at the first repeated step after a take-over.
        """
        if self._checksums is None:
            marks = [self._mark(message) for message in self._messages()]
            self._checksums = {mark["step"]: int(mark["checksum"], 16) for mark in marks}
        return self._checksums.get(step)

    def _messages(self) -> Iterator[Any]:
        low, high = self._reader.settled_bounds(self._progress_topic, self._worker)
        return self._reader.read(self._progress_topic, self._worker, low, high)

    def _mark(self, message: Any) -> Any:
        where = f"topic={self._progress_topic} partition={self._worker} offset={message.offset()}"
        mark = unseal(message.value(), where)
        if mark["worker"] != self._worker:
            raise DataError(f"a progress record of another worker: {where} worker={mark['worker']}")
        return mark

    def _records(self, view: str, batch: Batch, step: int) -> TransactionRecords:
        topic = self.topic_of(view)
        if view == DEAD_LETTERS:
            batch = _cut_letters(batch)
        headers = (("step", str(step).encode()), ("worker", str(self._worker).encode()))
        own = self._worker % self._width(topic)
        if self._format == "arrow":
            values = [encode_arrow(piece) for piece in in_pieces(batch, ARROW_BYTES_MAX)]
            return TransactionRecords(topic=topic, partition=own, values=values, headers=headers)
        columns = self._keys.get(view, ()) if view != DEAD_LETTERS else ()
        if columns and self._format == "upsert":
            keys, values = map(_bytes, upsert_messages(batch, columns))
            return TransactionRecords(topic=topic, values=values, keys=keys, headers=headers)
        pieces = list(for_texts(batch))
        values = [value for piece in pieces for value in _bytes(json_lines(piece))]
        if not columns:
            return TransactionRecords(topic=topic, partition=own, values=values, headers=headers)
        keys = [key for piece in pieces for key in _bytes(key_texts(piece, columns))]
        return TransactionRecords(topic=topic, values=values, keys=keys, headers=headers)

    def topic_of(self, view: str) -> str:
        """Return the topic of a view, or of the dead letters."""
        return self._topics.get(view) or self._settings.topic(view)

    def _width(self, topic: str) -> int:
        if topic not in self._widths:
            if self._create_views:
                compacted = self._format == "upsert" and topic != self.topic_of(DEAD_LETTERS)
                ensure_topic(self._settings, topic, 1, {"cleanup.policy": "compact"} if compacted else None)
            self._widths[topic] = self._reader.partitions(topic)
        return self._widths[topic]

    def trim_progress(self, step: int) -> None:
        """Delete the progress records of steps below `step`, except the newest record: no replay reaches them.

        **Cost** reading the records takes a tenth of a second, in which no step runs. So it is done once in
        `TRIM_STEPS` steps.
        """
        if self._trimmed is not None and step < self._trimmed + TRIM_STEPS:
            return
        messages = list(self._messages())
        if messages:
            kept = (message.offset() for message in messages if self._mark(message)["step"] >= step)
            self._trimmer.delete_below(self._progress_topic, self._worker, next(kept, messages[-1].offset()))
            self._checksums = None
        self._trimmed = step

    def close(self) -> None:
        """Drop the producer and close the reader."""
        self._writer.discard()
        self._reader.close()


def _bytes(texts: pa.Array) -> list[Any]:
    """Return texts as message bytes; a null becomes None, which is a tombstone."""
    found: list[Any] = texts.cast(pa.large_binary()).to_pylist()
    return found


def _cut_letters(batch: Batch) -> Batch:
    """Shorten dead letters that are too large for a message; the reason gives the length of a cut payload."""
    reason, payload = batch.column("reason"), batch.column("payload")
    length = pc.utf8_length(payload)
    long = pc.greater(length, PAYLOAD_CHARS_MAX)
    reason = pc.utf8_slice_codeunits(reason, 0, REASON_CHARS_MAX)
    if pc.any(long).as_py():
        told = pc.binary_join_element_wise(reason, " (payload cut: characters=", length.cast(pa.string()), ")", "")
        reason = pc.if_else(long, told, reason)
        payload = pc.if_else(long, pc.utf8_slice_codeunits(payload, 0, PAYLOAD_CHARS_MAX), payload)
    changed = {"reason": reason, "payload": payload}
    columns = [changed.get(column.name, batch.column(column.name)) for column in batch.schema]
    return Batch.of(batch.schema, columns, batch.weights)
