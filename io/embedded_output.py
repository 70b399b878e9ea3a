"""The embedded output log: one LMDB file per worker, with a reader for consumers.

Invariant: a step's part appears whole and once (invariant 5): one transaction writes its rows, its checksum and the worker's
progress (`dbsp.io.progress`).

**State** the views' rows per step until `trim`. Source: docs/concepts/logs.md.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from dbsp.disk import numbered
from dbsp.errors import ConfigError, DataError
from dbsp.io import forms
from dbsp.io.accepted import Accepted
from dbsp.io.environment import MAP_BYTES_START
from dbsp.io.output_part import Verdict, checksum_of, encode_part, with_dead_letters
from dbsp.io.progress import LocalOutputLog, ProgressStore
from dbsp.logs import DeadLetter
from dbsp.stored.checksums import sealed, unsealed
from dbsp.stored.levels import NEWEST
from dbsp.zset.batch import Batch

FORM = forms.OUTPUT_LOG
VIEW_BYTES_MAX = 400
_PLACE = struct.Struct(">QI")
_CRC = struct.Struct("<I")
KEPT_FROM = b"kept from"
_STEP = struct.Struct("<Q")


class EmbeddedOutputLog(LocalOutputLog):
    """The outputs of one worker under `<directory>/outputs/<worker>`; see `dbsp.logs.OutputLog`."""

    def __init__(
        self,
        directory: Path | str,
        worker: int,
        *,
        first_step: int = 0,
        create: bool = False,
        retention_steps: int | None = None,
        map_bytes: int = MAP_BYTES_START,
        level: int = NEWEST,
    ) -> None:
        """Open the log; `create` lets an absent log, or one with fewer steps, begin at `first_step`.

        With `retention_steps` a trim of the progress also drops rows, except those of that many further steps.

        **Errors** `DataError` without `create` if the log is absent.
        """
        super().__init__(
            ProgressStore(
                _folder(directory, worker),
                form=FORM,
                first_step=first_step,
                create=create,
                map_bytes=map_bytes,
                level=level,
            )
        )
        self._retention_steps, self._level = retention_steps, level

    def write(self, epoch: int, step: int, parts: Mapping[str, Batch], dead: Sequence[DeadLetter]) -> None:
        """Write one step's part in one synced transaction; see `dbsp.logs.OutputLog.write`."""
        full = with_dead_letters(parts, dead)
        checksum = checksum_of(full)
        records = [
            (_view_key(view) + _PLACE.pack(step, number), _CRC.pack(zlib.crc32(data)) + data)
            for view, batch in full.items()
            for number, data in enumerate(encode_part(batch))
        ]

        def action(txn: Any) -> None:
            if self._store.admit(txn, epoch, step, checksum) is Verdict.APPEND:
                for key, value in records:
                    txn.put(key, value, db=self._env.db("data"))
                self._accepted(txn, step).pay(step)

        self._env.write(action)

    def accept(self, epoch: int, step: int, parts: Mapping[str, Batch], dead: Sequence[DeadLetter]) -> None:
        """Write a step's part, or make it count instead of the written one; see `dbsp.logs.AcceptsOutput`."""
        full = with_dead_letters(parts, dead)

        def action(txn: Any) -> bool:
            if self._store.need(txn).last <= step:
                return False
            if self._store.replace(txn, epoch, step, checksum_of(full)):
                self._accepted(txn, step).accept(step, full)
            return True

        if not self._env.write(action):
            self.write(epoch, step, parts, dead)

    def differing(self, step: int, parts: Mapping[str, Batch], dead: Sequence[DeadLetter]) -> list[str]:
        """Return the views whose part differs from the step's content."""
        with self._env.read() as txn:
            return sorted(self._accepted(txn, step).differing(step, with_dead_letters(parts, dead)))

    def _accepted(self, txn: Any, step: int) -> Accepted:
        def pack(data: bytes) -> bytes:
            return _CRC.pack(zlib.crc32(data)) + data

        return Accepted(txn, self._env.db("data"), pack, lambda data: self._decode(data, step))

    def read(self, view: str, first: int, last: int | None = None) -> Iterator[tuple[int, pa.Table]]:
        """Yield (step, rows with weights) of the steps `first <= s < last` that have rows of the view."""
        prefix = _view_key(view)
        while True:
            with self._env.read() as txn:
                found = self._read_step(txn, prefix, first, last)
            if found is None:
                return
            yield found
            first = found[0] + 1

    def _read_step(self, txn: Any, prefix: bytes, first: int, last: int | None) -> tuple[int, pa.Table] | None:
        """Return the first step from `first` on that has rows; the caller uses a short transaction per step."""
        cursor = txn.cursor(db=self._env.db("data"))
        if not cursor.set_range(prefix + _PLACE.pack(first, 0)) or not cursor.key().startswith(prefix):
            return None
        step = _PLACE.unpack(cursor.key()[len(prefix) :])[0]
        if last is not None and step >= last:
            return None
        tables = []
        while cursor.key().startswith(prefix) and _PLACE.unpack(cursor.key()[len(prefix) :])[0] == step:
            tables.append(self._decode(cursor.value(), step))
            if not cursor.next():
                break
        return step, pa.concat_tables(tables).combine_chunks()

    def _decode(self, data: bytes, step: int) -> pa.Table:
        if _CRC.unpack_from(data)[0] != zlib.crc32(memoryview(data)[_CRC.size :]):
            raise DataError(f"an output record is damaged: {self._env.where} step={step}")
        with pa.ipc.open_stream(pa.py_buffer(data[_CRC.size :])) as reader:
            return reader.read_all()

    def kept_from(self) -> int:
        """Return the first step whose rows were never dropped."""
        with self._env.read() as txn:
            return self._kept_from(txn)

    def _kept_from(self, txn: Any) -> int:
        found = txn.get(KEPT_FROM, db=self._env.db("meta"))
        return 0 if found is None else kept_from_of(found, self._env.where)

    def trim(self, step: int) -> None:
        """Drop the rows of steps below `step`; progress and checksums stay."""
        self._env.write(lambda txn: self._trim(txn, step))

    def _trim(self, txn: Any, step: int) -> None:
        if step > self._kept_from(txn):
            txn.put(KEPT_FROM, sealed(KEPT_FROM, _STEP.pack(step), self._level), db=self._env.db("meta"))
        cursor = txn.cursor(db=self._env.db("data"))
        found = cursor.first()
        while found and cursor.key():
            view_end = cursor.key().index(b"\0") + 1
            if _PLACE.unpack(cursor.key()[view_end:])[0] < step:
                found = cursor.delete()
            else:
                found = cursor.set_range(cursor.key()[: view_end - 1] + b"\1")

    def trim_progress(self, step: int) -> None:
        """Drop the checksums of steps below `step`, which no replay can reach, and rows by `retention_steps`."""
        super().trim_progress(step)
        if self._retention_steps is not None:
            self.trim(step - self._retention_steps)


def output_workers(directory: Path | str) -> tuple[int, ...]:
    """Return the workers that have an embedded output log in this pipeline's folder."""
    return numbered(Path(directory) / "outputs")


def read_outputs(
    directory: Path | str, view: str, first: int = 0, last: int | None = None
) -> Iterator[tuple[int, int, pa.Table]]:
    """Yield (step, worker, rows with weights) of a view for consumers, by step, then worker.

    The steps are `first <= s < last`. Every part in the log is final. With `last=None` the newest steps may still
    lack the part of a worker that has not written yet. A consumer of whole steps passes the `last` that the
    coordinator reports as finished.
    """
    logs = {worker: EmbeddedOutputLog(directory, worker) for worker in output_workers(directory)}
    try:
        yield from by_step(logs, view, first, last)
    finally:
        for log in logs.values():
            log.close()


def by_step(
    logs: Mapping[int, EmbeddedOutputLog], view: str, first: int, last: int | None
) -> Iterator[tuple[int, int, pa.Table]]:
    """Yield the rows of open logs in the order of `read_outputs`."""
    streams = {worker: log.read(view, first, last) for worker, log in logs.items()}
    heads = {worker: head for worker, stream in streams.items() if (head := next(stream, None)) is not None}
    while heads:
        worker = min(heads, key=lambda number: (heads[number][0], number))
        step, table = heads.pop(worker)
        yield step, worker, table
        if (following := next(streams[worker], None)) is not None:
            heads[worker] = following


def _folder(directory: Path | str, worker: int) -> Path:
    return Path(directory) / "outputs" / str(worker)


def _view_key(view: str) -> bytes:
    if not view or "\0" in view or len(view.encode()) > VIEW_BYTES_MAX:
        raise ConfigError(f"a view name must be 1 to {VIEW_BYTES_MAX} bytes without NUL: view={view[:80]!r}")
    return view.encode() + b"\0"


def kept_from_of(data: bytes, where: str) -> int:
    """Decode the first step whose rows were never dropped; raise a `DataError` with `where` if damaged."""
    return int(_STEP.unpack(unsealed(KEPT_FROM, data, _STEP.size, where))[0])
