"""The step log on Kafka: a topic of one partition, written by one transactional producer that fences older
coordinators.

There are three kinds of records: `step`; `decision`, which adds a command to a step; and `head` (epoch, next step,
positions, ledger). Every claim and every trim writes a `head`, so that the positions, the epoch and the ledger of trimmed
records stay in the log. So does every change of the ledger: then a lost disk of the coordinator loses nothing. Versions that
do not know the ledger ignore it. The state is the fold of all records in order. Any thread may use the log.

Invariants: a record is committed when `append` returns (invariant 4). After every take-over of the producer, the epoch is
compared with the newest in the log (invariant 6). Steps have no gaps, and their ranges follow each other (invariant 7). Source:
docs/concepts/logs.md and docs/concepts/coordinator.md.
"""

from __future__ import annotations

import base64
import json
import threading
import uuid
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, TypeVar

from dbsp.errors import ConfigError, DataError, FencedError
from dbsp.io.kafka.client import KafkaSettings, TopicReader, Trimmer, ensure_topic, refuse_compaction
from dbsp.io.kafka.transaction import TransactionalWriter, TransactionRecords
from dbsp.io.step_codec import (
    Positions,
    advance,
    check_epoch,
    check_owner,
    decided,
    given_back,
    positions_from_json,
    positions_to_json,
    record_from_json,
    record_to_json,
    seal,
    unseal,
)
from dbsp.io.topic_names import STEPS
from dbsp.logs import StepRecord

_KEEP_ALL = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


Given = ParamSpec("Given")
Result = TypeVar("Result")


def _packed(ledger: Mapping[str, Any]) -> str:
    """Return a ledger as the text that a record carries; equal ledgers give equal texts."""
    data = json.dumps(ledger, sort_keys=True, separators=(",", ":")).encode()
    return base64.b64encode(zlib.compress(data, 9)).decode()


def _unpacked(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(text)))
    return found


@dataclass(slots=True)
class _State:
    """The fold of the log's records, with the offset of each kept record; `end` is the next offset to read."""

    epoch: int = 0
    claim: str = ""
    next_step: int = 0
    positions: Positions = field(default_factory=dict)
    ledger: str | None = None
    records: dict[int, StepRecord] = field(default_factory=dict)
    offsets: dict[int, int] = field(default_factory=dict)
    end: int = -1
    empty: bool = True

    def take(self, value: dict[str, Any], offset: int) -> None:
        """Fold the record at `offset` into the state."""
        if value["kind"] == "head":
            self.epoch, self.next_step = value["epoch"], value["next_step"]
            self.positions, self.claim = positions_from_json(value["positions"]), value["claim"]
            self.ledger = value.get("ledger", self.ledger)
        elif value["kind"] == "decision":
            if value["step"] in self.records:
                before = self.records[value["step"]]
                after = self.records[value["step"]] = decided(before, value["command"])
                self.positions = given_back(before, after, self.positions)
        else:
            record = record_from_json(value["record"])
            first_kept = self.empty
            self.positions = advance(record, record.step if first_kept else self.next_step, self.positions)
            self.records[record.step], self.offsets[record.step] = record, offset
            self.epoch, self.next_step = max(self.epoch, record.epoch), record.step + 1
        self.empty = False


def _alone(
    method: Callable[Concatenate[KafkaStepLog, Given], Result],
) -> Callable[Concatenate[KafkaStepLog, Given], Result]:
    """Let one thread at a time use the log: the state is folded, and the producer has one transaction."""

    def locked(self: KafkaStepLog, /, *given: Given.args, **named: Given.kwargs) -> Result:
        with self._lock:
            return method(self, *given, **named)

    locked.__doc__ = method.__doc__
    return locked


class KafkaStepLog:
    """The step log of one pipeline on Kafka; see `dbsp.logs.StepLog`."""

    def __init__(self, settings: KafkaSettings, *, create: bool = False) -> None:
        """Connect and check the topic; `create` makes an absent topic.

        **Errors** `ConfigError` if the topic is absent, is compacted, or has several partitions.
        """
        self._settings = settings
        self._topic = settings.topic(STEPS)
        self._reader = TopicReader(settings)
        self._writer = TransactionalWriter(settings, f"{settings.pipeline}-steps", tells_offsets=True)
        self._trimmer = Trimmer(settings)
        self._state = _State()
        self._epoch, self._claim, self._lock = 0, "", threading.RLock()
        self._claims: set[str] = set()
        """The ids of all claims that this object has tried; the log may lack the failed ones."""
        self._create = create
        if create:
            ensure_topic(settings, self._topic, 1, _KEEP_ALL)
        if self._reader.partitions(self._topic) != 1:
            raise ConfigError(f"the step log's topic must have one partition: topic={self._topic}")
        refuse_compaction(settings, self._topic)

    @_alone
    def claim(self, above: int = 0) -> int:
        """Claim the log: fence older producers, read all records, and write an epoch above `above` and all others.

        The first claim of this object may replace another coordinator. A later one, after a failure, may not. Otherwise a
        coordinator that was cut off would take the pipeline back from the one that replaced it.

        **Errors** `FencedError` if another one has claimed the log since; `DataError` if the log is empty and `create` was not
        given.
        """
        self.refuse_replaced()
        self._writer.take_over()
        self.refuse_replaced()
        if self._state.empty and not self._create:
            raise DataError(
                f"the step log is empty: topic={self._topic}", "restore the topic; an empty one is never taken over"
            )
        epoch = max(self._state.epoch, above) + 1
        self._claim = uuid.uuid4().hex
        self._claims.add(self._claim)
        self._write_head(epoch)
        self._epoch = epoch
        return epoch

    @_alone
    def refuse_replaced(self) -> None:
        """Raise `FencedError` if another object has claimed the log since this one did."""
        state = self._catch_up()
        if self._claims and state.claim not in self._claims:
            raise FencedError(f"another coordinator owns the step log: epoch={self._epoch} newest={state.epoch}")

    @_alone
    def epoch(self) -> int:
        """Return the newest epoch; 0 before the first claim."""
        return self._catch_up().epoch

    @_alone
    def append(self, record: StepRecord) -> None:
        """Append the next record in a transaction of its own, committed on return.

        A broken connection may leave the transaction in doubt; reading the end of the log settles it.

        **Errors** as for the embedded log.
        """
        if self._epoch == 0:
            raise FencedError(f"the step log is not claimed: step={record.step} epoch={record.epoch}")
        check_owner(record, self._epoch)
        check_owner(record, self._state.epoch)
        advance(record, self._state.next_step, self._state.positions)
        self._write({"kind": "step", "record": record_to_json(record)}, lambda: self._has(record))

    def _has(self, record: StepRecord) -> bool:
        known = self._state.records.get(record.step)
        if known is not None and known != record:
            raise FencedError(f"another coordinator wrote this step: step={record.step} epoch={known.epoch}")
        return known is not None

    @_alone
    def decide(self, epoch: int, step: int, command: str) -> StepRecord:
        """Add a command to a logged record, unless the record has it; committed on return."""
        if self._epoch == 0:
            raise FencedError(f"the step log is not claimed: step={step} epoch={epoch}")
        check_epoch(epoch, step, self._epoch)
        check_epoch(epoch, step, self._state.epoch)
        if step not in self._state.records:
            raise DataError(f"a decision about a step that is not logged: step={step} next={self._state.next_step}")

        before = self._state.records[step]
        given_back(
            before, decided(before, command), self._state.positions
        )  # check before writing: a record in the log must always fold

        def present() -> bool:
            return command in self._state.records[step].commands

        if not present():
            self._write({"kind": "decision", "step": step, "command": command}, present)
        return self._state.records[step]

    def _write_head(self, epoch: int) -> None:
        """Write epoch, next step and positions; the claim's id tells this head from a rival's with the same epoch."""
        state, before = self._state, self._state.claim
        head = {"kind": "head", "epoch": epoch, "claim": self._claim, "next_step": state.next_step}
        head["positions"] = positions_to_json(state.positions)
        if state.ledger is not None:
            head["ledger"] = state.ledger
        self._write(head, lambda: self._state.claim == self._claim != before)

    def _write(self, value: dict[str, Any], present: Callable[[], bool]) -> None:
        epoch_before = self._state.epoch

        def settle() -> bool:
            """Take over again and return whether the record is in the log; a newer epoch there is a `FencedError`."""
            self._refuse_newer(epoch_before, present)
            self._writer.take_over()
            self._refuse_newer(epoch_before, present)
            return present()

        if not self._writer.ready and settle():
            return
        offsets = self._writer.write([TransactionRecords(topic=self._topic, partition=0, values=[seal(value)])], settle)
        if offsets is not None:
            self._state.take(value, offsets[0])
            self._state.end = offsets[0] + 1

    def _refuse_newer(self, epoch: int, present: Callable[[], bool]) -> None:
        newest = self._catch_up().epoch
        if newest != epoch and not present():
            raise FencedError(f"another coordinator owns the step log: epoch={epoch} newest={newest}")

    def _catch_up(self) -> _State:
        """Fold the records that were written since the last read, and forget the trimmed ones.

        **Errors** `DataError` if the log lost records that were read before, or the next ones.
        """
        state = self._state
        low, high = self._reader.settled_bounds(self._topic, 0, known=state.end)
        if 0 <= state.end < low or state.end > high:
            raise DataError(f"the step log lost records: topic={self._topic} read_to={state.end} kept={low}..{high}")
        for message in self._reader.read(self._topic, 0, max(low, state.end), high):
            state.take(unseal(message.value(), f"topic={self._topic} offset={message.offset()}"), message.offset())
        state.end = high
        for step in [step for step, offset in state.offsets.items() if offset < low]:
            del state.records[step], state.offsets[step]
        return state

    @_alone
    def note_ledger(self, ledger: Mapping[str, Any]) -> None:
        """Let the log carry the ledger, unless it has the same; committed on return. Do nothing before a claim.

        **Errors** `FencedError` if another coordinator has claimed the log.
        """
        packed = _packed(ledger)
        if self._epoch == 0 or self._state.ledger == packed:
            return
        check_epoch(self._epoch, self._state.next_step, self._state.epoch)
        state = self._state
        head = {"kind": "head", "epoch": self._epoch, "claim": self._claim, "next_step": state.next_step}
        head |= {"positions": positions_to_json(state.positions), "ledger": packed}
        self._write(head, lambda: self._state.ledger == packed)

    @_alone
    def ledger(self) -> dict[str, Any] | None:
        """Return the newest ledger that the log carries; None if it has none."""
        packed = self._catch_up().ledger
        return None if packed is None else _unpacked(packed)

    @_alone
    def read(self, first: int) -> Sequence[StepRecord]:
        """Return the records from step `first` on.

        **Errors** `DataError` if step `first` is trimmed, or after the end of the log.
        """
        state = self._catch_up()
        kept = min(state.records, default=state.next_step)
        if not kept <= first <= state.next_step:
            raise DataError(
                f"step records are missing: topic={self._topic} first={first} first_kept={kept} next={state.next_step}",
                "put back the data folder that these steps belong to, or give a new pipeline a `name` of its own in [pipeline]",
            )
        return [state.records[step] for step in range(first, state.next_step)]

    @_alone
    def last(self) -> StepRecord | None:
        """Return the newest record; None if there is none."""
        state = self._catch_up()
        return state.records.get(state.next_step - 1)

    @_alone
    def next_step(self) -> int:
        """Return the step that the next record must have."""
        return self._catch_up().next_step

    @_alone
    def positions(self) -> Positions:
        """Return the first offset that no step covers yet, for every partition that some step has read."""
        return dict(self._catch_up().positions)

    @_alone
    def trim(self, step: int) -> None:
        """Drop records below `step`, but never the newest; only the owner may trim."""
        if self._epoch == 0:
            raise FencedError(f"the step log is not claimed: trim={step}")
        state = self._catch_up()
        check = min(step, state.next_step - 1)
        if check not in state.offsets or check == min(state.offsets):
            return
        self._write_head(self._epoch)
        self._trimmer.delete_below(self._topic, 0, state.offsets[check])

    def close(self) -> None:
        """Drop the producer and close the reader."""
        self._writer.discard()
        self._reader.close()
