"""Rules taken out that only files can show: what a crash leaves of several writes, and a power loss of what was not synced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from dbsp.io.embedded_output import EmbeddedOutputLog
from dbsp.io.embedded_steps import _STEP, EmbeddedStepLog
from dbsp.io.output_part import checksum_of, with_dead_letters
from dbsp.io.progress import ProgressStore
from dbsp.io.step_codec import advance, check_owner, record_to_json, seal
from dbsp.logs import DeadLetter, StepRecord
from dbsp.storage import worker
from dbsp.storage.durable import Durable, Root
from dbsp.storage.records import Record
from dbsp.store import CommitReport
from dbsp.zset.batch import Batch
from tests.sim import disks

Patch = pytest.MonkeyPatch


def trust_the_scratch_of_another_boot(patch: Patch) -> None:
    patch.setattr(disks, "boot_of", lambda boots, home: "boot")


def land_before_the_chunks(patch: Patch) -> None:
    original, copy_in, land, lacking = worker.copy_version, Durable.copy_in, Durable.land, Durable.lacking

    def copy_version(*arguments: Any) -> CommitReport | None:
        late: list[tuple[int, list[tuple[int, bytes]]]] = []

        def keep(_self: Durable, epoch: int, values: Iterable[tuple[int, Any]]) -> tuple[int, int]:
            late.append((epoch, [(number, bytes(value)) for number, value in values]))
            return 0, 0

        def landed(self: Durable, root: Root, epoch: int | None = None) -> Record:
            found = land(self, root, epoch)
            for each, values in late:
                copy_in(self, each, values)
            return found

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Durable, "copy_in", keep)
            inner.setattr(Durable, "land", landed)
            inner.setattr(Durable, "lacking", lambda self, refs, bytes_max: lacking(self, refs, None))
            return original(*arguments)

    patch.setattr(worker, "copy_version", copy_version)


def note_a_part_before_its_rows(patch: Patch) -> None:
    original = EmbeddedOutputLog.write

    def write(
        self: EmbeddedOutputLog, epoch: int, step: int, parts: Mapping[str, Batch], dead: Sequence[DeadLetter]
    ) -> None:
        checksum = checksum_of(with_dead_letters(parts, dead))
        verdict = self._env.write(lambda txn: self._store.admit(txn, epoch, step, checksum))
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(ProgressStore, "admit", lambda *_: verdict)
            original(self, epoch, step, parts, dead)

    patch.setattr(EmbeddedOutputLog, "write", write)


def count_a_record_before_it_is_there(patch: Patch) -> None:
    def append(self: EmbeddedStepLog, record: StepRecord) -> None:
        def counted(txn: Any) -> None:
            epoch, next_step, positions = self._head(txn)
            check_owner(record, epoch)
            self._put_head(txn, epoch, record.step + 1, advance(record, next_step, positions))

        self._env.write(counted)
        data = seal(record_to_json(record))
        self._env.write(lambda txn: txn.put(_STEP.pack(record.step), data, db=self._env.db("records")))

    patch.setattr(EmbeddedStepLog, "append", append)


POWER = replace(disks.FAULTS, rare=1.0, power=0.04, crash=0.001, error=0.0, pause=0.0, zombie=0.0, parcel=0.0)
"""Hosts that lose their power while others go on."""
CRASHES = replace(
    disks.FAULTS,
    rare=1.0,
    workers_max=1,
    crash=0.01,
    crash_again=0.0,
    error=0.0,
    power=0.0,
    pause=0.0,
    zombie=0.0,
    outage=0.0,
)
"""Processes that are killed, and no more: what they had not written is all that is missing."""

RULES = (
    ("a scratch of another boot is rubbish", trust_the_scratch_of_another_boot, "6", 12, POWER),
    ("a version lands when its chunks are there", land_before_the_chunks, "6", 24, CRASHES),
    ("rows and the progress that tells of them are one write", note_a_part_before_its_rows, "7", 6, CRASHES),
    ("a record and the count of records are one write", count_a_record_before_it_is_there, "7", 6, CRASHES),
)
"""The rule, how it is broken, the number of its concept page (`test_traps`), within how many seeds, which faults."""
