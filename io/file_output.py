"""Outputs as plain files: one per step, view and worker, renamed into place once it is on disk.

`<directory>/<view>/step-<step>-worker-<worker>.parquet` (or `.arrow`, `.jsonl`) appears whole or not at all. Steps
without rows of a view have no file. A worker's progress is in `<directory>/.progress/<worker>`, and is noted after the
files. After a crash between the two, the step is written again, over files of equal content. The epoch is checked
before the files are written, and again when the step is noted (invariant 6). So an older writer leaves at most files that are
equal to those already there, or to those its successor will write.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dbsp.disk import PUBLIC_FOLDER, make_folder, sync_path
from dbsp.errors import ConfigError, InternalError
from dbsp.io import forms
from dbsp.io.formats import encode_arrow, encode_json
from dbsp.io.output_part import Verdict, by_view, checksum_of, decide, to_table, with_dead_letters
from dbsp.io.progress import LocalOutputLog, ProgressStore
from dbsp.logs import DeadLetter
from dbsp.processes import find_process
from dbsp.stored.levels import NEWEST
from dbsp.zset.batch import Batch

FORM = forms.FILE_OUTPUT


class FileOutputLog(LocalOutputLog):
    """The outputs of one worker as files; see `dbsp.logs.OutputLog`. `format` is `parquet`, `arrow` or `json`."""

    def __init__(
        self,
        directory: Path | str,
        worker: int,
        *,
        format: str = "parquet",  # noqa: A002 - the setting's name
        first_step: int = 0,
        create: bool = False,
        level: int = NEWEST,
    ) -> None:
        """Open the progress; `create` begins it at `first_step` if it is absent or behind, else absence is a `DataError`."""
        if format not in _ENCODERS:
            raise ConfigError(f"unknown file format: format={format}", f"use one of {sorted(_ENCODERS)}")
        self._directory, self._worker = Path(directory), worker
        self._ending, self._encode = _ENCODERS[format]
        path = self._directory / ".progress" / str(worker)
        super().__init__(ProgressStore(path, form=FORM, first_step=first_step, create=create, level=level))
        self._sweep()

    def write(self, epoch: int, step: int, parts: Mapping[str, Batch], dead: Sequence[DeadLetter]) -> None:
        """Write one step's files, then note the step; see `dbsp.logs.OutputLog.write`."""
        full = with_dead_letters(parts, dead)
        checksum = checksum_of(full)
        self._store.fence(epoch)
        if (
            decide(self._store.known(), epoch, step, checksum, None) is Verdict.APPEND
        ):  # `decide` refuses a step that is not next
            for view, batches in by_view(full).items():
                self._write_file(self.path_of(view, step), batches)
        self._env.write(lambda txn: self._store.admit(txn, epoch, step, checksum))

    def path_of(self, view: str, step: int) -> Path:
        """Return the path of this worker's rows of a view and step."""
        if not view or "/" in view or view.startswith("."):
            raise ConfigError(f"a view of this name cannot be a folder: view={view!r}", "rename the view")
        return self._directory / view / f"step-{step:012d}-worker-{self._worker}.{self._ending}"

    def _write_file(self, path: Path, batches: Sequence[Batch]) -> None:
        make_folder(path.parent, PUBLIC_FOLDER)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            temporary.write_bytes(self._encode(batches))
            sync_path(temporary)
            temporary.rename(path)
        finally:
            temporary.unlink(missing_ok=True)
        sync_path(path.parent)

    def _sweep(self) -> None:
        """Delete unfinished files of processes that no longer exist.

        A live process of an older epoch may still write its own.
        """
        for path in self._directory.glob(f"*/.step-*-worker-{self._worker}.{self._ending}.*"):
            if find_process(int(path.suffix[1:])) is None:
                path.unlink(missing_ok=True)

    def trim(self, step: int) -> None:
        """Delete this worker's files of steps below `step`; progress and checksums stay."""
        for path in sorted(self._directory.glob(f"*/step-*-worker-{self._worker}.{self._ending}")):
            if int(path.name.split("-")[1]) < step:
                path.unlink()


def _parquet(batches: Sequence[Batch]) -> bytes:
    """Encode as Parquet with dictionaries for texts only.

    For numbers, a dictionary is mostly begun in vain, and took a third of the time.
    """
    table, sink = to_table(_only(batches)), pa.BufferOutputStream()
    texts = [field.name for field in table.schema if field.type in {pa.string(), pa.binary()}]
    pq.write_table(table, sink, use_dictionary=texts)
    return bytes(sink.getvalue().to_pybytes())


def _arrow(batches: Sequence[Batch]) -> bytes:
    return encode_arrow(_only(batches))


def _json(batches: Sequence[Batch]) -> bytes:
    return b"".join(map(encode_json, batches))


def _only(batches: Sequence[Batch]) -> Batch:
    """Return the only batch of a file whose format has one set of columns; an edit of a view's columns was refused."""
    if len(batches) != 1:
        raise InternalError("rows of two sets of columns in a file that has one")
    return batches[0]


_ENCODERS: Mapping[str, tuple[str, Callable[[Sequence[Batch]], bytes]]] = {
    "parquet": ("parquet", _parquet),
    "arrow": ("arrow", _arrow),
    "json": ("jsonl", _json),
}
