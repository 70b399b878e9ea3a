"""Reset a stopped pipeline: move everything that it has stored aside, or delete it.

1. No file is touched while a service writes the pipeline's ledger, or responds as this pipeline.
2. Only folders that the settings name are touched, and each is printed first. Folders outside `data_dir` need `outside`.
3. A folder that holds the settings, or the working folder of the process that runs this, is never touched.

Left out: topics of brokers, tables of object stores, files on other hosts. They are named, because a start refuses some
of them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dbsp.coordinator.client.liveness import refuse_running
from dbsp.coordinator.http.identity import is_written
from dbsp.coordinator.settings.config import Config
from dbsp.errors import ConfigError, UnavailableError


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """The folders that a reset removes, each with a description, and a list of what it leaves."""

    takes: tuple[tuple[str, Path], ...]
    leaves: tuple[str, ...]

    def lines(self, *, delete: bool) -> list[str]:
        """Return the planned actions as lines for people."""
        verb = "delete" if delete else "move aside"
        return [
            *(f"{verb} {what}: {folder} ({_bytes(folder):,} bytes)" for what, folder in self.takes),
            *(f"leave {what}" for what in self.leaves),
        ]


def survey_reset(config: Config, *, outside: bool) -> Reset:
    """Return what a reset would move or delete, and what it would leave.

    **Errors** `UnavailableError` if the pipeline runs, `ConfigError` for a folder that holds the settings.
    """
    if is_written(config.data_dir):
        raise UnavailableError(
            f"a service of this pipeline runs: data_dir={config.data_dir}", "stop it with `coordinator stop` first"
        )
    refuse_running(config)
    there = [(what, folder) for what, folder in _folders(config) if folder.exists()]
    takes = [each for each in there if outside or each[1] == config.data_dir]
    for what, folder in takes:
        for kept in (config.folder, Path.cwd()):
            if kept.absolute().is_relative_to(folder):
                raise ConfigError(
                    f"{what} holds other files than the pipeline's: folder={folder}",
                    "delete in it what the pipeline stored by hand, and name a folder of its own in the settings",
                )
    leaves = [f"{what}: {folder} (--outside takes it too)" for what, folder in there if (what, folder) not in takes]
    return Reset(takes=tuple(takes), leaves=(*leaves, *_elsewhere(config)))


def _folders(config: Config) -> Iterator[tuple[str, Path]]:
    """Yield the pipeline's folders: the data folder, and each standby and output outside the data folder."""
    yield "the data folder", config.data_dir
    outputs = [folder for _, folder in config.output.folders(config.residence)]
    others = [*(("a standby", folder) for folder in config.standbys), *(("an output", folder) for folder in outputs)]
    for what, folder in others:
        if not folder.is_relative_to(config.data_dir):
            yield what, folder


def _elsewhere(config: Config) -> Iterator[str]:
    """Yield descriptions of stored data of the pipeline that a reset does not reach."""
    for connector, section in ((config.input, "input"), (config.output, "output")):
        if connector.kind == "kafka":
            yield f"the topics of {section}.kind=kafka: a pipeline of the same name refuses them, choose another `name`"
    if config.delta.directory:
        yield f"the Delta tables of delta.directory={config.delta.directory}"
    if config.log.path:
        yield f"the log: {config.log_file}"
    if config.layout.hosts:
        yield "what the workers on other hosts have stored: run this on each"


def carry_out_reset(found: Reset, *, delete: bool) -> list[str]:
    """Move the folders aside, or delete them; return the actions as lines for people.

    A folder is renamed before it is deleted, so that a reset that is interrupted leaves no half of a pipeline.
    """
    at = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    done = []
    for what, folder in found.takes:
        aside = _free(folder.with_name(f"{folder.name}.reset-{at}"))
        folder.rename(aside)
        if delete:
            shutil.rmtree(aside)
        done.append(f"deleted {what}: {folder}" if delete else f"moved {what} aside: {aside}")
    return done


def _free(path: Path) -> Path:
    number = 1
    found = path
    while found.exists():
        number += 1
        found = path.with_name(f"{path.name}-{number}")
    return found


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_blocks * 512 for file in folder.rglob("*") if file.is_file() and not file.is_symlink())
