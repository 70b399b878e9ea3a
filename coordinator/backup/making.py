"""Make a backup: pin every file of a pipeline at one moment, copy the pinned files, check the copy, name it.

The copy contains the files that a kill at that moment would leave on disk, without the scratch. So recovery can continue
from the copy as it does after a kill.

Between two steps of a running service there are only two kinds of writes: pushes, and the publication of a checkpoint. The
cut may fall within either. The service pins while no step runs, so no other writer changes the files (`process`). Without
a service no process writes.

In either case files are pinned before those they depend on: the ledger, then databases, outputs, step log, input log. So
the files pinned later contain everything that an earlier one names (invariants 4, 7, 11).

A pin is a read transaction of LMDB. Its data stays on disk until it ends, whatever is trimmed, dropped or deleted meanwhile
(12). It ends with the process that holds it. While a pin lasts, every write makes the files of the pipeline grow.

Before a backup counts, the doctor reads all of the copy, and the manifest receives every file's checksum.
Source: docs/design/0021-backups.md.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lmdb

from dbsp.coordinator.backup import manifests
from dbsp.coordinator.backup.manifests import (
    UNFINISHED,
    BackupFile,
    Manifest,
    progress_place,
    refuse_kinds,
    refuse_place,
)
from dbsp.coordinator.checks.doctor import diagnose, ledger_of
from dbsp.coordinator.decisions.recovery import choose
from dbsp.coordinator.running.control import Ledger
from dbsp.coordinator.settings.config import Config
from dbsp.coordinator.worker_resources import database_home, writers
from dbsp.disk import PRIVATE_FILE, PRIVATE_FOLDER, make_folder, sync_path
from dbsp.errors import DataError, DbspError, UnavailableError
from dbsp.io.environment import LOG
from dbsp.io.examine import OpenedLog
from dbsp.io.step_codec import unseal
from dbsp.lmdb_environments import data_file, open_to_read
from dbsp.storage.examine import versions_in
from dbsp.version import VERSION

TRIES = 20
ROOM_BYTES = 1 << 30
"""The most that a file may grow between its opening and its pin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupSource:
    """An LMDB file of the pipeline: its folder, and its folder in the backup."""

    folder: Path
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pin:
    """A source as of one moment: its open environment and the read transaction that holds it."""

    source: BackupSource
    env: Any
    txn: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedFiles:
    """All files of a pipeline as of one moment; `bytes` is the largest size that a copy can have."""

    pins: tuple[_Pin, ...]
    ledger: Ledger
    step: int
    bytes: int


@contextmanager
def pinning(config: Config) -> Iterator[PinnedFiles]:
    """Pin all files as of one moment; begin again if the ledger changes meanwhile.

    **Errors** `UnavailableError` if there is nothing to back up; `DataError` names a broken file; `ConfigError` with
    Kafka.
    """
    refuse_kinds(config)
    if not (config.data_dir / "steps").is_dir():
        raise _nothing(config)
    for _ in range(TRIES):
        with ExitStack() as held:
            found = _pinned(config, held)
            if found is not None:
                yield found
                return
    raise UnavailableError(
        f"the pipeline changed during every attempt to back it up: data_dir={config.data_dir}",
        "stop it, or enable [http] and ask the service",
    )


def _nothing(config: Config) -> DbspError:
    return UnavailableError(
        f"there is nothing to back up: data_dir={config.data_dir}", "the pipeline was never started here"
    )


def _pinned(config: Config, held: ExitStack) -> PinnedFiles | None:
    """Try once to pin all files; return None if the ledger changed meanwhile."""
    control = held.enter_context(_pin(BackupSource(folder=config.data_dir / "control", place="control")))
    ledger = ledger_of(OpenedLog.of(control.env, control.txn, ("ledger",)).get("ledger", b"ledger"))
    if not ledger.epoch:
        raise _nothing(config)
    rest = [held.enter_context(_pin(source)) for source in _sources(config, ledger)]
    (steps,) = [pin for pin in rest if pin.source.place == "steps"]
    head = OpenedLog.of(steps.env, steps.txn, ("records",)).get("meta", b"head")
    if head is None:
        raise DataError(f"the step log has no head: folder={steps.source.folder}", "`coordinator doctor` says more")
    step = int(unseal(head, f"file={steps.source.folder / 'data.mdb'} part=head")["next_step"])
    if control.env.info()["last_txnid"] != control.txn.id():
        return None
    pins = (control, *rest)
    size = sum((pin.env.info()["last_pgno"] + 1) * pin.env.stat()["psize"] for pin in pins)
    return PinnedFiles(pins=pins, ledger=ledger, step=step, bytes=size)


@contextmanager
def _pin(source: BackupSource) -> Iterator[_Pin]:
    """Open one file read-only in a transaction; free the reader slots of killed processes."""
    LOG.check(source.folder)
    try:
        env = open_to_read(source.folder, databases=8, room_bytes=ROOM_BYTES, readahead=False)
    except lmdb.Error as error:
        raise DataError(
            f"a file cannot be read: file={data_file(source.folder)} error={error}", "`coordinator doctor` says more"
        ) from error
    try:
        env.reader_check()
        with env.begin(buffers=False) as txn:
            yield _Pin(source=source, env=env, txn=txn)
    finally:
        env.close()


def _sources(config: Config, ledger: Ledger) -> Iterator[BackupSource]:
    """Yield all files but the ledger's, each before the files it depends on."""
    data_dir, members = config.data_dir, sorted(ledger.members)
    joining = {worker for worker in ledger.forming if not database_home(data_dir, worker).exists()}
    there = [worker for worker in members if worker not in joining]
    for worker in there:
        yield BackupSource(folder=database_home(data_dir, worker) / "durable", place=f"workers/{worker:04d}/durable")
    yield from _progress_sources(config, ledger)
    if (data_dir / "letters").exists():
        yield BackupSource(folder=data_dir / "letters", place="letters")
    yield BackupSource(folder=data_dir / "steps", place="steps")
    yield BackupSource(folder=data_dir / "input", place="input")


def _progress_sources(config: Config, ledger: Ledger) -> Iterator[BackupSource]:
    """Yield the files with outputs' progress and rows, including those of workers that have left."""
    progress, place = config.output.progress(config.residence), progress_place(config)
    if progress is None:
        return
    for worker in sorted({*ledger.members, *writers(config)}):
        folder = progress / str(worker)
        if folder.exists() or worker not in ledger.forming:
            yield BackupSource(folder=folder, place=f"{place}/{worker}")


# --- copying --------------------------------------------------------------------------------------------------------


def folder_name(step: int, now: datetime) -> str:
    """Return the name of a backup; names sort by time.

    **Example**

    >>> folder_name(42, datetime(2026, 11, 23, 10, 15, tzinfo=UTC))
    '20261123T101500Z-step-42'
    """
    return f"{now:%Y%m%dT%H%M%SZ}-step-{step}"


def begin(folder: Path, step: int) -> Path:
    """Create the folder of a new backup, under a name that marks it as unfinished."""
    name = folder_name(step, datetime.now(UTC))
    try:
        make_folder(folder)
        for number in range(1, TRIES):
            named = folder / (name if number == 1 else f"{name}-{number}")
            made = named.with_name(named.name + UNFINISHED)
            if not (named.exists() or made.exists()):
                made.mkdir(mode=PRIVATE_FOLDER)
                return made
    except OSError as error:
        raise _unwritable(folder, error) from error
    raise UnavailableError(f"there are backups of this second and step: folder={named}", "ask again")


def copy(pinned: PinnedFiles, made: Path) -> None:
    """Copy the pinned files; afterwards the backup needs no file of the pipeline."""
    for pin in pinned.pins:
        target = made / pin.source.place
        try:
            make_folder(target)
            pin.env.copy(str(target), compact=True, txn=pin.txn)
            (target / "data.mdb").chmod(PRIVATE_FILE)
            sync_path(target / "data.mdb")
        except (OSError, lmdb.Error) as error:
            raise _unwritable(made, error, pin.source.folder) from error


def finish(config: Config, pinned: PinnedFiles, made: Path) -> tuple[Path, Manifest]:
    """Check the copy, write the manifest with every checksum, and rename the folder; the pins may have ended."""
    _look(config, made)
    try:
        files = tuple(_noted(made, pin.source.place) for pin in pinned.pins)
        manifest = _manifest(config, pinned, made, files)
        for place, _, _ in os.walk(made, topdown=False):
            sync_path(Path(place))
        manifests.write_manifest(made, manifest)
        named = made.with_name(made.name.removesuffix(UNFINISHED))
        made.rename(named)
        sync_path(named.parent)
    except OSError as error:
        raise _unwritable(made, error) from error
    return named, manifest


def make(config: Config, folder: Path, report: Callable[[str, Path, int], None]) -> tuple[Path, Manifest]:
    """Make a whole backup of a stopped pipeline; call `report(phase, folder, bytes at most)` before each phase.

    **Errors** as `pinning`; `UnavailableError` if the backup cannot be written: its remains are deleted.
    """
    refuse_place(config, folder)
    with pinning(config) as pinned:
        made = begin(folder, pinned.step)
        with deleted_unless_done(made):
            report("copying", made, pinned.bytes)
            copy(pinned, made)
    with deleted_unless_done(made):
        report("checking", made, pinned.bytes)
        return finish(config, pinned, made)


@contextmanager
def deleted_unless_done(made: Path) -> Iterator[None]:
    """Delete an unfinished backup if the body fails."""
    try:
        yield
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _noted(made: Path, place: str) -> BackupFile:
    file = made / place / "data.mdb"
    return BackupFile(path=f"{place}/data.mdb", bytes=file.stat().st_size, sha256=manifests.checksum(file))


def _manifest(config: Config, pinned: PinnedFiles, made: Path, files: tuple[BackupFile, ...]) -> Manifest:
    ledger = pinned.ledger
    held = {
        worker: versions_in(database_home(made, worker))
        for worker in sorted(ledger.members)
        if database_home(made, worker).exists()
    }
    choice = choose(held, ledger.layouts, run=ledger.run, fingerprint=ledger.fingerprint)
    if choice is None:  # the doctor has named the damaged file
        raise DataError(f"the copy holds no version: folder={made}")
    left_out = (*config.output.left_out(config.residence), *config.input.left_out(config.residence))
    return Manifest(
        pipeline=config.pipeline.name, run=ledger.run, at=datetime.now(UTC).isoformat(timespec="seconds"), engine=VERSION,
        step=pinned.step, version=choice.version, checkpoint_step=choice.checkpoint.step,
        workers=len(choice.layout.workers), input=config.input.kind, output=config.output.kind,
        fingerprint=ledger.fingerprint, nodes=ledger.nodes, files=files, left_out=left_out,
    )  # fmt: skip


def _look(config: Config, made: Path) -> None:
    """Raise `DataError` if the copy is not sound, which means that its source is not."""
    found = diagnose(as_copied(config, made))
    if found.findings:
        first = found.findings[0]
        more = f" and {len(found.findings) - 1} more" if len(found.findings) > 1 else ""
        what = first.what.replace(str(made), str(config.data_dir))
        raise DataError(
            f"the pipeline's files are damaged, so there is no backup: {what}{more}",
            "`coordinator doctor` names all, with remedies",
        )


def as_copied(config: Config, made: Path) -> Config:
    """Return the settings of a pipeline whose data folder is a backup."""
    return replace(
        config, pipeline=replace(config.pipeline, data_dir=made), output=config.output.in_backup(),
        layout=replace(config.layout, standbys=[]),
    )  # fmt: skip


def _unwritable(folder: Path, error: Exception, source: Path | None = None) -> DbspError:
    shown = error.strerror if isinstance(error, OSError) else str(error)
    full = isinstance(error, OSError) and error.errno == errno.ENOSPC
    of = f" of={source}" if source is not None else ""
    hint = "free space there" if full or "No space" in str(shown) else "repair the disk"
    return UnavailableError(
        f"the backup cannot be written: folder={folder}{of} error={shown}",
        f"{hint}, or name another folder; nothing of the pipeline was changed",
    )
