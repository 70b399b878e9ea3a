"""The embedded step log: one record per step in an LMDB file, owned by the newest epoch.

Invariants: a record is on disk when `append` returns (invariant 4). The transaction that writes also checks the epoch
(invariant 6). Steps are numbered without gaps, and their input ranges follow each other (invariant 7), also across a trim. The
newest record is never trimmed. Source: docs/concepts/logs.md and docs/concepts/coordinator.md.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dbsp.errors import DataError
from dbsp.io import forms
from dbsp.io.environment import MAP_BYTES_START, open_environment, release_environment
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
from dbsp.logs import StepRecord

FORM = forms.STEP_LOG
_STEP = struct.Struct(">Q")
_HEAD = b"head"


class EmbeddedStepLog:
    """The step log of one pipeline under `<directory>/steps`; see `dbsp.logs.StepLog`."""

    def __init__(self, directory: Path | str, *, create: bool = False, map_bytes: int = MAP_BYTES_START) -> None:
        """Open the log; `create` makes an absent one, otherwise absence is a `DataError`."""
        self._env = open_environment(
            Path(directory) / "steps", form=FORM, names=("records",), create=create, map_bytes=map_bytes
        )

    def resume(self, epoch: int, next_step: int, positions: Positions) -> None:
        """Make this new log continue at a step and at these positions; owners up to `epoch` are refused."""
        self._env.write(lambda txn: self._put_head(txn, epoch, next_step, positions))

    def claim(self, above: int = 0) -> int:
        """Claim the log: write an epoch above `above` and all others; from now on, older owners are refused."""
        return self._env.write(lambda txn: self._claim(txn, above))

    def _claim(self, txn: Any, above: int) -> int:
        _, next_step, positions = self._head(txn)
        epoch = max(self.epoch_in(txn), above) + 1
        self._put_head(txn, epoch, next_step, positions)
        return epoch

    def epoch(self) -> int:
        """Return the newest epoch; 0 before the first claim."""
        with self._env.read() as txn:
            return self.epoch_in(txn)

    def epoch_in(self, txn: Any) -> int:
        """Return the newest epoch in a transaction."""
        return self._head(txn)[0]

    def append(self, record: StepRecord) -> None:
        """Append the next record; it is on disk on return.

        **Errors** `FencedError` if the record's epoch is not the newest; `DataError` if the step is not next or a
        range does not follow.
        """
        self._env.write(lambda txn: self._append(txn, record))

    def _append(self, txn: Any, record: StepRecord) -> None:
        epoch, next_step, positions = self._head(txn)
        check_owner(record, epoch)
        after = advance(record, next_step, positions)
        txn.put(_STEP.pack(record.step), seal(record_to_json(record)), db=self._env.db("records"))
        self._put_head(txn, epoch, record.step + 1, after)

    def decide(self, epoch: int, step: int, command: str) -> StepRecord:
        """Add a command to a logged record, unless the record has it; it is on disk on return."""
        return self._env.write(lambda txn: self._decide(txn, epoch, step, command))

    def _decide(self, txn: Any, epoch: int, step: int, command: str) -> StepRecord:
        newest, next_step, positions = self._head(txn)
        check_epoch(epoch, step, newest)
        data = txn.get(_STEP.pack(step), db=self._env.db("records"))
        if data is None:
            raise DataError(f"a decision about a step that is not logged: step={step} next={next_step}")
        before = self._decode(_STEP.pack(step), data)
        record = decided(before, command)
        txn.put(_STEP.pack(step), seal(record_to_json(record)), db=self._env.db("records"))
        if record.ranges != before.ranges:
            self._put_head(txn, newest, next_step, given_back(before, record, positions))
        return record

    def read(self, first: int) -> Sequence[StepRecord]:
        """Return the records from step `first` on.

        **Errors** `DataError` if step `first` is trimmed, or after the end of the log.
        """
        with self._env.read() as txn:
            next_step = self._head(txn)[1]
            cursor = txn.cursor(db=self._env.db("records"))
            kept = _STEP.unpack(cursor.key())[0] if cursor.first() else next_step
            if not kept <= first <= next_step:
                raise DataError(
                    f"step records are missing: first={first} first_kept={kept} next={next_step}",
                    "the state is older than its log: put back all of `data_dir` as it was at one moment, or restore a backup",
                )
            found = cursor.set_range(_STEP.pack(first))
            records = [self._decode(key, value) for key, value in cursor] if found else []
        steps = [record.step for record in records]
        if steps != list(range(first, next_step)):
            raise DataError(f"step records are missing: first={first} next={next_step} found={len(steps)}")
        return records

    def last(self) -> StepRecord | None:
        """Return the newest record; None if there is none."""
        with self._env.read() as txn:
            cursor = txn.cursor(db=self._env.db("records"))
            return self._decode(cursor.key(), cursor.value()) if cursor.last() else None

    def next_step(self) -> int:
        """Return the step that the next record must have."""
        with self._env.read() as txn:
            return self._head(txn)[1]

    def positions(self) -> Positions:
        """Return the first offset that no step covers yet, for every partition that some step has read."""
        with self._env.read() as txn:
            return self._head(txn)[2]

    def trim(self, step: int) -> None:
        """Drop records below `step`, but never the newest."""
        self._env.write(lambda txn: self._trim(txn, step))

    def _trim(self, txn: Any, step: int) -> None:
        limit = min(step, self._head(txn)[1] - 1)
        cursor = txn.cursor(db=self._env.db("records"))
        found = cursor.first()
        while found and cursor.key() and _STEP.unpack(cursor.key())[0] < limit:
            found = cursor.delete()

    def close(self) -> None:
        """Release the file."""
        release_environment(self._env)

    def _decode(self, key: bytes, value: bytes) -> StepRecord:
        step = _STEP.unpack(key)[0]
        record = record_from_json(unseal(value, f"{self._env.where} step={step}"))
        if record.step != step:
            raise DataError(f"a step log record is in the wrong place: step={step} found={record.step}")
        return record

    def _head(self, txn: Any) -> tuple[int, int, Positions]:
        """Return (epoch, next step, positions)."""
        data = txn.get(_HEAD, db=self._env.db("meta"))
        if data is None:
            return 0, 0, {}
        head = unseal(data, f"{self._env.where} part=head")
        return head["epoch"], head["next_step"], positions_from_json(head["positions"])

    def _put_head(self, txn: Any, epoch: int, next_step: int, positions: Positions) -> None:
        head = {"epoch": epoch, "next_step": next_step, "positions": positions_to_json(positions)}
        txn.put(_HEAD, seal(head), db=self._env.db("meta"))
