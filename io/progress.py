"""The progress of each worker's outputs, in an LMDB file: the shared part of the output logs on local files.

Progress and checksums are in one file: their own (outputs as files), or that of the rows (the embedded log). They
outlive the trimming of rows, so a replayed step is recognised long after its rows are gone. The transaction that would
write refuses an older epoch (invariant 6).

**State** 8 bytes of checksum per step until `trim_progress`. Source: docs/concepts/logs.md.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from dbsp.errors import DataError, FencedError
from dbsp.io.environment import MAP_BYTES_START, open_environment, release_environment
from dbsp.io.output_part import OutputProgress, Verdict, decide
from dbsp.stored.checksums import sealed, unsealed
from dbsp.stored.levels import NEWEST

_STEP = struct.Struct(">Q")
_PROGRESS = struct.Struct("<QQQ")
_CHECKSUM = struct.Struct("<Q")
KEY = b"progress"


class ProgressStore:
    """The progress of one worker, in an LMDB file of its own or in the file of the rows."""

    def __init__(
        self,
        path: Path,
        *,
        form: str,
        first_step: int,
        create: bool,
        map_bytes: int = MAP_BYTES_START,
        level: int = NEWEST,
    ) -> None:
        """Open the file; with `create`, a worker that joins at `first_step` starts there.

        The same holds for one that joins again. Progress that is already beyond `first_step` stays.
        """
        self.env = open_environment(path, form=form, names=("data", "checksums"), create=create, map_bytes=map_bytes)
        self._first_step, self._level = first_step, level
        with self.env.read() as txn:
            known = self.progress(txn)
        if create and (known is None or known.last < first_step):
            self.env.write(self._join)

    def _join(self, txn: Any) -> None:
        known = self.progress(txn)
        if known is None or known.last < self._first_step:
            epoch = 0 if known is None else known.epoch
            self.put_progress(txn, OutputProgress(first=self._first_step, last=self._first_step, epoch=epoch))

    def progress(self, txn: Any) -> OutputProgress | None:
        """Return first, last and epoch; None before the first opening."""
        data = txn.get(KEY, db=self.env.db("meta"))
        return None if data is None else progress_of(data, self.env.where)

    def known(self) -> OutputProgress:
        """Return the progress now."""
        with self.env.read() as txn:
            return self.need(txn)

    def need(self, txn: Any) -> OutputProgress:
        """Return the progress as the transaction sees it; `DataError` if there is none."""
        found = self.progress(txn)
        if found is None:
            raise DataError(f"the output log holds no progress: file={self.env.path / 'data.mdb'}")
        return found

    def put_progress(self, txn: Any, progress: OutputProgress) -> None:
        """Write first, last and epoch."""
        data = _PROGRESS.pack(progress.first, progress.last, progress.epoch)
        txn.put(KEY, sealed(KEY, data, self._level), db=self.env.db("meta"))

    def checksum(self, step: int) -> int | None:
        """Return the stored checksum of a step's output, None if it is not kept."""
        with self.env.read() as txn:
            return self._checksum(txn, step)

    def _checksum(self, txn: Any, step: int) -> int | None:
        """Return the stored checksum of a step's output, None if it is not kept."""
        data = txn.get(_STEP.pack(step), db=self.env.db("checksums"))
        return None if data is None else checksum_of_step(_STEP.pack(step), data, self.env.where)

    def _put_checksum(self, txn: Any, step: int, checksum: int) -> None:
        key = _STEP.pack(step)
        txn.put(key, sealed(key, _CHECKSUM.pack(checksum), self._level), db=self.env.db("checksums"))

    def admit(self, txn: Any, epoch: int, step: int, checksum: int) -> Verdict:
        """Decide about a write and, if its step is next, record it as done; also record a newer epoch."""
        progress = self.need(txn)
        verdict = decide(progress, epoch, step, checksum, self._checksum(txn, step))
        last = progress.last
        if verdict is Verdict.APPEND:
            self._put_checksum(txn, step, checksum)
            last = step + 1
        if (last, epoch) != (progress.last, progress.epoch):
            self.put_progress(txn, OutputProgress(first=progress.first, last=last, epoch=epoch))
        return verdict

    def replace(self, txn: Any, epoch: int, step: int, checksum: int) -> bool:
        """Replace the checksum of a step that was written; return whether it differs."""
        decide(self.need(txn), epoch, step, checksum, None)
        known = self._checksum(txn, step)
        if known is None:
            raise DataError(f"the output of this step is no longer stored: step={step}", "accept steps that are newer")
        if known == checksum:
            return False
        self._put_checksum(txn, step, checksum)
        return True

    def fence(self, epoch: int) -> None:
        """Refuse older epochs from now on; nothing is written, and synced, if this epoch is already recorded."""
        if self.known().epoch == epoch:
            return

        def action(txn: Any) -> None:
            progress = self.need(txn)
            if epoch < progress.epoch:
                raise FencedError(f"a newer epoch writes these outputs: epoch={epoch} newest={progress.epoch}")
            self.put_progress(txn, OutputProgress(first=progress.first, last=progress.last, epoch=epoch))

        self.env.write(action)

    def trim(self, step: int) -> None:
        """Forget the checksums of steps below `step`: no replay reaches them."""

        def action(txn: Any) -> None:
            cursor = txn.cursor(db=self.env.db("checksums"))
            found = cursor.first()
            while found and cursor.key() and _STEP.unpack(cursor.key())[0] < step:
                found = cursor.delete()

        self.env.write(action)


def progress_of(data: bytes, where: str) -> OutputProgress:
    """Return a worker's stored progress; `DataError` with `where` if it is damaged."""
    first, last, epoch = _PROGRESS.unpack(unsealed(KEY, data, _PROGRESS.size, where))
    return OutputProgress(first=first, last=last, epoch=epoch)


def checksum_of_step(key: bytes, data: bytes, where: str) -> int:
    """Return a step's stored checksum; `DataError` with `where` if it is damaged."""
    return int(_CHECKSUM.unpack(unsealed(key, data, _CHECKSUM.size, f"{where} part=checksums"))[0])


class LocalOutputLog:
    """The half of an output log on local files that keeps the progress; a subclass keeps the rows."""

    def __init__(self, store: ProgressStore) -> None:
        """Use the progress in `store`, which `close` closes."""
        self._store, self._env = store, store.env

    @property
    def place(self) -> str:
        """Return the folder of the progress, for messages."""
        return f"folder={self._env.path}"

    def bounds(self) -> tuple[int, int]:
        """Return (first, last): this worker has written the steps first <= s < last."""
        progress = self._store.known()
        return progress.first, progress.last

    def checksum(self, step: int) -> int | None:
        """Return the checksum of a step's part; see `dbsp.logs.TellsChecksums`."""
        return self._store.checksum(step)

    def fence(self, epoch: int) -> None:
        """Refuse writers of an older epoch from now on."""
        self._store.fence(epoch)

    def trim_progress(self, step: int) -> None:
        """Forget the checksums of steps below `step`, which no replay can reach."""
        self._store.trim(step)

    def close(self) -> None:
        """Release the file."""
        release_environment(self._env)
