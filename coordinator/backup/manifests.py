"""Backups on disk: a folder of files and a manifest each; how backups are named, listed and checked.

    FOLDER/20261123T101500Z-step-42/        manifest.json, control/, workers/NNNN/durable/, steps/, input/, outputs/N/, letters/
    FOLDER/20261123T101500Z-step-42.unfinished/   a backup under way or broken off, which can be deleted

Invariants:

- The manifest is written last, when all files it names are on disk; then the folder gets its name.
- So a folder without a manifest is no backup.
- A file never changes afterwards. The manifest carries a checksum of itself.
- A reader trusts no name in a backup: each must be of a plain file inside the folder, reached through no symbolic link.

Source: docs/design/0021-backups.md. Left out: how to make a backup (`making`) and to restore it (`restoring`).
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from dbsp.coordinator.settings.config import Config
from dbsp.disk import replace_text
from dbsp.errors import ConfigError, DataError
from dbsp.stored import from_stored, stored, to_stored
from dbsp.stored.format_numbers import check_format

MANIFEST, UNFINISHED, FORMAT = "manifest.json", ".unfinished", 1
READ_BYTES = 1 << 22
FOREIGN = "it was not written by dbsp: do not restore it, and find out who changed it"
REMEDY = "take another backup: `coordinator backups` lists them"


@stored("BackupFile", "path bytes sha256")
@dataclass(frozen=True, slots=True, kw_only=True)
class BackupFile:
    """A file of a backup, by its path in the backup."""

    path: str
    bytes: int
    sha256: str


@stored(
    "Manifest",
    "pipeline run at engine step version checkpoint_step workers input output fingerprint nodes files left_out",
)
@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The content of a backup: `step` is the next step of the restored pipeline, which replays from `version`.

    `nodes` are the circuit's, so that a restore can name the difference from another circuit before it reads anything.
    """

    pipeline: str
    run: str
    at: str
    engine: str
    step: int
    version: int
    checkpoint_step: int
    workers: int
    input: str
    output: str
    fingerprint: str
    nodes: tuple[tuple[str, str], ...]
    files: tuple[BackupFile, ...]
    left_out: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """Return the size of all files in bytes."""
        return sum(file.bytes for file in self.files)

    def as_json(self) -> dict[str, Any]:
        """Return the description of the backup for people and scripts, as JSON values."""
        return {
            "pipeline": self.pipeline, "at": self.at, "step": self.step, "version": self.version,
            "checkpoint_step": self.checkpoint_step, "workers": self.workers, "bytes": self.bytes,
            "engine": self.engine, "left_out": list(self.left_out),
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedBackup:
    """A folder that is a backup (`manifest`), or the reason why it is none; `damage` lists the findings of a check."""

    name: str
    manifest: Manifest | None
    bytes: int
    reason: str = ""
    damage: tuple[str, ...] = ()

    @property
    def state(self) -> str:
        """Return the state in one word: unfinished, broken, damaged or whole."""
        if self.manifest is None:
            return "unfinished" if self.name.endswith(UNFINISHED) else "broken"
        return "damaged" if self.damage else "whole"


def refuse_kinds(config: Config) -> None:
    """Refuse inputs and outputs whose logs continue outside a backup; `ConfigError` says what to do instead."""
    connectors = (config.input, config.output)
    for refusal in (each.no_backup for each in connectors if each.no_backup is not None):
        kinds = " ".join(f"{each.section}.kind={each.kind}" for each in connectors)
        raise ConfigError(f"{refusal[0]}: {kinds}", refusal[1])


def progress_place(config: Config) -> str | None:
    """Return the path of the outputs' progress inside a backup; None if outputs store their progress elsewhere."""
    found = config.output.in_backup().progress(config.residence)
    return None if found is None else found.relative_to(config.data_dir).as_posix()


def refuse_place(config: Config, folder: Path) -> None:
    """Raise `ConfigError` for a folder in which a backup would be lost together with its source."""
    if not folder.is_absolute():
        raise ConfigError(f"not an absolute path: folder={folder}", "name the folder as the service's host sees it")
    if folder.resolve().is_relative_to(config.data_dir.resolve()):
        raise ConfigError(
            f"backups cannot be inside the data folder: folder={folder}", "name a folder outside, best on another disk"
        )


# --- the manifest ---------------------------------------------------------------------------------------------------


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, whole or not at all."""
    body = json.dumps(to_stored(manifest), sort_keys=True)
    sealed = json.dumps(
        {"format": FORMAT, "sha256": hashlib.sha256(body.encode()).hexdigest(), "backup": json.loads(body)}
    )
    replace_text(folder / MANIFEST, sealed)


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a backup; raise `DataError` that says what the folder is instead."""
    file = folder / MANIFEST
    try:
        found = json.loads(file.read_text())
        body, checksum, number = found["backup"], found["sha256"], int(found["format"])
    except FileNotFoundError:
        raise _no_backup(folder) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"the manifest of a backup is broken: file={file} error={error}", REMEDY) from None
    if folder.name.endswith(UNFINISHED):
        raise _no_backup(folder)
    check_format("the backup", f"folder={folder}", number, FORMAT)
    if hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest() != checksum:
        raise DataError(f"the manifest of a backup is damaged: file={file}", REMEDY)
    try:
        found = _decoded(body)
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise DataError(f"the manifest of a backup is broken: file={file} error={error}", REMEDY) from None
    _refuse_names(found, file)
    return found


def _refuse_names(manifest: Manifest, file: Path) -> None:
    """Refuse names that lead out of the folder, a name that occurs twice, and a name that is also a folder's."""
    names = [entry.path for entry in manifest.files]
    for name in names:
        if not isinstance(name, str) or "\0" in name or name != PurePosixPath(name).as_posix() or not _is_inside(name):
            raise DataError(f"a name in the manifest leads out of the backup: file={file} name={name!r}", FOREIGN)
    folders = {str(parent) for name in names for parent in PurePosixPath(name).parents}
    for name, count in Counter(names).items():
        if count > 1 or name in folders:
            raise DataError(f"a name occurs twice in the manifest: file={file} name={name!r}", FOREIGN)


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts


def link_in(folder: Path, name: str) -> Path | None:
    """Return the first symbolic link, or other thing that is no plain file or folder, on the way to a file of a backup."""
    path = folder
    for part in PurePosixPath(name).parts:
        path /= part
        kind = path.lstat().st_mode
        if not (stat.S_ISDIR(kind) or stat.S_ISREG(kind)):
            return path
    return None


def _no_backup(folder: Path) -> DataError:
    if folder.name.endswith(UNFINISHED):
        return DataError(f"the backup was not finished: folder={folder}", f"delete it; {REMEDY}")
    return DataError(
        f"there is no backup here: folder={folder}",
        f"a backup has a {MANIFEST}; `coordinator backups` lists those of a folder",
    )


def _decoded(body: Mapping[str, Any]) -> Manifest:
    parts = {
        "files": tuple(from_stored(BackupFile, file) for file in body["files"]),
        "nodes": tuple((label, token) for label, token in body["nodes"]),
        "left_out": tuple(body["left_out"]),
    }
    return from_stored(Manifest, {**body, **parts})


# --- looking at backups ---------------------------------------------------------------------------------------------


def checksum(file: Path, report: Callable[[int], None] = lambda _count: None) -> str:
    """Return the SHA-256 of a file, read in pieces; call `report` with the size of each."""
    found = hashlib.sha256()
    with file.open("rb") as stream:
        while piece := stream.read(READ_BYTES):
            found.update(piece)
            report(len(piece))
    return found.hexdigest()


def damage(folder: Path, manifest: Manifest, report: Callable[[int], None] = lambda _count: None) -> Iterator[str]:
    """Yield a text for each file that differs from the manifest.

    **Cost** reads everything.
    """
    for file in manifest.files:
        path = folder / file.path
        try:
            if (link := link_in(folder, file.path)) is not None:
                yield f"a file of the backup is reached through a link, or is none: file={path} found={link}"
            elif path.stat().st_size != file.bytes:
                yield f"a file of the backup has another size: file={path} bytes={path.stat().st_size} expected={file.bytes}"
            elif checksum(path, report) != file.sha256:
                yield f"a file of the backup is damaged: file={path}"
        except FileNotFoundError:
            yield f"a file of the backup is missing: file={path}"
        except OSError as error:
            yield f"a file of the backup cannot be read: file={path} error={error.strerror}"


def backups_in(folder: Path, *, check: bool, report: Callable[[str], None] = lambda _name: None) -> list[ListedBackup]:
    """Return the backups of a folder, ordered by name and so by time; with `check` verify all checksums.

    **Errors** `ConfigError` if it is no folder.
    """
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise ConfigError(f"not a folder of backups: folder={folder} error={error.strerror}", "name another") from None
    found = []
    for name in names:
        report(name)
        if (folder / name / MANIFEST).exists() or name.endswith(UNFINISHED):
            found.append(_listed(folder / name, check))
    return found


def _listed(folder: Path, check: bool) -> ListedBackup:
    try:
        manifest = read_manifest(folder)
    except DataError as error:
        return ListedBackup(name=folder.name, manifest=None, bytes=bytes_in(folder), reason=error.message)
    broken = tuple(damage(folder, manifest)) if check else ()
    return ListedBackup(name=folder.name, manifest=manifest, bytes=manifest.bytes, damage=broken)


def bytes_in(folder: Path) -> int:
    """Return the bytes of all files in a folder, also while the folder grows or is deleted."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(place) / name).stat().st_size
            except FileNotFoundError:
                continue
    return total
