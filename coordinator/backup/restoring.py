"""Restore a backup: check it, copy it, and put the copy in place as the data folder of a pipeline that is started later.

Every checksum is checked, and every refusal made, before a file is changed. Refused are another pipeline or circuit, and
other kinds of logs. An existing data folder, standbys and written files are refused, too, because they belong to another
history.

The copy is made in a folder aside, checked while it is written, and renamed into place. A restore that breaks off at any
moment leaves nothing that hinders the same command. Recovery follows: the service opens the backup's version under a
newer epoch and replays the steps logged since. Source: docs/design/0021-backups.md.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from dbsp.coordinator.backup.manifests import (
    READ_BYTES,
    REMEDY,
    BackupFile,
    Manifest,
    damage,
    progress_place,
    read_manifest,
)
from dbsp.coordinator.build import difference, load_plan
from dbsp.coordinator.settings.config import Config
from dbsp.disk import PRIVATE_FOLDER, make_folder, open_plain, private, sync_path
from dbsp.errors import CircuitError, ConfigError, DataError, UnavailableError
from dbsp.plan.plan import Plan

Report = Callable[[str, int], None]
MARK = ".restored-from"
"""The name of a file in the folder of the outputs' progress, which a restore puts in place before the data folder.

The file names the backup until the data folder is in place, too.
"""


def restore(
    backup: Path, config: Config, report: Report = lambda _phase, _count: None, *, plan: Plan | None = None
) -> Manifest:
    """Make the data folder of the settings out of a backup; call `report(phase, bytes)` for every piece read.

    `plan` is the plan of the circuit, if the caller has it.

    **Errors** `DataError` for a backup that is unfinished, damaged or of another format; `ConfigError` for another pipeline.
    A place that is taken raises `ConfigError`, too. `CircuitError` names the node that differs. `UnavailableError` means that
    the data folder cannot be written.
    """
    manifest = read_manifest(backup)
    _refuse_other(manifest, config, backup)
    _refuse_circuit(manifest, plan or load_plan(config), backup)
    refuse_taken(config, manifest.step, lambda progress: _is_left(manifest, progress))
    for found in damage(backup, manifest, lambda count: report("checking", count)):
        raise DataError(found, REMEDY)
    _put_in_place(backup, manifest, config, report)
    return manifest


# --- refusals -------------------------------------------------------------------------------------------------------


def _refuse_other(manifest: Manifest, config: Config, backup: Path) -> None:
    for name, ours, theirs in (
        ("name in [pipeline]", config.pipeline.name, manifest.pipeline),
        ("kind in [input]", config.input.kind, manifest.input),
        ("kind in [output]", config.output.kind, manifest.output),
    ):
        if ours != theirs:
            raise ConfigError(
                f"the backup is of another pipeline: {name}={theirs} here={ours} backup={backup}",
                "name the settings it belongs to: `coordinator restore BACKUP path/to/pipeline.toml`",
            )


def _refuse_circuit(manifest: Manifest, plan: Plan, backup: Path) -> None:
    if plan.fingerprint != manifest.fingerprint:
        raise CircuitError(
            f"the circuit is not the one this backup belongs to: backup={backup}\n"
            f"{difference(manifest.nodes, plan.circuit)}",
            f"put the circuit back as it was at {manifest.at}; nothing was restored",
        )


def refuse_taken(config: Config, step: int, is_left: Callable[[Path], bool] = lambda _progress: False) -> None:
    """Refuse a data folder, standbys or outputs that exist: they belong to another history than the one that is restored.

    `step` is the next step afterwards. `is_left` says whether the outputs' progress is of an unfinished attempt.
    """
    data_dir = config.data_dir
    if data_dir.exists() and (not data_dir.is_dir() or any(data_dir.iterdir())):
        raise ConfigError(
            f"the data folder is not empty: data_dir={data_dir}",
            "stop the pipeline and move the folder away, or name another `data_dir`",
        )
    for folder in config.standbys:
        if folder.exists() and any(folder.iterdir()):
            raise ConfigError(
                f"there are standbys of another history of the pipeline: folder={folder}",
                "move the folder away; the standbys are made anew at the start",
            )
    for found in _written_later(config, step, is_left):
        folders = " and ".join(str(folder) for _, folder in config.output.folders(config.residence))
        raise ConfigError(
            f"the folder of outputs has steps of another history: found={found}",
            f"move {folders or found} away: steps from {step} on are numbered anew",
        )


def _written_later(config: Config, step: int, is_left: Callable[[Path], bool]) -> Iterator[str]:
    """Yield what an existing output folder holds of another history.

    That is its progress file, unless an unfinished restore of this backup wrote it, and visible output of steps from
    `step` on.
    """
    progress = _progress(config)
    if progress is not None and progress.exists() and not is_left(progress):
        yield str(progress)
    yield from config.output.written_later(config.residence, step)


def _progress(config: Config) -> Path | None:
    """Return the folder in which the outputs store their progress; None if they store it elsewhere."""
    return config.output.progress(config.residence)


def _is_left(manifest: Manifest, progress: Path) -> bool:
    """Return whether the progress folder has the mark of an unfinished restore of this same backup."""
    try:
        return (progress / MARK).read_text() == _mark(manifest)
    except OSError:
        return False


def _mark(manifest: Manifest) -> str:
    return f"run={manifest.run} at={manifest.at} step={manifest.step}"


# --- copying --------------------------------------------------------------------------------------------------------


def _put_in_place(backup: Path, manifest: Manifest, config: Config, report: Report) -> None:
    """Copy the backup into a temporary folder beside the data folder, and put the copy in place by renaming.

    The outputs' progress is moved first. The data folder is renamed last, so that its existence means a finished
    restore. If anything fails, everything that was put in place is removed.

    **Errors** `UnavailableError` if the disk is full or fails.
    """
    data_dir = config.data_dir
    aside, placed = data_dir.with_name(f".{data_dir.name}.restoring"), False
    try:
        make_folder(data_dir.parent)
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(mode=PRIVATE_FOLDER)
        for file in manifest.files:
            _copy(backup / file.path, aside / file.path, file, report)
        sync_all(aside)
        _move_progress(aside, config, _mark(manifest))
        aside.rename(data_dir)
        placed = True
        sync_path(data_dir.parent)
    except OSError as error:
        _take_back(manifest, config, aside, placed)
        raise UnavailableError(
            f"the backup cannot be restored: data_dir={data_dir} error={error.strerror}",
            "free space or repair the disk, and give the same command again: the backup is as it was",
        ) from error
    except BaseException:
        _take_back(manifest, config, aside, placed)
        raise
    progress = _progress(config)
    if progress is not None:
        with suppress(OSError):  # a mark that stays is harmless: the data folder exists, too
            (progress / MARK).unlink(missing_ok=True)


def _take_back(manifest: Manifest, config: Config, aside: Path, placed: bool) -> None:
    """Remove everything that this restore put in place.

    Each folder is renamed before it is deleted, so that it exists whole or not at all.
    """
    progress = _progress(config)
    with suppress(OSError):
        if placed:
            config.data_dir.rename(aside)
        if progress is not None and _is_left(manifest, progress):
            progress.rename(_beside(progress, "replaced"))
    beside = () if progress is None else (_beside(progress, "replaced"), _beside(progress, "restoring"))
    for left in (aside, *beside):
        shutil.rmtree(left, ignore_errors=True)


def _beside(folder: Path, what: str) -> Path:
    return folder.with_name(f"{folder.name}.{what}")


def _copy(source: Path, target: Path, file: BackupFile, report: Report) -> None:
    make_folder(target.parent)
    checksum = hashlib.sha256()
    with open_plain(source) as read, open(target, "xb", opener=private) as written:
        while piece := read.read(READ_BYTES):
            checksum.update(piece)
            written.write(piece)
            report("copying", len(piece))
    if checksum.hexdigest() != file.sha256:
        raise DataError(f"a file of the backup changed while it was read: file={source}", REMEDY)
    sync_path(target)


def _move_progress(made: Path, config: Config, mark: str) -> None:
    """Move the progress from the copied backup into the folder of the outputs, if that is outside the data folder.

    The folder may be on another disk. The remains of an unfinished restore there are replaced.
    """
    folder, place = _progress(config), progress_place(config)
    if folder is None or place is None or folder == config.data_dir / place:
        return
    aside, replaced = _beside(folder, "restoring"), _beside(folder, "replaced")
    make_folder(folder.parent)
    for left in (aside, replaced):
        shutil.rmtree(left, ignore_errors=True)
    shutil.copytree(made / place, aside)
    (aside / MARK).write_text(mark)
    sync_all(aside)
    if folder.exists():
        folder.rename(replaced)
    aside.rename(folder)
    sync_path(folder.parent)
    shutil.rmtree(replaced, ignore_errors=True)
    shutil.rmtree(made / Path(place).parts[0])


def sync_all(folder: Path) -> None:
    """Sync all files and folders below a folder to disk."""
    for path in sorted(folder.rglob("*"), reverse=True):
        sync_path(path)
    sync_path(folder)
